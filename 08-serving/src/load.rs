//! Loads: requests that come as they might come to a server, always the same for one seed.

use clap::Args;
use embedded_models::tales::tale;
use naive_decode::{Result, Tokenizer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

/// How many requests come, how fast, and how long they are.
#[derive(Debug, Clone, Copy, Args)]
pub struct Load {
    /// Requests
    #[arg(long, default_value_t = 24)]
    pub requests: usize,
    /// Requests that come in a second, on average; all at once if not given
    #[arg(long, value_name = "N")]
    pub per_second: Option<f64>,
    /// Tokens of a prompt, on average
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub prompt_tokens: usize,
    /// Tokens of an answer, on average
    #[arg(long, value_name = "N", default_value_t = 48)]
    pub answer_tokens: usize,
    /// Seed of arrivals and lengths
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// One request of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// When it comes, from the beginning.
    pub at: Duration,
    /// What it asks.
    pub prompt: Vec<u32>,
    /// Tokens of the answer.
    pub tokens: usize,
}

impl Load {
    // ANCHOR: arrivals
    /// The requests, in order of arrival. The times between them and the lengths of prompts and answers are
    /// exponential: many short ones, some several times as long. No prompt and its answer together are longer
    /// than `context`.
    ///
    /// # Errors
    /// If the tokenizer cannot write the prompts.
    pub fn arrivals(&self, tokenizer: &Tokenizer, context: usize) -> Result<Vec<Arrival>> {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        let mut random = ChaCha8Rng::from_seed(key);
        let mut exponential = |mean: f64| {
            // In (0, 1]: its logarithm is finite.
            let share = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            -libm::log(share) * mean
        };
        let mut at = Duration::ZERO;
        let mut arrivals = Vec::with_capacity(self.requests);
        for number in 0..self.requests as u64 {
            if let Some(per_second) = self.per_second {
                at += Duration::from_secs_f64(exponential(1.0 / per_second));
            }
            let mut length = |mean: usize| 1 + exponential(mean as f64) as usize;
            let prompt = length(self.prompt_tokens).min(context / 2);
            let tokens = length(self.answer_tokens).min(context - prompt);
            let prompt = text(tokenizer, self.seed.wrapping_add(number), prompt)?;
            arrivals.push(Arrival { at, prompt, tokens });
        }
        Ok(arrivals)
    }
    // ANCHOR_END: arrivals
}

/// So many tokens of tales.
fn text(tokenizer: &Tokenizer, number: u64, tokens: usize) -> Result<Vec<u32>> {
    let mut text = Vec::new();
    for tale_number in (number..).step_by(1 << 20) {
        text.extend(tokenizer.encode(&tale(tale_number).text)?);
        if text.len() >= tokens {
            break;
        }
    }
    text.truncate(tokens);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;

    #[test]
    fn a_load_is_always_the_same_and_as_asked_for() {
        let tokenizer = Tokenizer::from_bytes(TARGET.name, TARGET.tokenizer).unwrap();
        let load = Load {
            requests: 400,
            per_second: Some(50.0),
            prompt_tokens: 40,
            answer_tokens: 20,
            seed: 3,
        };
        let arrivals = load.arrivals(&tokenizer, 512).unwrap();
        assert_eq!(arrivals, load.arrivals(&tokenizer, 512).unwrap());
        assert_ne!(arrivals, Load { seed: 4, ..load }.arrivals(&tokenizer, 512).unwrap());
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        let mean = |of: &dyn Fn(&Arrival) -> usize| {
            arrivals.iter().map(of).sum::<usize>() as f64 / arrivals.len() as f64
        };
        let (prompt, tokens) = (mean(&|a| a.prompt.len()), mean(&|a| a.tokens));
        assert!((35.0..47.0).contains(&prompt) && (17.0..24.0).contains(&tokens));
        let seconds = arrivals.last().unwrap().at.as_secs_f64();
        assert!((6.5..9.5).contains(&seconds), "400 at 50 a second: {seconds}");
        assert!(arrivals.iter().all(|a| !a.prompt.is_empty() && a.tokens > 0));
    }
}
