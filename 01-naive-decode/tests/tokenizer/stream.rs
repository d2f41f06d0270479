//! Streams of tokens: what comes out, and when.

use crate::samples::*;
use embedded_models::TARGET;
use naive_decode::Tokenizer;
use proptest::prelude::*;
use std::borrow::Cow;
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

/// What a stream gives after `context`, piece by piece, the last piece being the end's.
pub(crate) fn pieces(tokenizer: &Tokenizer, context: &[u32], tokens: &[u32]) -> Vec<String> {
    let mut stream = tokenizer.stream_after(context);
    let mut pieces: Vec<String> = tokens.iter().map(|t| stream.push(*t).unwrap()).collect();
    pieces.push(stream.finish());
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

/// Whether some bytes more would make these one character. (Second bytes have ranges of their own;
/// these five have one of each.)
fn begins_character(bytes: &[u8]) -> bool {
    const MORE: [u8; 5] = [0x80, 0x90, 0x9f, 0xa0, 0xbf];
    let is_one = |b: &[u8]| str::from_utf8(b).is_ok_and(|text| text.chars().count() == 1);
    let with = |more: &[u8]| is_one(&[bytes, more].concat());
    MORE.iter().any(|&a| {
        with(&[a]) || MORE.iter().any(|&b| with(&[a, b]) || MORE.iter().any(|&c| with(&[a, b, c])))
    })
}

/// The text of `bytes` that no further byte can change.
fn certain(bytes: &[u8]) -> Cow<'_, str> {
    let tail = (1..=bytes.len().min(3)).find(|n| begins_character(&bytes[bytes.len() - n..]));
    String::from_utf8_lossy(&bytes[..bytes.len() - tail.unwrap_or(0)])
}

/// After each token the stream has given all that is certain, and nothing else; in the end, all.
fn assert_gives_what_is_certain(
    tokenizer: &Tokenizer,
    tokens: &[u32],
    bytes_of: impl Fn(u32) -> Vec<u8>,
) -> Result<(), TestCaseError> {
    // In the middle of a text, where no space is lost.
    let mut stream = tokenizer.stream_after(&tokenizer.encode("a").unwrap());
    let (mut text, mut bytes) = (String::new(), Vec::new());
    for &token in tokens {
        text += &stream.push(token).unwrap();
        bytes.extend(bytes_of(token));
        prop_assert_eq!(&text, &certain(&bytes));
    }
    text += &stream.finish();
    prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    Ok(())
}

/// All tokens at once, streamed, and streamed after any beginning: one text.
fn assert_streams_as_decoded(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<(), TestCaseError> {
    let whole = tokenizer.decode(tokens).unwrap();
    prop_assert_eq!(pieces(tokenizer, &[], tokens).concat(), &whole[..]);
    for at in 0..=tokens.len() {
        let mut first = tokenizer.stream_after(&[]);
        let before: String = tokens[..at].iter().map(|&t| first.push(t).unwrap()).collect();
        let after = pieces(tokenizer, &tokens[..at], &tokens[at..]).concat();
        prop_assert_eq!(before + &after, &whole[..], "after {} tokens", at);
    }
    Ok(())
}

/// Bytes of characters in two, three and four bytes, with the byte `zero` as token `first`.
fn scripts(first: u32) -> impl Strategy<Value = Vec<u32>> {
    let text = prop::sample::select(TEXTS.concat().chars().collect::<Vec<char>>());
    let letters = prop::collection::vec(text, 0..12);
    let bytes = letters.prop_map(|letters| letters.into_iter().collect::<String>().into_bytes());
    let cut = (bytes, any::<prop::sample::Index>(), any::<prop::sample::Index>());
    // Whole texts, and with one byte missing.
    cut.prop_map(move |(mut bytes, which, whether)| {
        if !bytes.is_empty() && whether.index(2) == 0 {
            bytes.remove(which.index(bytes.len()));
        }
        bytes.into_iter().map(|byte| first + u32::from(byte)).collect()
    })
}

proptest! {
    #[test]
    fn any_text_streams_whole(text in "[a-c你好世é😀🇨🇭 \u{fffd}]{0,40}|.{0,20}") {
        assert_streams_whole(&bytes_tokenizer(), &text);
        assert_streams_whole(&embedded(), &text);
        prop_assume!(!text.contains('▁'));
        assert_streams_whole(&llama_2_tokenizer(), &text);
    }

    #[test]
    fn everything_certain_is_given_of_letters(
        tokens in prop_oneof![
            prop::collection::vec(prop_oneof![0u32..=258, Just(MERGED)], 0..40),
            scripts(0),
        ],
    ) {
        assert_gives_what_is_certain(&bytes_tokenizer(), &tokens, bytes_of)?;
    }

    #[test]
    fn everything_certain_is_given_of_pieces(
        tokens in prop_oneof![
            prop::collection::vec(prop_oneof![0u32..=290, 129u32..=256], 0..40),
            scripts(1),
        ],
    ) {
        assert_gives_what_is_certain(&llama_2_tokenizer(), &tokens, bytes_of_piece)?;
    }

    #[test]
    fn any_tokens_stream_to_their_decoding(
        tokens in prop::collection::vec(prop_oneof![0u32..300, 120u32..260, 0u32..5000], 0..40),
    ) {
        for tokenizer in [llama_2_tokenizer(), newer_llama_2_tokenizer(), bytes_tokenizer()] {
            assert_streams_as_decoded(&tokenizer, &tokens)?;
        }
    }
}

/// The library's own decoding of all tokens at once: what ours must be wherever that is valid. (For
/// Llama 2 the library gives up a whole run of bytes for one that is broken.)
#[test]
fn decoding_is_the_librarys_where_that_is_text() {
    let parsed = |json: &str| json.parse::<tokenizers::Tokenizer>().unwrap();
    let library = parsed(str::from_utf8(TARGET.tokenizer).unwrap());
    let ours = embedded();
    let mut runner = proptest::test_runner::TestRunner::default();
    let tokens = prop::collection::vec(0..ours.vocab_size() as u32 + 3, 0..40);
    let same = runner.run(&tokens, |tokens| {
        prop_assert_eq!(ours.decode(&tokens).unwrap(), library.decode(&tokens, true).unwrap());
        let written = library.decode(&tokens, false).unwrap();
        prop_assert_eq!(ours.decode_with_special(&tokens).unwrap(), written);
        assert_streams_as_decoded(&ours, &tokens)
    });
    same.unwrap();
    let (library, ours) = (llama_2_json(), llama_2_tokenizer());
    let library = parsed(&library.to_string());
    let tokens = prop::collection::vec(prop_oneof![0u32..290, 257u32..290], 0..40);
    let same = runner.run(&tokens, |tokens| {
        let theirs = library.decode(&tokens, true).unwrap();
        if !theirs.contains('\u{fffd}') {
            prop_assert_eq!(ours.decode(&tokens).unwrap(), theirs);
        }
        Ok(())
    });
    same.unwrap();
}

#[test]
fn what_a_broken_character_cuts_short_is_given_at_once() {
    // Half of 你, then all of 好: the half is known to be broken when 好 begins.
    let tokenizer = llama_2_tokenizer();
    let byte = |byte: u8| 1 + u32::from(byte);
    let tokens = [0xe4, 0xbd, 0xe5, 0xa5, 0xbd].map(byte);
    assert_eq!(pieces(&tokenizer, &[], &tokens), ["", "", "\u{fffd}", "", "好", ""]);
    // A prompt that ends in half a character: the other half completes it.
    assert_eq!(pieces(&tokenizer, &tokens[2..4], &tokens[4..]), ["好", ""]);
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
