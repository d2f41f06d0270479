//! One training text, with the places marked that a model can only know by looking back.

use std::ops::Range;

/// A text and its answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The whole text.
    pub text: String,
    /// The bytes of `text` that can only be known by looking back, answers above all, in ascending order
    /// and without overlap. Training weighs the tokens in them more, since recall does not come by itself.
    pub answers: Vec<Range<usize>>,
}

impl Document {
    /// Appends ordinary text.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends text that answers a question.
    pub fn push_answer(&mut self, answer: &str) {
        let start = self.text.len();
        self.text.push_str(answer);
        self.answers.push(start..self.text.len());
    }

    /// Appends another document, answers and all.
    pub fn append(&mut self, other: Document) {
        let start = self.text.len();
        self.text.push_str(&other.text);
        self.answers.extend(other.answers.into_iter().map(|a| start + a.start..start + a.end));
    }
}
