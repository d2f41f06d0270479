//! What a caller may ask of the sampler.

use crate::error::{Error, Result};

/// How the next token is chosen. The default is greedy: the most probable token, every time.
///
/// Every other step is switched off by its default, so a caller names only what it wants:
/// `Sampling { temperature: 0.8, top_p: 0.95, ..Sampling::default() }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Scores are divided by it: below 1 sharpens, above 1 flattens, 0 means greedy. Finite.
    pub temperature: f32,
    /// Only this many of the most probable tokens stay; `None` keeps all. At least 1.
    pub top_k: Option<usize>,
    /// The fewest most probable tokens that together reach this probability stay (nucleus
    /// sampling, Holtzman et al. 2020). In (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Tokens less probable than this fraction of the most probable one go (Nguyen et al. 2024).
    /// In [0, 1]; 0 keeps all.
    pub min_p: f32,
    /// The score of every token in the context, prompt included, is divided by it where positive
    /// and multiplied by it where negative (CTRL, Keskar et al. 2019; Hugging Face's definition).
    /// From 0.01 to 100, so that no score becomes infinite; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted once from the score of every token generated so far (OpenAI's definition).
    /// Finite; negative values invite repetition; 0 changes nothing.
    pub presence_penalty: f32,
    /// Subtracted from a token's score once for each time it was generated so far (OpenAI's
    /// definition). Finite; 0 changes nothing.
    pub frequency_penalty: f32,
    /// Added to single tokens' scores before anything else: `(token, bias)`. Finite, or
    /// `f32::NEG_INFINITY` to forbid the token.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where the random numbers start. The same seed gives the same tokens on every machine.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Whether every value can be worked with.
    ///
    /// # Errors
    /// Names the first parameter that is out of range, its value, and the range.
    pub fn validate(&self) -> Result<()> {
        // Each condition is false for NaN, so NaN is refused without a case of its own.
        let check = |what: &str, found: f32, holds: bool, expected: &str| {
            if holds { Ok(()) } else { Err(Error::invalid(what, found, expected)) }
        };
        let finite = f32::is_finite;
        let t = self.temperature;
        check("temperature", t, finite(t) && t >= 0.0, "a finite number of at least 0")?;
        let p = self.top_p;
        check("top_p", p, p > 0.0 && p <= 1.0, "a number above 0 and at most 1")?;
        let p = self.min_p;
        check("min_p", p, (0.0..=1.0).contains(&p), "a number from 0 to 1")?;
        let r = self.repetition_penalty;
        check("repetition_penalty", r, (0.01..=100.0).contains(&r), "a number from 0.01 to 100")?;
        let a = self.presence_penalty;
        check("presence_penalty", a, finite(a), "a finite number")?;
        let a = self.frequency_penalty;
        check("frequency_penalty", a, finite(a), "a finite number")?;
        if self.top_k == Some(0) {
            return Err(Error::invalid("top_k", 0, "at least 1, or none to keep every token"));
        }
        for &(token, bias) in &self.logit_bias {
            if !(finite(bias) || bias == f32::NEG_INFINITY) {
                let what = format!("logit_bias of token {token}");
                return Err(Error::invalid(what, bias, "a finite number or -inf"));
            }
        }
        Ok(())
    }
}
