//! Requests with the spread of lengths that real ones have.
//!
//! The means are those of figure 11 of Kwon et al. (2023): conversations of ShareGPT, and instructions of
//! Alpaca. The figure shows that lengths are mostly short with a long tail, which a lognormal distribution
//! has; it does not print a width. For ShareGPT's answers one follows from figure 2 (see [`SHAREGPT`]); the
//! other widths are 1, which is an assumption.

use naive_decode::{Error, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One request, as nobody but the simulation knows it: with the length that it will have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The step in which it arrives.
    pub arrival: usize,
    /// Tokens that it comes with.
    pub prompt: usize,
    /// Tokens that it will get.
    pub output: usize,
}

impl Request {
    /// Tokens when it is done.
    pub fn length(&self) -> usize {
        self.prompt + self.output
    }
}

/// A lognormal distribution of lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Mean, in tokens.
    pub mean: f64,
    /// Standard deviation of the logarithm.
    pub spread: f64,
}

/// Lengths of prompts and of answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// What it is like.
    pub name: &'static str,
    /// Of prompts.
    pub prompt: Lengths,
    /// Of answers.
    pub output: Lengths,
}

/// Conversations, as people shared them.
///
/// The spread of answers follows from two published figures. While Orca (Max) runs 7 requests in 15,728
/// slots, 13.3 % of them are reserved: 299 for each. Seen at a random step, a request has half of its
/// answer before it, and longer answers are seen more often, so 299 is half the mean of squares over the
/// mean; for a lognormal that is 338 exp(s^2) / 2, hence s = 0.75.
pub const SHAREGPT: Workload = Workload {
    name: "ShareGPT-like",
    prompt: Lengths { mean: 161.31, spread: 1.0 },
    output: Lengths { mean: 337.99, spread: 0.75 },
};

/// Instructions with short answers.
pub const ALPACA: Workload = Workload {
    name: "Alpaca-like",
    prompt: Lengths { mean: 19.31, spread: 1.0 },
    output: Lengths { mean: 58.45, spread: 1.0 },
};

impl Workload {
    /// So many requests that arrive at random, `per_step` of them in a step on average (a Poisson
    /// process), none longer than `longest` tokens. A prompt has at most half of that. The same seed
    /// gives the same requests, on any machine.
    ///
    /// # Errors
    /// If the rate is not a positive number, or `longest` is below 2.
    pub fn trace(
        &self,
        count: usize,
        per_step: f64,
        longest: usize,
        seed: u64,
    ) -> Result<Vec<Request>> {
        if !(per_step > 0.0 && per_step.is_finite()) {
            return Err(Error::invalid("requests in a step", per_step, "a positive number"));
        }
        if longest < 2 {
            let expected = "at least 2, a prompt of one token and an answer of one";
            return Err(Error::invalid("longest request", longest, expected));
        }
        let mut draws = Draws(ChaCha8Rng::seed_from_u64(seed));
        let mut time = 0.0;
        let requests = (0..count).map(|_| {
            time += draws.exponential() / per_step;
            let prompt = draws.length(self.prompt).min(longest / 2);
            let output = draws.length(self.output).min(longest - prompt);
            Request { arrival: time as usize, prompt, output }
        });
        Ok(requests.collect())
    }
}

/// Random numbers of the kinds that a trace needs. Logarithms and the like come from `libm`, as those of the
/// platform differ from one to the next.
struct Draws(ChaCha8Rng);

impl Draws {
    /// Above 0, up to 1.
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1: the time between events of which there is one at a time, on average.
    fn exponential(&mut self) -> f64 {
        -libm::log(self.uniform())
    }

    /// Standard normal (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// At least one token.
    fn length(&mut self, lengths: Lengths) -> usize {
        let Lengths { mean, spread } = lengths;
        // A lognormal's mean is exp(m + s^2 / 2).
        let middle = libm::log(mean) - spread * spread / 2.0;
        let length = libm::exp(middle + spread * self.normal());
        (length.round() as usize).max(1)
    }
}
