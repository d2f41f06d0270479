//! What a step did, for traces.

use super::state::{BlockCounts, seconds};
use std::time::Duration;

/// What a span's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A chunk of a prompt, or of a text that is read again.
    Prefill,
    /// A text's last token.
    Decode,
    /// A text's last token, and guesses behind it.
    Verify,
}

/// One request's part of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct SpanRecord {
    /// Whose.
    pub id: u64,
    /// What.
    pub kind: Kind,
    /// Rows, guesses included.
    pub rows: usize,
    /// Tokens that came of it.
    pub tokens: usize,
}

/// One pass.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PassRecord {
    /// When it began, from the engine's start.
    #[serde(serialize_with = "seconds::serialize")]
    pub start: Duration,
    /// How long it took, from the decision to the last token.
    #[serde(serialize_with = "seconds::serialize")]
    pub duration: Duration,
    /// Who came in.
    pub admitted: Vec<u64>,
    /// Who gave up its place.
    pub preempted: Vec<u64>,
    /// Whose rows ran.
    pub spans: Vec<SpanRecord>,
    /// The pool afterwards.
    pub blocks: BlockCounts,
}
