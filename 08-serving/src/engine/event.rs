//! What comes back on a ticket.

use super::state::seconds;
use naive_decode::Error;
use std::time::Duration;

/// Something that happened to a request, in this order: `Started`, `Prompt` if it was asked for, `Token`s or an
/// `Embedding`, and `Finished` or `Failed` as the last. A request that never came to run may finish or fail at once.
#[derive(Debug)]
pub enum Event {
    /// The prompt is being read.
    Started {
        /// Tokens of it that were known and need not be read.
        cached_tokens: usize,
    },
    /// The prompt's tokens with their log-probabilities, all but the first, which nothing comes before.
    Prompt(Vec<TokenEvent>),
    /// The hidden state of the prompt's last token after the last layer, normed as the head is given it: one number for
    /// each of the model's hidden dimensions. That token has seen all others.
    Embedding(Vec<f32>),
    /// One more token. An end token comes as one too, before `Finished`.
    Token(TokenEvent),
    /// The text is done.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
    /// The text cannot go on. Others are not affected.
    Failed(Error),
}

/// A token and how likely it was.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct TokenEvent {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability, if that was asked for.
    pub logprob: Option<f32>,
    /// Its place among all tokens, the likeliest having 1, and of equals that with the lower id the first; if that was asked for.
    pub rank: Option<usize>,
    /// The likeliest tokens with the same, falling; as many as were asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The last token is one of the request's end tokens.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
    /// Its time was up.
    Deadline,
}

/// What a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of it that were known when it first came to run.
    pub cached_tokens: usize,
    /// Tokens generated, an end token included.
    pub generated_tokens: usize,
    /// Tokens that were guessed and run ahead.
    pub drafted_tokens: usize,
    /// Those of them that came true.
    pub accepted_tokens: usize,
    /// How often it had to give up its place.
    pub preemptions: usize,
    /// From submission to the first pass.
    #[serde(serialize_with = "seconds::serialize")]
    pub queued: Duration,
    /// From submission to the first token (TTFT), if there was one.
    #[serde(serialize_with = "seconds::maybe")]
    pub first_token: Option<Duration>,
    /// From submission to the end.
    #[serde(serialize_with = "seconds::serialize")]
    pub total: Duration,
}
