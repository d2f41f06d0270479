//! From logits to the next token.
//!
//! The model gives one score (logit) per token of the vocabulary. [`Sampler::distribution`] turns
//! them into the exact probabilities of the next token, and is the only place where that is
//! written; [`Sampler::sample`] draws from them with a single random number. Keeping the two apart
//! lets tests compare draws with probabilities, and lets a later rung accept or refuse the tokens
//! that a draft model proposed.

mod filters;
mod sampling;

pub use sampling::Sampling;

use crate::error::{Error, Result};
use crate::kernels::{Isa, highest};
use filters::{exponentials, keep_min_p, keep_top_k, keep_top_p, normalise, temper, total};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::borrow::Cow;

/// Chooses tokens as a [`Sampling`] says; owns the random numbers of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    /// How many tokens at the start of every context are the prompt's.
    prompt_length: usize,
    generator: ChaCha8Rng,
}

impl Sampler {
    /// A sampler whose random numbers start at `sampling.seed`.
    ///
    /// # Errors
    /// Those of [`Sampling::validate`].
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.validate()?;
        // The seed is the key itself, not hashed into one, so nothing but ChaCha decides the draws.
        let mut key = [0; 32];
        key[..8].copy_from_slice(&sampling.seed.to_le_bytes());
        Ok(Sampler { sampling, prompt_length: 0, generator: ChaCha8Rng::from_seed(key) })
    }

    /// The same sampler, told that the first `tokens` tokens of every context are the prompt.
    ///
    /// Presence and frequency penalties count generated tokens only. Without this call the whole
    /// context counts as generated.
    pub fn with_prompt_length(self, tokens: usize) -> Self {
        Sampler { prompt_length: tokens, ..self }
    }

    /// A sampler of the same kind with random numbers of its own, which have nothing to do with these.
    pub fn fork(&mut self) -> Self {
        let mut key = [0; 32];
        self.generator.fill_bytes(&mut key);
        let generator = ChaCha8Rng::from_seed(key);
        Sampler { generator, ..self.clone() }
    }

    /// The probability of each token to come next, `[vocabulary]`, summing to 1.
    ///
    /// `logits` is `[vocabulary]`; `context` is every token so far, prompt included. The order of
    /// the steps is Hugging Face's: bias, penalties, temperature, top-k, top-p, min-p.
    ///
    /// # Errors
    /// If a logit is NaN or +inf, if no token is left to choose, or if the context or the logit
    /// bias names a token outside the vocabulary.
    // ANCHOR: distribution
    pub fn distribution(&self, logits: &[f32], context: &[u32]) -> Result<Vec<f32>> {
        let scores = self.scores(logits, context)?;
        let likeliest = argmax(&scores)?;
        let mut scores = scores.into_owned();
        if self.sampling.temperature == 0.0 {
            let mut certain = vec![0.0; scores.len()];
            certain[likeliest as usize] = 1.0;
            return Ok(certain);
        }
        let largest = scores[likeliest as usize];
        temper(&mut scores, largest, self.sampling.temperature);
        if let Some(k) = self.sampling.top_k {
            keep_top_k(&mut scores, k);
        }
        exponentials(&mut scores);
        let mut weights = scores;
        keep_top_p(&mut weights, self.sampling.top_p);
        keep_min_p(&mut weights, self.sampling.min_p);
        normalise(&mut weights);
        Ok(weights)
    }
    // ANCHOR_END: distribution

    /// The logits with bias and penalties.
    fn scores<'a>(&self, logits: &'a [f32], context: &[u32]) -> Result<Cow<'a, [f32]>> {
        let mut scores = Cow::Borrowed(logits);
        if !self.sampling.logit_bias.is_empty() {
            self.add_bias(scores.to_mut())?;
        }
        if self.has_penalties() {
            self.penalise(scores.to_mut(), context)?;
        }
        Ok(scores)
    }

    /// Whether the next token is whatever [`argmax`] says of the logits: greedy, without bias and penalties. Whoever knows that
    /// token already may leave out [`Sampler::sample`], if a random number is used up in its place.
    pub fn is_argmax(&self) -> bool {
        let Sampling { temperature, logit_bias, .. } = &self.sampling;
        *temperature == 0.0 && logit_bias.is_empty() && !self.has_penalties()
    }

    /// Draws the next token, using one random number whatever the parameters.
    ///
    /// # Errors
    /// Those of [`Sampler::distribution`].
    pub fn sample(&mut self, logits: &[f32], context: &[u32]) -> Result<u32> {
        if self.sampling.temperature == 0.0 {
            // The distribution has one token. No need to write it down to draw that.
            let likeliest = argmax(&self.scores(logits, context)?)?;
            self.uniform();
            return Ok(likeliest);
        }
        let probabilities = self.distribution(logits, context)?;
        Ok(self.draw(&probabilities))
    }

    /// Draws a token from non-negative `weights` `[vocabulary]`, which need not sum to 1.
    ///
    /// The draw is the inverse of the cumulative distribution in order of ids: walk up the ids
    /// until the weights passed exceed a uniform share of their total.
    ///
    /// # Panics
    /// If no weight is positive.
    // ANCHOR: draw
    pub fn draw(&mut self, weights: &[f32]) -> u32 {
        let share = self.uniform() * total(weights);
        let mut passed = 0.0;
        let mut positive = None;
        for (id, &weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
            passed += f64::from(weight);
            positive = Some(id as u32);
            if passed > share {
                break;
            }
        }
        positive.expect("a distribution has a positive weight")
    }
    // ANCHOR_END: draw

    /// The next random number, uniform in [0, 1) in steps of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.generator.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn add_bias(&self, scores: &mut [f32]) -> Result<()> {
        for &(token, bias) in &self.sampling.logit_bias {
            *place_of(scores, token, "logit_bias")? += bias;
        }
        Ok(())
    }

    fn has_penalties(&self) -> bool {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } =
            self.sampling;
        (repetition_penalty, presence_penalty, frequency_penalty) != (1.0, 0.0, 0.0)
    }

    fn penalise(&self, scores: &mut [f32], context: &[u32]) -> Result<()> {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } =
            self.sampling;
        // For each token of the vocabulary: 0 if the context lacks it, else 1 and how often it was generated.
        let mut counts = vec![0u32; scores.len()];
        for (position, &token) in context.iter().enumerate() {
            let count = place_of(&mut counts, token, "context")?;
            *count = (*count).max(1) + u32::from(position >= self.prompt_length);
        }
        for (score, count) in scores.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            // Dividing a negative score would make the token likelier.
            *score = if *score > 0.0 {
                *score / repetition_penalty
            } else {
                *score * repetition_penalty
            };
            let generated = count - 1;
            if generated > 0 {
                *score -= presence_penalty + frequency_penalty * generated as f32;
            }
        }
        Ok(())
    }
}

/// The token with the largest score; the lowest id among equals.
///
/// # Errors
/// If a score is NaN or +inf, or if there is none above -inf.
pub fn argmax(scores: &[f32]) -> Result<u32> {
    let Some(highest) = highest(Isa::best(), scores) else {
        let mut all = scores.iter().enumerate();
        let odd = all.find(|(_, score)| score.is_nan() || **score == f32::INFINITY);
        let (token, score) = odd.expect("one is odd");
        let what = format!("score of token {token}");
        return Err(Error::invalid(what, score, "a number below infinity"));
    };
    if highest == f32::NEG_INFINITY {
        let (what, expected) =
            ("number of tokens that may come next", "a token with a score above -inf");
        return Err(Error::invalid(what, 0, expected));
    }
    let first = scores.iter().position(|&score| score == highest).expect("it was found there");
    Ok(first as u32)
}

/// A token's place in a list of the whole vocabulary; `named_in` is where the token stands.
fn place_of<'a, T>(list: &'a mut [T], token: u32, named_in: &str) -> Result<&'a mut T> {
    let vocabulary = list.len();
    list.get_mut(token as usize).ok_or_else(|| {
        Error::invalid(
            format!("a token in the {named_in}"),
            token,
            format!("an id below the vocabulary's {vocabulary}"),
        )
    })
}
