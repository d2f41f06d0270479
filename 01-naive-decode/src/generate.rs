//! The autoregressive loop: choose a token, feed it back, choose again.

use crate::decode::Decoder;
use crate::error::{Error, Result};
use crate::sampler::Sampler;
use std::time::{Duration, Instant};

/// One generated token.
#[derive(Debug, Clone)]
pub struct Step {
    /// The token that was chosen.
    pub token: u32,
    /// The logits that it was chosen from, `[vocab]`.
    pub logits: Vec<f32>,
    /// Time that computing it took: for the first, time to first token (TTFT); for the others, time
    /// per output token (TPOT). What the caller does between steps is not counted.
    pub elapsed: Duration,
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// Tokens to continue.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub tokens: usize,
    /// Tokens that end the text. One of these is the last step, if it comes.
    pub end_tokens: Vec<u32>,
}

/// The loop, as an iterator: each step is a token, in the moment it is known.
pub struct Generate<'a> {
    decoder: &'a mut dyn Decoder,
    sampler: Sampler,
    request: Request,
    /// The prompt and what has been generated.
    context: Vec<u32>,
    /// How much of `context` the decoder has been fed.
    fed: usize,
    finished: bool,
}

/// Generates from a fresh decoder.
///
/// # Errors
/// An empty prompt, no tokens asked for, or more than the decoder can hold.
pub fn generate<'a>(
    decoder: &'a mut dyn Decoder,
    sampler: Sampler,
    request: Request,
) -> Result<Generate<'a>> {
    if request.prompt.is_empty() {
        return Err(Error::invalid("prompt", "empty", "at least one token"));
    }
    if request.tokens == 0 {
        return Err(Error::invalid("number of tokens to generate", 0, "at least 1"));
    }
    // The last token that is generated is never fed back.
    let asked = request.prompt.len().saturating_add(request.tokens - 1);
    if asked > decoder.capacity() {
        let what = format!(
            "a prompt of {} tokens and {} more do not fit: the context",
            request.prompt.len(),
            request.tokens
        );
        return Err(Error::Capacity { what, capacity: decoder.capacity(), asked });
    }
    let context = request.prompt.clone();
    let sampler = sampler.with_prompt_length(context.len());
    Ok(Generate { decoder, sampler, request, context, fed: 0, finished: false })
}

impl Generate<'_> {
    /// The prompt and everything generated so far.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    // ANCHOR: step
    fn step(&mut self) -> Result<Step> {
        let started = Instant::now();
        let logits = self.decoder.feed(&self.context[self.fed..])?;
        self.fed = self.context.len();
        let token = self.sampler.sample(&logits, &self.context)?;
        self.context.push(token);
        Ok(Step { token, logits, elapsed: started.elapsed() })
    }
    // ANCHOR_END: step
}

// ANCHOR: iterator
impl Iterator for Generate<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        let generated = self.context.len() - self.request.prompt.len();
        if self.finished || generated == self.request.tokens {
            return None;
        }
        let step = self.step();
        self.finished = match &step {
            Ok(step) => self.request.end_tokens.contains(&step.token),
            Err(_) => true,
        };
        Some(step)
    }
}
// ANCHOR_END: iterator
