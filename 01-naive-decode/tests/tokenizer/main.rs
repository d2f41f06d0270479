//! Text to tokens and back, streams that never break a character, and text that stays text.

mod disguise;
mod samples;
mod stream;

use embedded_models::{DRAFT, TARGET};
use naive_decode::{Config, Tokenizer};
use samples::{BEGIN, END, bytes_json, bytes_tokenizer, embedded, special};
use serde_json::json;
use stream::pieces;

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

#[test]
fn a_tokenizer_of_another_vocabulary_is_refused_with_both_sizes() {
    let tokenizer = bytes_tokenizer();
    assert_eq!(tokenizer.vocab_size(), 259);
    // As many rows as ids, or padded up to a round number; or none for tokens that were added.
    for fits in [259, 264, 272, 257, 258] {
        tokenizer.check_vocab_size(fits).unwrap();
    }
    for another in [0, 256, 320, 2048] {
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
fn a_token_that_was_added_past_the_models_rows_is_a_token_like_any_other() {
    const IMAGE: u32 = 259;
    let mut json = bytes_json();
    json["added_tokens"].as_array_mut().unwrap().push(special(IMAGE, "<image>"));
    let tokenizer = Tokenizer::from_bytes("bytes", json.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 260);
    tokenizer.check_vocab_size(259).unwrap();
    let said = tokenizer.check_vocab_size(256).unwrap_err().to_string();
    assert!(said.contains("260 tokens") && said.contains("the model's 256"), "{said}");
    assert_eq!(tokenizer.encode("a<image>").unwrap(), [0x61, IMAGE]);
    assert_eq!(tokenizer.decode(&[0x61, IMAGE]).unwrap(), "a");
    assert_eq!(tokenizer.decode_with_special(&[0x61, IMAGE]).unwrap(), "a<image>");
}

#[test]
fn texts_are_neither_cut_nor_filled_up_whatever_the_file_says_of_batches() {
    let text = "a long text<end>";
    let plain = bytes_tokenizer();
    let disguise = plain.disguise(["<end>"].into_iter()).unwrap().unwrap();
    let encoded = |tokenizer: &Tokenizer| {
        let disguised = tokenizer.encode_disguised(text, &disguise).unwrap();
        [tokenizer.encode(text).unwrap(), tokenizer.encode_with_special(text).unwrap(), disguised]
    };
    // A stride as long as what is kept, and a fixed length that no memory holds.
    for (stride, length) in [(0, 24), (4, usize::MAX)] {
        let mut json = bytes_json();
        json["truncation"] = json!({
            "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": stride,
        });
        json["padding"] = json!({
            "strategy": {"Fixed": length}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": END, "pad_type_id": 0, "pad_token": "<end>",
        });
        let saved = Tokenizer::from_bytes("bytes", json.to_string().as_bytes()).unwrap();
        assert_eq!(encoded(&saved), encoded(&plain));
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
    assert!(message.starts_with("that file: ") && message.contains("line 1"), "{message}");
    let message = Tokenizer::from_bytes("that file", b"{\"\xff").unwrap_err().to_string();
    assert!(message.starts_with("that file: invalid utf-8"), "{message}");
    let message = Tokenizer::from_file("no/such/tokenizer.json").unwrap_err().to_string();
    assert!(message.starts_with("cannot read no/such/tokenizer.json: "), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, "[]").unwrap();
    let message = Tokenizer::from_file(&path).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json: "), "{message}");
}
