//! Text to tokens and back, and streams that never break a character.
//!
//! Three tokenizers: the embedded one, and two written out below because they are as hard as it
//! gets: one where nearly every token is a single byte, and one in the manner of Llama 2.

use embedded_models::{DRAFT, TARGET};
use naive_decode::{Config, Tokenizer};
use proptest::prelude::*;
use serde_json::json;
use std::time::Instant;

const TEXTS: [&str; 9] = [
    "",
    "plain words, and   spaces ",
    "Grüße aus Köln — 10 €",
    "你好世界，再见",
    "नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 🇨🇭 letters",
    "e\u{301} combining, \u{200b}zero width",
    "tab\tnewline\r\n\0nul",
    "مرحبا بالعالم",
];

fn embedded() -> Tokenizer {
    Tokenizer::from_bytes("the embedded tokenizer", TARGET.tokenizer).unwrap()
}

/// GPT-2's letters for the 256 bytes: printable ones stand for themselves.
fn letter_of(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !printable(*b)).count();
    char::from_u32(256 + before as u32).unwrap()
}

/// Byte-level BPE with a token per byte, one merge across two characters (the end of 你 and the
/// start of 好), and two special tokens.
const MERGED: u32 = 256;
const BEGIN: u32 = 257;
const END: u32 = 258;

fn bytes_tokenizer() -> Tokenizer {
    let letter = |b: u8| letter_of(b).to_string();
    let mut vocab: serde_json::Map<_, _> =
        (0..=255).map(|b| (letter(b), json!(u32::from(b)))).collect();
    vocab.insert(letter(0xa0) + &letter(0xe5), json!(MERGED));
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let json = json!({
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
    });
    Tokenizer::from_bytes("bytes", json.to_string().as_bytes()).unwrap()
}

/// The bytes of each of [`bytes_tokenizer`]'s tokens.
fn bytes_of(token: u32) -> Vec<u8> {
    match token {
        0..=255 => vec![token as u8],
        MERGED => vec![0xa0, 0xe5],
        _ => vec![],
    }
}

/// Llama 2's kind: words begin with ▁, characters that it lacks fall back to bytes.
fn llama_2_tokenizer() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let letters = ('a'..='z').map(String::from);
    for piece in ["<unk>".to_string()].into_iter().chain(bytes).chain(letters) {
        vocab.insert(piece, json!(vocab.len()));
    }
    for piece in ["▁", "▁a", "▁w"] {
        vocab.insert(piece.into(), json!(vocab.len()));
    }
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
                  "merges": [["▁", "a"], ["▁", "w"]]},
    });
    Tokenizer::from_bytes("in the manner of Llama 2", json.to_string().as_bytes()).unwrap()
}

/// What a stream gives after `context`, piece by piece, the last piece being the end's.
fn pieces(tokenizer: &Tokenizer, context: &[u32], tokens: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream_after(context);
    let mut pieces: Vec<String> = tokens.iter().map(|t| stream.push(*t).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

fn assert_streams_whole(tokenizer: &Tokenizer, text: &str) {
    let tokens = tokenizer.encode(text).unwrap();
    assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    let pieces = pieces(tokenizer, &[], &tokens);
    assert_eq!(pieces.concat(), text);
    if !text.contains('\u{fffd}') {
        assert!(!pieces.concat().contains('\u{fffd}'));
        assert_eq!(pieces.last().unwrap(), "", "nothing is left for the end of a whole text");
    }
    // From any point on, a stream gives what that point's text lacks.
    for at in 0..tokens.len() {
        let so_far = tokenizer.decode(&tokens[..at]).unwrap();
        if !so_far.contains('\u{fffd}') {
            let rest = self::pieces(tokenizer, &tokens[..at], &tokens[at..]).concat();
            assert_eq!(so_far + &rest, text, "continued after {at} tokens");
        }
    }
}

#[test]
fn every_text_survives_the_round_trip_and_the_stream() {
    for tokenizer in [embedded(), bytes_tokenizer(), llama_2_tokenizer()] {
        TEXTS.iter().for_each(|text| assert_streams_whole(&tokenizer, text));
    }
}

#[test]
fn a_character_appears_with_the_token_that_completes_it() {
    let tokenizer = bytes_tokenizer();
    let tokens = tokenizer.encode("a你好").unwrap();
    assert_eq!(tokens, [0x61, 0xe4, 0xbd, MERGED, 0xa5, 0xbd]);
    assert_eq!(pieces(&tokenizer, &[], &tokens), ["a", "", "", "你", "", "好", ""]);
    // Cut short: what cannot be completed comes out at the end, marked as broken.
    assert_eq!(pieces(&tokenizer, &[], &tokens[..5]), ["a", "", "", "你", "", "\u{fffd}"]);
}

#[test]
fn a_word_after_the_prompt_keeps_its_space() {
    // Decoded alone, Llama 2's "▁w" loses its space: it looks like the start of a text.
    let tokenizer = llama_2_tokenizer();
    let tokens = tokenizer.encode("a w w").unwrap();
    assert_eq!(tokenizer.decode(&tokens[1..]).unwrap(), "w w");
    assert_eq!(pieces(&tokenizer, &tokens[..1], &tokens[1..]), [" w", " w", ""]);
}

#[test]
fn special_tokens_come_and_go_as_asked() {
    let tokenizer = bytes_tokenizer();
    assert_eq!(tokenizer.encode("a").unwrap(), [0x61]);
    assert_eq!(tokenizer.encode_with_special("a").unwrap(), [BEGIN, 0x61]);
    assert_eq!(tokenizer.encode("a<end>").unwrap(), [0x61, END]);
    assert_eq!(tokenizer.decode(&[BEGIN, 0x61, END]).unwrap(), "a");
    assert_eq!(tokenizer.decode_with_special(&[BEGIN, 0x61, END]).unwrap(), "<begin>a<end>");
    assert_eq!(tokenizer.token_id("<end>"), Some(END));
    assert_eq!(tokenizer.token_id("<nothing>"), None);
    // In the middle of a character a special token neither breaks it nor completes it.
    assert_eq!(pieces(&tokenizer, &[], &[0xc3, END, END, END, END, 0xa9]).concat(), "é");
}

/// The longest start of `bytes` that is whole characters, if the rest could become one.
fn whole_characters(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(e) if e.error_len().is_none() => str::from_utf8(&bytes[..e.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

proptest! {
    #[test]
    fn any_text_streams_whole(text in "[a-c你好世é😀🇨🇭 \u{fffd}]{0,40}|.{0,20}") {
        assert_streams_whole(&bytes_tokenizer(), &text);
        assert_streams_whole(&embedded(), &text);
        // Llama 2's rule cannot write a replacement character next to bytes that need one.
        prop_assume!(!text.contains('\u{fffd}') && !text.contains('▁'));
        assert_streams_whole(&llama_2_tokenizer(), &text);
    }

    #[test]
    fn any_tokens_stream_to_their_decoding(
        tokens in proptest::collection::vec(
            prop_oneof![
                0u32..=258,
                Just(MERGED),
                prop::sample::select(vec![0xe4, 0xbd, 0xa0, 0xf0, 0x9f, 0x98, 0x80, 0xef, 0xbf]),
            ],
            0..80,
        ),
    ) {
        let tokenizer = bytes_tokenizer();
        let mut stream = tokenizer.stream_after(&[]);
        let (mut text, mut bytes) = (String::new(), Vec::new());
        for &token in &tokens {
            text += &stream.push(token).unwrap();
            bytes.extend(bytes_of(token));
            // Everything that is certain has been given, and nothing else.
            if let Some(whole) = whole_characters(&bytes).filter(|w| !w.ends_with('\u{fffd}')) {
                prop_assert_eq!(&text, whole);
            }
        }
        text += &stream.finish().unwrap();
        prop_assert_eq!(&text, &tokenizer.decode(&tokens).unwrap());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_tokens_make_a_stream_panic(
        context in proptest::collection::vec(0u32..400, 0..20),
        tokens in proptest::collection::vec(prop_oneof![200u32..300, 0u32..400], 0..60),
    ) {
        pieces(&llama_2_tokenizer(), &context, &tokens);
        pieces(&bytes_tokenizer(), &context, &tokens);
    }
}

#[test]
fn a_stream_of_any_length_stays_cheap() {
    let tokenizer = bytes_tokenizer();
    let length = 100_000;
    // Never a character, always half a character, never anything but special, plain text.
    for token in [0x80, MERGED, END, 0x61] {
        let started = Instant::now();
        let text = pieces(&tokenizer, &[], &vec![token; length]).concat();
        assert_eq!(text, tokenizer.decode(&vec![token; length]).unwrap());
        // Were all tokens decoded again with each, it would be hours.
        assert!(started.elapsed().as_secs() < 60, "token {token}");
    }
}

// --- Bad input ---------------------------------------------------------------------------------

#[test]
fn a_tokenizer_of_another_vocabulary_is_refused_with_both_sizes() {
    let tokenizer = bytes_tokenizer();
    assert_eq!(tokenizer.vocab_size(), 259);
    // As many rows as ids, or padded up to a round number.
    for fits in [259, 264, 272] {
        tokenizer.check_vocab_size(fits).unwrap();
    }
    for another in [0, 256, 258, 320, 2048] {
        assert_eq!(
            tokenizer.check_vocab_size(another).unwrap_err().to_string(),
            format!(
                "vocabulary of bytes is 259 tokens, \
                 expected the model's {another}: they do not belong together"
            )
        );
    }
}

#[test]
fn the_embedded_tokenizer_is_the_embedded_models_own() {
    for model in [TARGET, DRAFT] {
        let config = Config::from_json(model.name, model.config).unwrap();
        embedded().check_vocab_size(config.vocab_size).unwrap();
        assert!(bytes_tokenizer().check_vocab_size(config.vocab_size).is_err());
    }
    for special in ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"] {
        let id = embedded().token_id(special).unwrap();
        assert_eq!(embedded().encode(special).unwrap(), [id]);
    }
}

#[test]
fn files_that_are_no_tokenizers_are_refused_by_name() {
    let message = Tokenizer::from_bytes("that file", b"{\"version\": 3").unwrap_err().to_string();
    assert!(message.starts_with("that file: "), "{message}");
    let message = Tokenizer::from_file("no/such/tokenizer.json").unwrap_err().to_string();
    assert!(message.starts_with("cannot read no/such/tokenizer.json: "), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, "[]").unwrap();
    let message = Tokenizer::from_file(&path).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json: "), "{message}");
}
