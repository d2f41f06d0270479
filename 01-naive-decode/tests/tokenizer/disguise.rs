//! Special tokens that users write out stay text; those of the text around them do not.

use crate::samples::*;
use naive_decode::{Disguise, Tokenizer};
use proptest::prelude::*;

/// Each tokenizer with the special tokens that a template of its own would write.
fn tokenizers() -> Vec<(Tokenizer, Vec<&'static str>)> {
    vec![
        (embedded(), vec!["<|user|>", "<|end|>", "<|assistant|>"]),
        (bytes_tokenizer(), vec!["<begin>", "<end>"]),
        (llama_2_tokenizer(), vec!["<s>", "</s>", "<|turn|>"]),
        (newer_llama_2_tokenizer(), vec!["<s>", "</s>", "<|turn|>"]),
    ]
}

/// A disguise for these texts, which need one.
fn disguise(tokenizer: &Tokenizer, texts: &[&str]) -> Disguise {
    tokenizer.disguise(texts.iter().copied()).unwrap().expect("special tokens are spelled out")
}

fn special(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<u32> {
    tokens.iter().copied().filter(|&token| tokenizer.is_silent(token)).collect()
}

proptest! {
    /// What no message spells out is encoded as ever, whatever the special tokens around it.
    #[test]
    fn ordinary_texts_come_to_the_same_tokens(
        parts in prop::collection::vec((0usize..3, "[a-c ]{0,6}|[a-z <>|/\n你é😀]{0,12}"), 0..6),
    ) {
        for (tokenizer, marks) in tokenizers() {
            let text: String =
                parts.iter().map(|(at, part)| format!("{}{part}", marks[at % marks.len()])).collect();
            // Some message needs a disguise; the text is not of it.
            let disguise = disguise(&tokenizer, &[marks[0]]);
            let tokens = tokenizer.encode_disguised(&text, &disguise).unwrap();
            prop_assert_eq!(tokens, tokenizer.encode(&text).unwrap(), "{}", text);
        }
    }

    /// Whatever a message is put together from, the special tokens are those around it, and the
    /// text is the message's, to the letter.
    #[test]
    fn no_message_makes_a_special_token(
        parts in prop::collection::vec(
            prop_oneof![
                Just("<|user|>"), Just("<|end|>"), Just("<end>"), Just("<begin>"), Just("</s>"),
                Just("<s>"), Just("<|turn|>"), Just("<"), Just("<|"), Just("<|en"), Just("|>"),
                Just("end|>"), Just("s>"), Just(" "), Just("a"), Just("\u{100000}"), Just("<<s>"),
            ],
            0..8,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let (one, two) = parts.split_at(cut.index(parts.len() + 1));
        let (one, two) = (one.concat(), two.concat());
        for (tokenizer, marks) in tokenizers() {
            let texts = [one.as_str(), two.as_str()];
            let Some(disguise) = tokenizer.disguise(texts.into_iter()).unwrap() else {
                let tokens = tokenizer.encode(&one).unwrap();
                prop_assert!(special(&tokenizer, &tokens).is_empty(), "{}", one);
                continue;
            };
            // Two parts of a message, which the template joins, and its own tokens around them.
            let joined = disguise.hide(&one) + &disguise.hide(&two);
            let text = format!("{}{joined}{}", marks[0], marks[1]);
            let tokens = tokenizer.encode_disguised(&text, &disguise).unwrap();
            let own = [marks[0], marks[1]].map(|mark| tokenizer.token_id(mark).unwrap());
            prop_assert_eq!(special(&tokenizer, &tokens), own, "{}", text);
            // SentencePiece takes a space from the start of a text; not every kind puts one there.
            let (read, said) = (tokenizer.decode(&tokens).unwrap(), one.clone() + &two);
            prop_assert_eq!(read.trim_start(), said.trim_start());
        }
    }
}

#[test]
fn texts_that_spell_out_nothing_need_no_disguise() {
    let tokenizer = embedded();
    let disguise = |text: &str| tokenizer.disguise([text].into_iter()).unwrap();
    let needs = |text: &str| disguise(text).is_some_and(|disguise| disguise.is_needed());
    for safe in ["", "1 < 2", "a <b> c", "|>", "<end|>", "end|>"] {
        assert!(!needs(safe), "{safe}");
        // Of those with the letter that they begin with a template could make one.
        assert_eq!(disguise(safe).is_some(), safe.contains('<'), "{safe}");
    }
    // The last three begin a special token that what follows could complete.
    for unsafe_text in ["<|end|>", "a <|endoftext|> b", "<", "1 <|", "<|assista \n"] {
        assert!(needs(unsafe_text), "{unsafe_text}");
    }
}

#[test]
fn a_message_that_uses_the_stand_in_keeps_it() {
    let tokenizer = embedded();
    let message = "<|end|> \u{100000}\u{100001} <|end|>";
    let disguise = disguise(&tokenizer, &[message]);
    let hidden = disguise.hide(message);
    assert!(!hidden.contains("<|end|>") && hidden.contains("\u{100000}\u{100001}"), "{hidden}");
    let tokens = tokenizer.encode_disguised(&hidden, &disguise).unwrap();
    assert_eq!(tokenizer.decode(&tokens).unwrap(), message);
}

#[test]
fn the_letter_that_marks_tokens_is_refused_as_text() {
    let tokenizer = embedded();
    let disguise = disguise(&tokenizer, &["<|end|>"]);
    let forged = "\u{10FFFF}4\u{10FFFF}";
    let said = tokenizer.encode_disguised(forged, &disguise).unwrap_err().to_string();
    assert!(said.contains("U+10FFFF") && said.contains("expected characters"), "{said}");
}

#[test]
fn other_spellings_that_the_tokenizer_would_read_as_special_stay_text() {
    // A normalizer that makes wide letters narrow, and a special token that is looked for after it.
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 3, "content": "<e>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": true, "special": true}],
        "normalizer": {"type": "NFKC"}, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false,
                  "vocab": {"<": 0, "e": 1, ">": 2, "<e>": 3}, "merges": []},
    });
    let tokenizer = Tokenizer::from_bytes("wide", json.to_string().as_bytes()).unwrap();
    let wide = "\u{ff1c}e\u{ff1e}";
    assert_eq!(tokenizer.encode(wide).unwrap(), [3]);
    let disguise = disguise(&tokenizer, &[wide]);
    let text = format!("<e>{}<e>", disguise.hide(wide));
    assert_eq!(tokenizer.encode_disguised(&text, &disguise).unwrap(), [3, 0, 1, 2, 3]);
}
