//! What a break-it brought to light.

use crate::error::{Error, Result};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Everything that a break-it found out. Holds no times, so that two runs give the same report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the break-it.
    pub name: &'static str,
    /// Crate that it breaks.
    #[serde(rename = "crate")]
    pub package: &'static str,
    /// Where the same thing went wrong.
    pub cites: &'static [&'static str],
    /// What to watch for.
    pub symptom: &'static str,
    /// The prompt that both continued.
    pub prompt: String,
    /// Prompts that were tried until one showed the fault in its text: this is the last of them,
    /// or the first if none did.
    pub tried: usize,
    /// What correct code wrote.
    pub clean: Text,
    /// What the faulty code wrote.
    pub broken: Text,
    /// First generated token that differs, if any does.
    pub first_difference: Option<usize>,
    /// First generated token whose logits differ in any bit although the text before it is the same.
    pub first_logit_difference: Option<usize>,
    /// How surprised each was by the clean text.
    pub surprise: Surprise,
    /// The check that catches the fault.
    pub guard: Check,
    /// A plausible test that does not.
    pub weaker_test: Option<Check>,
    /// Recall before and after, where it was measured.
    pub recall: Option<Recall>,
}

/// A generated text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Text {
    /// All of it.
    pub text: String,
    /// The part that each token added.
    pub tokens: Vec<String>,
}

/// −log2 of the probability of each token of the clean text, in bits to a hundredth, when that text
/// is fed whatever the model itself would have said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Surprise {
    /// Under correct code.
    pub clean: Vec<f64>,
    /// Under the faulty code.
    pub broken: Vec<f64>,
}

/// A check and what it said; `None` where it passed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What is checked.
    pub what: &'static str,
    /// What it said about correct code.
    pub on_clean: Option<String>,
    /// What it said about the faulty code.
    pub on_broken: Option<String>,
}

/// Questions about facts in the prompt, before and after the fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recall {
    /// What was done to the cache for each question.
    pub edit: String,
    /// Questions about the fact whose cached position was hit.
    pub hit: Score,
    /// Questions about the other facts of the same prompt, same edit.
    pub others: Score,
    /// Right answers to be had by guessing among the values in the prompt: one in this many.
    pub chance_one_in: usize,
    /// How the position was found: each of those around the value was hit in turn. The number is
    /// the offset from the value's own token.
    pub by_position: Vec<(isize, Score)>,
    /// The same at that position, but in one layer only; the number is the layer.
    pub by_layer: Vec<(usize, Score)>,
}

/// Right answers before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Questions asked.
    pub asked: usize,
    /// Right with the cache as it was written.
    pub clean: usize,
    /// Right with the edit.
    pub broken: usize,
}

impl Score {
    /// Counts one question.
    pub fn add(&mut self, right_before: bool, right_after: bool) {
        self.asked += 1;
        self.clean += usize::from(right_before);
        self.broken += usize::from(right_after);
    }
}

impl Report {
    /// Whether the break-it shows what it is there to show: the fault changes something, the guard refuses
    /// the faulty code and nothing else, and the weaker test, if there is one, refuses neither.
    ///
    /// # Errors
    /// Says which of these is not so.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: &str, expected: &str| {
            Err(Error::invalid(format!("{what} of {}", self.name), found, expected))
        };
        if self.first_logit_difference.or(self.first_difference).is_none() {
            return refuse("logits and text", "the same", "different from correct code's");
        }
        if let Some(said) = &self.guard.on_clean {
            return refuse("guard", said, "nothing against correct code");
        }
        if self.guard.on_broken.is_none() {
            return refuse("guard", "nothing", "a word against the faulty code");
        }
        let weaker = self.weaker_test.as_ref();
        match weaker.and_then(|test| test.on_clean.as_ref().or(test.on_broken.as_ref())) {
            None => Ok(()),
            Some(said) => refuse("weaker test", said, "nothing: it is too weak to see the fault"),
        }
    }

    /// The report as JSON: an object's fields on lines of their own, a list on one line.
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, ListsOnOneLine::default());
        self.serialize(&mut serializer).expect("a report has nothing that JSON cannot hold");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }
}

/// A text of a hundred tokens on a hundred lines would bury everything else.
#[derive(Default)]
struct ListsOnOneLine(PrettyFormatter<'static>);

impl Formatter for ListsOnOneLine {
    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}
