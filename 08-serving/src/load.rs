//! Loads: requests that come as they might come to a server, always the same for one seed.

use clap::Args;
use embedded_models::tales::tale;
use naive_decode::{Error, Result, Tokenizer};
use std::time::Duration;

pub mod sizes;

use sizes::{Size, Sizes, Spread};

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
    /// The requests, in order of arrival. The times between them and the lengths of prompts and answers are
    /// exponential: many short ones, some several times as long. No prompt and its answer together are longer
    /// than `context`.
    ///
    /// # Errors
    /// If the numbers make no load or one that mostly does not fit, or the tokenizer cannot write the prompts.
    pub fn arrivals(&self, tokenizer: &Tokenizer, context: usize) -> Result<Vec<Arrival>> {
        self.check_fits(context)?;
        let arrival = |(number, size): (u64, Size)| {
            let prompt = text(tokenizer, self.seed.wrapping_add(number), size.prompt)?;
            Ok(Arrival { at: size.at, prompt, tokens: size.answer })
        };
        (0..).zip(self.sizes(Spread::Exponential).draw(context)?).map(arrival).collect()
    }

    /// Checks that a request of average lengths fits into `context` tokens: what is longer is cut to that, and most would be.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_fits(&self, context: usize) -> Result<()> {
        let average = self.prompt_tokens.saturating_add(self.answer_tokens);
        if average <= context {
            return Ok(());
        }
        let what = "tokens of a prompt and its answer, on average,";
        Err(Error::invalid(what, average, format!("at most the {context} that there is room for")))
    }

    /// The same requests without their texts.
    pub fn sizes(&self, spread: Spread) -> Sizes {
        let Load { requests, per_second, prompt_tokens, answer_tokens, seed } = *self;
        Sizes { requests, per_second, prompt_tokens, answer_tokens, spread, seed }
    }
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
        let sizes = load.sizes(Spread::Exponential).draw(512).unwrap();
        let written = arrivals.iter().map(|a| (a.at, a.prompt.len(), a.tokens));
        assert!(written.eq(sizes.iter().map(|size| (size.at, size.prompt, size.answer))));
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

    #[test]
    fn a_load_that_cannot_be_is_refused() {
        let load =
            Load { requests: 3, per_second: None, prompt_tokens: 40, answer_tokens: 20, seed: 0 };
        let said =
            |load: Load, spread, context| load.sizes(spread).draw(context).unwrap_err().to_string();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let load = Load { per_second: Some(rate), ..load };
            let said = said(load, Spread::Exponential, 512);
            assert!(said.contains("requests per second is"), "{said}");
        }
        assert!(said(load, Spread::Fixed, 59).contains("is 60, expected at most the 59"));
        assert!(said(load, Spread::Exponential, 1).contains("the context is 1"));
        let none = Load { answer_tokens: 0, ..load };
        assert!(said(none, Spread::Fixed, 512).contains("tokens of an answer is 0"));
        let fixed = load.sizes(Spread::Fixed).draw(60).unwrap();
        assert!(fixed.iter().all(|size| (size.prompt, size.answer) == (40, 20)));
    }
}
