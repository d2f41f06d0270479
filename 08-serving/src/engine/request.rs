//! What a request asks of the engine, and why it may be refused.

use super::rules::Rules;
use naive_decode::{Error, Sampling};
use prefix_radix::Salt;
use std::sync::Arc;
use std::time::Instant;

/// One text to continue.
///
/// [`EngineRequest::new`] fills in the plainest values; set what differs.
pub struct EngineRequest {
    /// The tokens to continue: at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen. The random numbers start at its seed, whoever else is in the batch.
    pub sampling: Sampling,
    /// Most tokens to generate. With 0 the prompt is read if its log-probabilities are asked for or it is to be read
    /// and no more, and that is all.
    pub max_tokens: usize,
    /// Tokens before which no end token is chosen, unless `constraint` and `rules` leave nothing else.
    pub min_tokens: usize,
    /// Tokens that end the text, those of the model and those of the caller (`stop_token_ids`); none to
    /// write on until `max_tokens` (`ignore_eos`).
    pub end_tokens: Vec<u32>,
    /// Higher goes first. One level is worth a fixed time of waiting (see [`crate::engine::policy`]), so that
    /// whoever waits long enough is served. Levels beyond ±100 count as ±100.
    pub priority: i32,
    /// When the text ends, however far it is.
    pub deadline: Option<Instant>,
    /// With whom prefixes are shared.
    pub salt: Salt,
    /// With each token, its log-probability and those of the so many likeliest, of the distribution that
    /// the model gives, before temperature, filters and masks. `Some(0)`: of the chosen token only.
    pub logprobs: Option<usize>,
    /// The same for the tokens of the prompt, as [`Event::Prompt`](super::Event::Prompt). The whole prompt
    /// then runs through the model, known or not.
    pub prompt_logprobs: Option<usize>,
    /// Give the prompt's embedding as [`Event::Embedding`](super::Event::Embedding), and write nothing; with
    /// `max_tokens` 0.
    pub embedding: bool,
    /// Read the prompt, so that its keys and values are there for others, and write nothing; with `max_tokens` 0.
    pub reads_only: bool,
    /// What the text must conform to.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Tokens that it is not to have.
    pub rules: Option<Arc<Rules>>,
}

impl EngineRequest {
    /// Asks for a prompt's embedding, for everybody to share.
    pub fn embedding(prompt: Vec<u32>) -> Self {
        EngineRequest { embedding: true, ..EngineRequest::new(prompt, 0) }
    }

    /// Has a prompt read, for [`EngineHandle::blocks_of`](super::EngineHandle::blocks_of).
    pub fn reading(prompt: Vec<u32>) -> Self {
        EngineRequest { reads_only: true, ..EngineRequest::new(prompt, 0) }
    }

    /// Continues a prompt greedily for this many tokens, for everybody to share.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        EngineRequest {
            prompt,
            sampling: Sampling::default(),
            max_tokens,
            min_tokens: 0,
            end_tokens: Vec::new(),
            priority: 0,
            deadline: None,
            salt: Salt::NONE,
            logprobs: None,
            prompt_logprobs: None,
            embedding: false,
            reads_only: false,
            constraint: None,
            rules: None,
        }
    }
}

/// What a text must conform to, token by token: a grammar, a schema.
///
/// It is asked while the model runs, in threads that are there for this. One that takes longer than a pass delays its own answer,
/// and others by a quarter of the pass at most.
pub trait Constraint: Send {
    /// The tokens that may come next; none if all may. Called once before each token.
    ///
    /// # Errors
    /// If the constraint cannot go on. The request then fails; others do not notice.
    fn mask(&mut self) -> Result<Option<TokenSet>, Error>;

    /// The token that was chosen, unless the text ends with it.
    ///
    /// # Errors
    /// If the text does not conform with it.
    fn accept(&mut self, token: u32) -> Result<(), Error>;
}

/// Some of a vocabulary's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSet {
    /// Bit `i % 32` of word `i / 32`: whether token `i` is in it.
    words: Vec<u32>,
}

impl TokenSet {
    /// None of this many tokens.
    pub fn none(vocabulary: usize) -> Self {
        TokenSet { words: vec![0; vocabulary.div_ceil(32)] }
    }

    /// From words of 32 tokens each, the lowest token in the lowest bit. Tokens past the last word are out.
    pub fn from_words(words: Vec<u32>) -> Self {
        TokenSet { words }
    }

    /// Takes a token in.
    ///
    /// # Panics
    /// If it is past the vocabulary.
    pub fn insert(&mut self, token: u32) {
        self.words[token as usize / 32] |= 1 << (token % 32);
    }

    /// Leaves no score to tokens that are not in it, by scores `[vocab]`.
    pub(super) fn keep(&self, scores: &mut [f32]) {
        for (token, score) in (0..).zip(scores) {
            if !self.contains(token) {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    /// Whether a token is in it.
    pub fn contains(&self, token: u32) -> bool {
        let word = self.words.get(token as usize / 32);
        word.is_some_and(|word| word >> (token % 32) & 1 == 1)
    }
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Too many wait already. Try again later.
    #[error(
        "{waiting} requests are waiting, {asked} more were asked for, and no more than {limit} may wait or come to a free place"
    )]
    Full {
        /// Requests that wait.
        waiting: usize,
        /// How many more were to.
        asked: usize,
        /// How many may: as many as the queue holds, and one for each free place.
        limit: usize,
    },
    /// More at once than may ever be there.
    #[error(
        "{asked} requests were asked for at once, expected at most {limit}, as many as may run and wait"
    )]
    TooMany {
        /// How many were to be taken together.
        asked: usize,
        /// How many may run and wait.
        limit: usize,
    },
    /// Prompt and answer together are more than the model's context, or than the whole pool can hold.
    #[error(
        "a prompt of {prompt} tokens and {max_tokens} more do not fit: {limit} tokens at most, the last of an answer not counted"
    )]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that it may generate.
        max_tokens: usize,
        /// Most of both together, all but the last of an answer.
        limit: usize,
    },
    /// A value that cannot be worked with.
    #[error(transparent)]
    Invalid(#[from] Error),
    /// The engine finishes what it has and takes no more.
    #[error("the server is shutting down")]
    Draining,
    /// The engine is gone, and will not come back.
    #[error("the engine is gone")]
    Ended,
}

/// What the engine can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Limits {
    /// Most tokens of a prompt and its answer together: the model's context, or the pool where that is
    /// smaller. The last token of an answer is never run, so a prompt of `context` tokens may have one.
    pub context: usize,
    /// What `context` would be with a pool that is large enough.
    pub capacity: usize,
    /// Tokens of the vocabulary; each is below this.
    pub vocabulary: usize,
    /// Numbers of an embedding.
    pub hidden: usize,
    /// Tokens that the pool holds, all requests and prefixes together.
    pub pool_tokens: usize,
    /// Requests that may wait, besides those that come to a free place.
    pub queue: usize,
    /// Requests that run at once, at most.
    pub running: usize,
}

impl Limits {
    /// Checks that a prompt of this many tokens and its answer fit.
    ///
    /// # Errors
    /// [`Refused::TooLong`].
    pub fn check_length(&self, prompt: usize, max_tokens: usize) -> Result<(), Refused> {
        // The last token that is generated is never run.
        let asked = prompt.saturating_add(max_tokens.saturating_sub(1));
        match asked <= self.context {
            true => Ok(()),
            false => Err(Refused::TooLong { prompt, max_tokens, limit: self.context }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = TokenSet::none(70);
        for token in [0, 31, 32, 69] {
            set.insert(token);
        }
        let there: Vec<u32> = (0..200).filter(|&token| set.contains(token)).collect();
        assert_eq!(there, [0, 31, 32, 69]);
        assert!(TokenSet::from_words(vec![0b100]).contains(2));
    }
}
