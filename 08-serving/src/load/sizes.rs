//! When requests come and how long they are, before anybody writes their texts.

use naive_decode::{Error, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// Most requests of a load.
pub const MOST_REQUESTS: usize = 1_000_000;

/// Most tokens of a prompt or an answer, on average.
const MOST_TOKENS: usize = 100_000_000;

/// How lengths lie around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Many short ones, some several times as long.
    Exponential,
    /// All alike.
    Fixed,
}

/// One request: when it comes, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// When it comes, from the beginning.
    pub at: Duration,
    /// Tokens of the prompt, at least one.
    pub prompt: usize,
    /// Tokens of the answer, at least one.
    pub answer: usize,
}

/// What sizes are drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// Requests.
    pub requests: usize,
    /// Requests that come in a second on average, with exponential times between them; none: all at once.
    pub per_second: Option<f64>,
    /// Tokens of a prompt, on average.
    pub prompt_tokens: usize,
    /// Tokens of an answer, on average.
    pub answer_tokens: usize,
    /// How lengths lie around their means.
    pub spread: Spread,
    /// The same seed gives the same load.
    pub seed: u64,
}

impl Sizes {
    // ANCHOR: draw
    /// The requests, in order of arrival. No prompt and its answer together are longer than `context`: drawn
    /// lengths are cut to that.
    ///
    /// # Errors
    /// A rate that is no positive number, numbers beyond all measure, or fixed lengths that do not fit.
    pub fn draw(&self, context: usize) -> Result<Vec<Size>> {
        self.check(context)?;
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        let mut random = ChaCha8Rng::from_seed(key);
        let mut exponential = |mean: f64| {
            // In (0, 1]: its logarithm is finite.
            let share = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            -libm::log(share) * mean
        };
        let mut at = Duration::ZERO;
        let mut sizes = Vec::with_capacity(self.requests);
        for _ in 0..self.requests {
            if let Some(per_second) = self.per_second {
                at += Duration::from_secs_f64(exponential(1.0 / per_second));
            }
            let mut length = |mean: usize| match self.spread {
                Spread::Exponential => 1 + exponential(mean as f64) as usize,
                Spread::Fixed => mean,
            };
            let (prompt, answer) = (length(self.prompt_tokens), length(self.answer_tokens));
            let prompt = match self.spread {
                Spread::Exponential => prompt.min(context / 2),
                Spread::Fixed => prompt,
            };
            sizes.push(Size { at, prompt, answer: answer.min(context - prompt) });
        }
        Ok(sizes)
    }
    // ANCHOR_END: draw

    fn check(&self, context: usize) -> Result<()> {
        if context < 2 {
            return Err(Error::invalid("the context", context, "at least 2 tokens"));
        }
        let between = |what: &str, found: usize, least: usize, most: usize| match (least..=most)
            .contains(&found)
        {
            true => Ok(()),
            false => Err(Error::invalid(what, found, format!("{least} to {most}"))),
        };
        between("requests", self.requests, 0, MOST_REQUESTS)?;
        let (prompt, answer) = (self.prompt_tokens, self.answer_tokens);
        let least = usize::from(self.spread == Spread::Fixed);
        between("tokens of a prompt", prompt, least, MOST_TOKENS)?;
        between("tokens of an answer", answer, least, MOST_TOKENS)?;
        if self.spread == Spread::Fixed && prompt + answer > context {
            let expected = format!("at most the {context} that there is room for");
            return Err(Error::invalid(
                "tokens of a prompt and its answer",
                prompt + answer,
                expected,
            ));
        }
        match self.per_second {
            Some(rate) if !(1e-6..=1e9).contains(&rate) => {
                Err(Error::invalid("requests per second", rate, "0.000001 to 1000000000"))
            }
            _ => Ok(()),
        }
    }
}
