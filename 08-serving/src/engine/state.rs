//! What the engine looks like from outside: a snapshot, for metrics and for pictures.

use super::event::FinishReason;
use std::time::Duration;

/// The engine between two passes.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct EngineState {
    /// Requests that are in the batch.
    pub running: usize,
    /// Requests that wait for a place, those that were preempted included.
    pub waiting: usize,
    /// Requests that are held back because nobody reads their events.
    pub stalled: usize,
    /// Requests that passes go on without until it is known what their form allows next.
    pub paused: usize,
    /// Requests that wait for what the file of keys and values has of their text.
    pub fetching: usize,
    /// Whether no more requests are taken.
    pub draining: bool,
    /// Blocks of the pool.
    pub blocks: BlockCounts,
    /// What each block is used for, by number; empty if there are too many to draw.
    pub cells: Vec<Cell>,
    /// The requests, running ones first, in order of rank.
    pub requests: Vec<RequestRow>,
    /// The prefix tree, each node before those below it; the first few hundred.
    pub prefixes: Vec<PrefixRow>,
    /// The last passes, a hundred or so, oldest first.
    pub passes: Vec<PassRow>,
    /// What has happened since the start.
    pub counters: Counters,
}

/// Blocks of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct BlockCounts {
    /// All.
    pub total: usize,
    /// Tokens of one.
    pub tokens: usize,
    /// Those that hold nothing.
    pub free: usize,
    /// Those that only the prefix cache holds: they go when others are needed.
    pub cached: usize,
    /// Those that a request and others hold, or a request and the prefix cache.
    pub shared: usize,
}

impl BlockCounts {
    /// Blocks that requests hold, shared or not.
    pub fn used(&self) -> usize {
        self.total - self.free - self.cached
    }
}

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Nothing.
    Free,
    /// A prefix that nobody uses at the moment.
    Cached,
    /// One request.
    Used,
    /// A request and others, or a request and the prefix cache.
    Shared,
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It waits for a place.
    Waiting,
    /// It had one, and waits for another.
    Preempted,
    /// Its prompt is being read, or read again.
    Prefill,
    /// It is being written.
    Decode,
    /// Nobody reads its events.
    Stalled,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RequestRow {
    /// Its number; they rise in order of submission.
    pub id: u64,
    /// How far it is.
    pub stage: Stage,
    /// Its priority.
    pub priority: i32,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens of it that were known when it came to run.
    pub cached_tokens: usize,
    /// Tokens generated so far.
    pub generated_tokens: usize,
    /// Most tokens that it may generate.
    pub max_tokens: usize,
    /// Tokens in the pool.
    pub held_tokens: usize,
    /// Its blocks in the pool, by number.
    pub blocks: Vec<u32>,
    /// How often it was preempted.
    pub preemptions: usize,
}

/// A node of the prefix tree.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PrefixRow {
    /// Nodes above it.
    pub depth: usize,
    /// Tokens on its edge.
    pub tokens: usize,
    /// Blocks that they lie in.
    pub blocks: Vec<u32>,
    /// When it was last used, counted in lookups and insertions that came to a tree.
    pub used: u64,
}

/// Times are written as seconds.
pub(super) mod seconds {
    use serde::{Serialize, Serializer};
    use std::time::Duration;

    pub(in crate::engine) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    /// The same where there may be none.
    pub(in crate::engine) fn maybe<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs_f64()).serialize(serializer)
    }
}

/// One pass, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PassRow {
    /// When it began, from the engine's start.
    #[serde(serialize_with = "seconds::serialize")]
    pub start: Duration,
    /// How long it took, scheduling and sampling included.
    #[serde(serialize_with = "seconds::serialize")]
    pub duration: Duration,
    /// Rows of prompts.
    pub prefill_rows: usize,
    /// Rows of texts' last tokens.
    pub decode_rows: usize,
    /// Rows of guessed tokens.
    pub draft_rows: usize,
    /// Tokens that came of it, all requests together.
    pub tokens: usize,
    /// Requests that came in before it.
    pub admitted: usize,
    /// Requests that gave up their place for it.
    pub preempted: usize,
}

/// What has happened since the start. Each only rises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Passes.
    pub passes: u64,
    /// Rows that went through the model.
    pub rows: u64,
    /// Requests taken.
    pub submitted: u64,
    /// Requests that ended with an end token, or with what their reader took for the end.
    pub stopped: u64,
    /// Requests that ended with their length.
    pub full_length: u64,
    /// Requests whose time was up.
    pub expired: u64,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Those of them whose blocks were parked and not given up.
    pub parked: u64,
    /// Prompt tokens of requests that have come to run: run or found, once.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Those that were found in the pool.
    pub prefix_hits: u64,
    /// Prompt tokens that the pool did not know and tiers were asked for.
    pub tier_queries: u64,
    /// Those that came back from one.
    pub tier_hits: u64,
    /// Prompt tokens that another engine has read for this one.
    pub brought_tokens: u64,
    /// Bytes of the blocks of those tokens. What came and could not be used is not counted.
    pub brought_bytes: u64,
    /// Bytes of blocks that went to other engines.
    pub lent_bytes: u64,
    /// Guesses that were run: one for each request and pass.
    pub drafts: u64,
    /// Tokens guessed and run.
    pub drafted_tokens: u64,
    /// Those that came true.
    pub accepted_tokens: u64,
}

impl Counters {
    /// One more text has ended.
    pub(super) fn finished(&mut self, reason: FinishReason) {
        *match reason {
            FinishReason::Stop => &mut self.stopped,
            FinishReason::Length => &mut self.full_length,
            FinishReason::Deadline => &mut self.expired,
        } += 1;
    }
}
