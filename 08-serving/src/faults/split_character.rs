//! Each event is made of its own token's bytes.

use super::pieces::{Sent, makes_up};
use crate::text::{Style, Told, Writer};
use naive_decode::break_it::{Bench, BreakIt, Side};
use naive_decode::{Result, Tokenizer};

/// An answer whose letters take several tokens each, and one whose letters do not.
const WIDE: &str = "The fox 🦊 met 狐 at a café.";
const NARROW: &str = "The fox met another at the market.";

// ANCHOR: fault
/// The pieces of an answer. On the clean side a writer holds back what is no whole character yet. On the broken
/// side every event has a writer of its own: the obvious way, as nothing needs to be kept from one to the next.
fn pieces(tokenizer: &Tokenizer, answer: &[u32], side: Side) -> Result<Vec<String>> {
    let style = Style::default();
    let fresh = || Writer::new(tokenizer, &[], &style);
    let mut writer = fresh();
    let mut pieces = Vec::new();
    for &token in answer {
        let told = Told { token, logprob: None, top: Vec::new(), offset: 0 };
        let mut text = writer.write(told)?.text;
        if side == Side::Broken {
            text += &std::mem::replace(&mut writer, fresh()).finish().text;
        }
        pieces.push(text);
    }
    if let Some(last) = pieces.last_mut() {
        *last += &writer.finish().text;
    }
    Ok(pieces)
}
// ANCHOR_END: fault

/// A character of several bytes, split over events.
pub const SPLIT_CHARACTER: BreakIt = BreakIt {
    name: "split-character",
    package: "serving",
    cites: &["exo-explore/exo#1691", "waybarrios/vllm-mlx#109"],
    symptom: "English streams well; an emoji or a Chinese word comes as �, and only while streaming",
    guard: "the events of an answer with wide letters make up the text of all its tokens",
    weaker_test: Some(
        "the events of an answer in plain English make up the text of all its tokens",
    ),
    run: |bench| {
        let prompt = bench.tokenizer.encode("<|user|>\nWho met?<|end|>\n<|assistant|>\n")?;
        let answer = bench.tokenizer.encode(WIDE)?;
        let sent = |answer: &[u32], side| pieces(&bench.tokenizer, answer, side);
        Sent {
            about: &SPLIT_CHARACTER,
            prompt: &prompt,
            answer: &answer,
            pieces: &sent,
            guard: &|side| is_whole(bench, WIDE, side),
            weaker_test: &|side| is_whole(bench, NARROW, side),
        }
        .report(bench)
    },
};

fn is_whole(bench: &Bench, text: &str, side: Side) -> Result<()> {
    let answer = bench.tokenizer.encode(text)?;
    makes_up(&pieces(&bench.tokenizer, &answer, side)?, &bench.tokenizer.decode(&answer)?)
}
