//! Tokenizers to test with: the embedded one, and others written out because they are as hard as it
//! gets: one where nearly every token is a single byte, and two in the manner of Llama 2.

use embedded_models::TARGET;
use naive_decode::Tokenizer;
use serde_json::{Value, json};

pub(crate) fn embedded() -> Tokenizer {
    Tokenizer::from_bytes("the embedded tokenizer", TARGET.tokenizer).unwrap()
}

/// GPT-2's letters for the 256 bytes: printable ones stand for themselves.
pub(crate) fn letter_of(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !printable(*b)).count();
    char::from_u32(256 + before as u32).unwrap()
}

/// Byte-level BPE with a token per byte, one merge across two characters (the end of 你 and the
/// start of 好), and two special tokens.
pub(crate) const MERGED: u32 = 256;
pub(crate) const BEGIN: u32 = 257;
pub(crate) const END: u32 = 258;

pub(crate) fn bytes_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes("bytes", bytes_json().to_string().as_bytes()).unwrap()
}

/// A special token as `added_tokens` has it.
pub(crate) fn special(id: u32, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false,
           "rstrip": false, "normalized": false, "special": true})
}

/// Its tokenizer.json.
pub(crate) fn bytes_json() -> Value {
    let letter = |b: u8| letter_of(b).to_string();
    let mut vocab: serde_json::Map<_, _> =
        (0..=255).map(|b| (letter(b), json!(u32::from(b)))).collect();
    vocab.insert(letter(0xa0) + &letter(0xe5), json!(MERGED));
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [special(BEGIN, "<begin>"), special(END, "<end>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                          "use_regex": false},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<begin>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<begin>": {"id": "<begin>", "ids": [BEGIN], "tokens": ["<begin>"]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
                  "merges": [[letter(0xa0), letter(0xe5)]]},
    })
}

/// The bytes of each of [`bytes_tokenizer`]'s tokens.
pub(crate) fn bytes_of(token: u32) -> Vec<u8> {
    match token {
        0..=255 => vec![token as u8],
        MERGED => vec![0xa0, 0xe5],
        _ => vec![],
    }
}

/// Llama 2's kind: words begin with ▁, characters that it lacks fall back to bytes.
pub(crate) fn llama_2_tokenizer() -> Tokenizer {
    Tokenizer::from_bytes("Llama 2's kind", llama_2_json().to_string().as_bytes()).unwrap()
}

/// Its tokenizer.json.
pub(crate) fn llama_2_json() -> Value {
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    sentence_piece(&normalizer, &json!(null))
}

/// The same as newer conversions write it: the space goes before the text's first word only, not
/// before the first after each special token.
pub(crate) fn newer_llama_2_tokenizer() -> Tokenizer {
    let pre_tokenizer = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                               "split": false});
    let json = sentence_piece(&json!(null), &pre_tokenizer);
    Tokenizer::from_bytes("Llama 2's newer kind", json.to_string().as_bytes()).unwrap()
}

fn sentence_piece(normalizer: &Value, pre_tokenizer: &Value) -> Value {
    let mut vocab = serde_json::Map::new();
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let letters = ('a'..='z').map(String::from);
    for piece in ["<unk>".to_string()].into_iter().chain(bytes).chain(letters) {
        vocab.insert(piece, json!(vocab.len()));
    }
    for piece in ["▁", "▁a", "▁w", "<s>", "</s>", "<|turn|>"] {
        vocab.insert(piece.into(), json!(vocab.len()));
    }
    let special = |content: &str, rstrip: bool| {
        json!({"id": vocab[content], "content": content, "single_word": false, "lstrip": false,
               "rstrip": rstrip, "normalized": false, "special": true})
    };
    // As Phi-3 has it: white space after the token that begins a turn belongs to it.
    let added = [special("<s>", false), special("</s>", false), special("<|turn|>", true)];
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
                  "merges": [["▁", "a"], ["▁", "w"]]},
    })
}

/// The bytes of each token of [`llama_2_tokenizer`], with the space that a text's first word loses.
pub(crate) fn bytes_of_piece(token: u32) -> Vec<u8> {
    match token {
        1..=256 => vec![(token - 1) as u8],
        257..=282 => vec![b'a' + (token - 257) as u8],
        283 => b" ".to_vec(),
        284 => b" a".to_vec(),
        285 => b" w".to_vec(),
        // Unknown is no special token here: it is written out.
        0 => b"<unk>".to_vec(),
        _ => vec![],
    }
}
