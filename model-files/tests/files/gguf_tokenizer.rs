//! Tokenizers out of GGUF's metadata, against what their rules say by hand.

use crate::writer::{GgufFile, Meta, text, texts, tiny};
use ladder_tests::watched::most_held_while;
use model_files::Gguf;
use naive_decode::Tokenizer;

/// The tokenizer of a file with this vocabulary: `(token, kind, score)`.
fn tokenizer(model: &str, vocabulary: &[(String, i32, f32)], more: &[(&str, Meta)]) -> Tokenizer {
    read(&with_vocabulary(model, vocabulary, more))
}

fn read(file: &GgufFile) -> Tokenizer {
    let directory = tempfile::tempdir().unwrap();
    let path = file.write(directory.path());
    Gguf::open(&path).unwrap().tokenizer().unwrap()
}

fn with_vocabulary(
    model: &str,
    vocabulary: &[(String, i32, f32)],
    more: &[(&str, Meta)],
) -> GgufFile {
    let mut file = tiny();
    file.set("tokenizer.ggml.model", text(model));
    file.set("tokenizer.ggml.tokens", texts(vocabulary.iter().map(|(token, ..)| token.as_str())));
    let kinds = vocabulary.iter().map(|(_, kind, _)| *kind).collect();
    file.set("tokenizer.ggml.token_type", Meta::I32s(kinds));
    let scores = vocabulary.iter().map(|(.., score)| *score).collect();
    file.set("tokenizer.ggml.scores", Meta::F32s(scores));
    for (key, value) in more {
        file.set(&format!("tokenizer.ggml.{key}"), value.clone());
    }
    file
}

/// Llama 2's kind of vocabulary: unknown, beginning, end, 256 bytes, then pieces by falling score.
fn pieces() -> Vec<(String, i32, f32)> {
    let mut vocabulary =
        vec![("<unk>".into(), 2, 0.0), ("<s>".into(), 3, 0.0), ("</s>".into(), 3, 0.0)];
    vocabulary.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 6, 0.0)));
    let pieces = "▁h el lo ▁hel ▁hello ▁ h e l o ll".split(' ');
    vocabulary.extend(pieces.zip(1..).map(|(piece, i)| (piece.into(), 1, -(i as f32))));
    vocabulary.push(("<tool>".into(), 4, 0.0));
    vocabulary
}

const HELLO: u32 = 263;
const SPACE: u32 = 264;
const ENDS: [(&str, Meta); 2] = [("bos_token_id", Meta::U32(1)), ("eos_token_id", Meta::U32(2))];

#[test]
fn pieces_are_merged_by_score() {
    let tokenizer = tokenizer("llama", &pieces(), &ENDS);
    assert_eq!(tokenizer.encode("hello").unwrap(), [HELLO]);
    // The space inside is as the one before: one piece.
    assert_eq!(tokenizer.encode("hello hello").unwrap(), [HELLO, HELLO]);
    // "el" is better than "ll", which is there too.
    assert_eq!(tokenizer.encode("hel").unwrap(), [262]);
    assert_eq!(tokenizer.encode("hell").unwrap(), [262, 267]);
    assert_eq!(tokenizer.encode_with_special("hello").unwrap(), [1, HELLO]);
    assert_eq!(tokenizer.decode(&[1, HELLO, HELLO, 2]).unwrap(), "hello hello");
}

/// As files of Gemma were before their converter wrote spaces for the sign.
#[test]
fn spaces_side_by_side_are_one_piece_also_where_their_kind_is_another() {
    let mut vocabulary = pieces();
    let sides: Vec<String> = (2..=4).map(|count| "▁".repeat(count)).collect();
    vocabulary.extend(sides.iter().map(|piece| (piece.clone(), 4, -50.0)));
    let tokenizer = tokenizer("llama", &vocabulary, &[("add_space_prefix", Meta::Bool(false))]);
    let id = tokenizer.token_id(&sides[2]).unwrap();
    assert_eq!(tokenizer.encode("    ").unwrap(), [id]);
    assert_eq!(tokenizer.decode(&[id]).unwrap(), "    ");
}

#[test]
fn what_no_piece_can_write_is_bytes() {
    let tokenizer = tokenizer("llama", &pieces(), &ENDS);
    let byte = |byte: u8| 3 + u32::from(byte);
    let tokens = tokenizer.encode("hello é").unwrap();
    assert_eq!(tokens, [HELLO, SPACE, byte(0xC3), byte(0xA9)]);
    assert_eq!(tokenizer.decode(&tokens).unwrap(), "hello é");
    // Streamed, the two bytes come out as the one character that they are.
    let mut stream = tokenizer.stream_after(&[]);
    let pieces: Vec<String> = tokens.iter().map(|&t| stream.push(t).unwrap()).collect();
    assert_eq!(pieces.concat(), "hello é");
    assert!(pieces.iter().all(|piece| !piece.contains('\u{FFFD}')), "{pieces:?}");
}

#[test]
fn tokens_written_out_are_those_tokens() {
    let tokenizer = tokenizer("llama", &pieces(), &ENDS);
    assert_eq!(tokenizer.encode("hello</s>").unwrap(), [HELLO, 2]);
    let tool = tokenizer.token_id("<tool>").unwrap();
    assert_eq!(tokenizer.encode("<tool>").unwrap(), [tool]);
    assert!(!tokenizer.is_silent(tool) && tokenizer.is_silent(2));
}

#[test]
fn a_token_that_ends_turns_is_special_whatever_the_file_calls_it() {
    let tool = pieces().len() as u32 - 1;
    let ends = [ENDS[0].clone(), ("eot_token_id", Meta::U32(tool))];
    let tokenizer = tokenizer("llama", &pieces(), &ends);
    assert_eq!(tokenizer.encode("<tool>").unwrap(), [tool]);
    assert!(tokenizer.is_silent(tool));
}

#[test]
fn a_piece_of_text_is_special_if_the_file_ends_texts_with_it_and_not_if_it_fills_up() {
    let lo = 261;
    for (part, special) in [("eos", true), ("eom", true), ("padding", false), ("bos", false)] {
        let key = format!("{part}_token_id");
        let tokenizer = tokenizer("llama", &pieces(), &[(key.as_str(), Meta::U32(lo))]);
        assert_eq!(tokenizer.is_silent(lo), special, "{part}");
    }
}

#[test]
fn the_file_says_what_stands_around_a_text_and_before_its_first_word() {
    let more = [
        ENDS[0].clone(),
        ENDS[1].clone(),
        ("add_bos_token", Meta::Bool(false)),
        ("add_eos_token", Meta::Bool(true)),
        ("add_space_prefix", Meta::Bool(false)),
    ];
    let tokenizer = tokenizer("llama", &pieces(), &more);
    assert_eq!(tokenizer.encode_with_special("hello").unwrap(), [265, 260, 261, 2]);
    assert_eq!(tokenizer.decode(&[HELLO]).unwrap(), " hello");
}

#[test]
fn the_line_end_behind_phi3s_tokens_is_theirs() {
    let mut vocabulary = pieces();
    vocabulary.push(("<|user|>".into(), 3, 0.0));
    let user = vocabulary.len() as u32 - 1;
    let line_end = 3 + u32::from(b'\n');
    let mut file = with_vocabulary("llama", &vocabulary, &ENDS);
    assert_eq!(read(&file).encode("<|user|>\nhello").unwrap()[..3], [user, SPACE, line_end]);
    file.set("general.architecture", text("phi3"));
    file.set("phi3.attention.head_count", Meta::U32(2));
    let phi3 = read(&file);
    assert_eq!(phi3.encode("<|user|>\nhello").unwrap(), [user, HELLO]);
    // The text's own line ends stay, and so do those behind a beginning.
    assert!(phi3.encode("hello\n<|user|>").unwrap().contains(&line_end));
    assert!(phi3.encode("<s>\nhello").unwrap().contains(&line_end));
}

#[test]
fn a_piece_longer_than_any_is_refused_by_its_number() {
    let mut vocabulary = pieces();
    vocabulary.push(("x".repeat(1_024), 1, -20.0));
    tokenizer("llama", &vocabulary, &ENDS);
    vocabulary.push(("y".repeat(1_025), 1, -21.0));
    let directory = tempfile::tempdir().unwrap();
    let path = with_vocabulary("llama", &vocabulary, &ENDS).write(directory.path());
    let said = Gguf::open(&path).unwrap().tokenizer().unwrap_err().to_string();
    let found = format!("1025 bytes long at {}, expected", vocabulary.len() - 1);
    assert!(said.contains(&found) && said.contains("at most 1024 bytes"), "{said}");
}

/// What is said of a vocabulary of these pieces, and the most memory in bytes that was held on the way.
fn read_in_proportion(
    pieces: impl Iterator<Item = usize>,
) -> (naive_decode::Result<Tokenizer>, usize) {
    let pieces = pieces.map(|length| ("x".repeat(length), 1, -(length as f32)));
    let vocabulary: Vec<_> = pieces.collect();
    let directory = tempfile::tempdir().unwrap();
    let path = with_vocabulary("llama", &vocabulary, &[]).write(directory.path());
    let file = Gguf::open(&path).unwrap();
    most_held_while(|| file.tokenizer())
}

#[test]
fn a_piece_that_is_there_a_thousand_times_is_cut_once() {
    // A hundred bytes of pairs for each byte of the file, if every one were cut.
    let (read, most) = read_in_proportion((1..=64).chain([64; 4_000]));
    assert_eq!(read.unwrap().encode("xx").unwrap(), [1]);
    assert!(most < 4 << 20, "{most} bytes were held");
}

#[test]
fn pieces_that_can_be_cut_everywhere_are_refused_before_they_fill_the_memory() {
    let (read, most) = read_in_proportion(1..=1_024);
    let said = read.unwrap_err().to_string();
    for words in ["tokenizer.ggml.tokens", "cut in two", "at most 67108864 bytes together"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(most < 16 << 20, "{most} bytes were held");
}

/// A byte-level vocabulary of these tokens and a token after them that begins and ends texts, with
/// `merges` and the rule `pre`.
fn byte_level(pre: &str, tokens: &str, merges: &[&str]) -> Tokenizer {
    let mut vocabulary: Vec<(String, i32, f32)> =
        tokens.split(' ').map(|token| (token.into(), 1, 0.0)).collect();
    vocabulary.push(("<|begin|>".into(), 3, 0.0));
    let beginning = vocabulary.len() as u32 - 1;
    let more = [
        ("pre", text(pre)),
        ("merges", texts(merges.iter().copied())),
        ("bos_token_id", Meta::U32(beginning)),
        ("eos_token_id", Meta::U32(beginning)),
    ];
    tokenizer("gpt2", &vocabulary, &more)
}

#[test]
fn rules_differ_in_where_words_end() {
    const TOKENS: &str = "1 2 3 4 12 34 123 a b Ġ Ġa ! ab !a Ċ";
    let merges = ["1 2", "3 4", "12 3", "Ġ a", "a b", "! a"];
    let split = |pre: &str, text: &str| {
        let tokenizer = byte_level(pre, TOKENS, &merges);
        let written = |&token: &u32| tokenizer.decode_with_special(&[token]).unwrap();
        tokenizer.encode(text).unwrap().iter().map(written).collect::<Vec<_>>()
    };
    // Digits: one by one, by threes, or all together.
    assert_eq!(split("smollm", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(split("refact", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(split("qwen2", "1234"), ["1", "2", "3", "4"]);
    assert_eq!(split("llama-bpe", "1234"), ["123", "4"]);
    assert_eq!(split("gpt-2", "1234"), ["12", "34"]);
    assert_eq!(split("default", "1234"), ["123", "4"]);
    // A mark before a word: part of it or not.
    assert_eq!(split("gpt-2", "!a"), ["!", "a"]);
    assert_eq!(split("default", "!a"), ["!", "a"]);
    assert_eq!(split("llama-bpe", "!a"), ["!a"]);
    assert_eq!(split("tekken", "!a"), ["!a"]);
    for pre in ["smollm", "qwen2", "llama-bpe", "gpt-2", "default", "tekken"] {
        assert_eq!(split(pre, "ab a"), ["ab", " a"], "{pre}");
        assert_eq!(split(pre, "a\n"), ["a", "\n"], "{pre}");
    }
}

#[test]
fn some_rules_take_whole_words_and_some_begin_texts() {
    // "abc" is a token that no merges lead to.
    let tokens = |pre: &str| {
        let tokenizer = byte_level(pre, "a b c abc", &[]);
        tokenizer.encode_with_special("abc").unwrap()
    };
    assert_eq!(tokens("smollm"), [0, 1, 2]);
    assert_eq!(tokens("llama-bpe"), [4, 3]);
    assert_eq!(tokens("tekken"), [4, 3]);
}

#[test]
fn qwen_composes_characters() {
    // "é" in one code point is the bytes C3 A9, which the byte alphabet writes "Ã©".
    let composed = |pre: &str| byte_level(pre, "e Ã © Ì ģ", &[]).encode("e\u{301}").unwrap();
    assert_eq!(composed("qwen2"), [1, 2]);
    assert_eq!(composed("smollm"), [0, 3, 4]);
}
