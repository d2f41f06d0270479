//! A stop string is looked for in each event by itself.

use super::pieces::{Sent, makes_up};
use crate::text::Stops;
use naive_decode::break_it::{Bench, BreakIt, Side};
use naive_decode::{Result, Tokenizer};

/// An answer, a stop string that its tokens cut in two, and one that they do not.
const ANSWER: &str = "The fox ran home. END of the tale, and of the day.";
const CUT: &str = "home. END";
const WHOLE: &str = ".";

// ANCHOR: fault
/// The pieces of an answer until it ends. On the clean side the end of the text is held back as long as a stop
/// string may begin there. On the broken side each piece is looked at when it comes, and sent.
fn pieces(tokenizer: &Tokenizer, answer: &[u32], stop: &str, side: Side) -> Result<Vec<String>> {
    let fresh = || Stops::new(vec![stop.to_owned()], false);
    let (mut stream, mut stops) = (tokenizer.stream_after(&[]), fresh());
    let mut pieces = Vec::new();
    for &token in answer {
        let cut = stops.push(&stream.push(token)?);
        let mut text = cut.text;
        if side == Side::Broken && cut.stop.is_none() {
            text += &std::mem::replace(&mut stops, fresh()).finish();
        }
        pieces.push(text);
        if cut.stop.is_some() {
            return Ok(pieces);
        }
    }
    if let Some(last) = pieces.last_mut() {
        *last += &stops.push(&stream.finish()).text;
        *last += &stops.finish();
    }
    Ok(pieces)
}
// ANCHOR_END: fault

/// A stop string, split over events.
pub const SPLIT_STOP: BreakIt = BreakIt {
    name: "split-stop",
    package: "serving",
    cites: &["vllm-project/vllm#3574"],
    symptom: "a stop string ends some answers, and others go on right through it",
    guard: "an answer ends before a stop string that its tokens cut in two",
    weaker_test: Some("an answer ends before a stop string that is one of its tokens"),
    run: |bench| {
        let prompt = bench.tokenizer.encode("<|user|>\nTell me a tale.<|end|>\n<|assistant|>\n")?;
        let answer = bench.tokenizer.encode(ANSWER)?;
        let sent = |answer: &[u32], side| pieces(&bench.tokenizer, answer, CUT, side);
        Sent {
            about: &SPLIT_STOP,
            prompt: &prompt,
            answer: &answer,
            pieces: &sent,
            guard: &|side| ends_before(bench, CUT, side),
            weaker_test: &|side| ends_before(bench, WHOLE, side),
        }
        .report(bench)
    },
};

fn ends_before(bench: &Bench, stop: &str, side: Side) -> Result<()> {
    let answer = bench.tokenizer.encode(ANSWER)?;
    let expected = ANSWER.split(stop).next().unwrap_or(ANSWER);
    makes_up(&pieces(&bench.tokenizer, &answer, stop, side)?, expected)
}
