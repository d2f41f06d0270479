//! Decoding one sequence, and the naive way to do it.

use crate::attention::NaiveAttention;
use crate::error::{Error, Result};
use crate::executor::{CpuExecutor, Executor};
use crate::model::Model;
use crate::pass::{Pass, Span, Want};
use std::sync::Arc;

/// One sequence that grows at its end. Each rung is a different way to do this.
pub trait Decoder {
    /// Takes tokens onto the end of the sequence and returns the last one's logits, `[vocab]`.
    ///
    /// # Errors
    /// [`Error::Capacity`] if they do not fit, an unknown token, or no tokens at all; the sequence
    /// is then as it was.
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>>;
    /// Tokens that the sequence can grow to.
    fn capacity(&self) -> usize;
    /// Rows that have gone through the model so far.
    fn rows(&self) -> usize;
    /// Bytes kept for each token of the sequence.
    fn kv_bytes_per_token(&self) -> usize;
}

/// The naive decoder: every step runs the whole sequence again.
///
/// Generating `T` tokens after a prompt of `P` sends `P + (P+1) + … + (P+T-1)` rows through the
/// model. It keeps nothing but the tokens, so it cannot be wrong about the past.
pub struct NaiveDecoder<E> {
    executor: E,
    tokens: Vec<u32>,
    capacity: usize,
    rows: usize,
}

impl NaiveDecoder<CpuExecutor<NaiveAttention>> {
    /// A naive decoder of an empty sequence, as long as the model's context at most.
    pub fn new(model: Arc<Model>) -> Self {
        let capacity = model.context();
        let attention = NaiveAttention::new(model.isa);
        NaiveDecoder::over(CpuExecutor { model, attention }, capacity)
    }
}

impl<E: Executor> NaiveDecoder<E> {
    /// A naive decoder over any executor that needs no past, up to `capacity` tokens.
    pub fn over(executor: E, capacity: usize) -> Self {
        NaiveDecoder { executor, tokens: Vec::new(), capacity, rows: 0 }
    }
}

impl<E: Executor> Decoder for NaiveDecoder<E> {
    // ANCHOR: feed
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        }
        let all = [&self.tokens, tokens].concat();
        if all.len() > self.capacity {
            let what = "the naive decoder".into();
            return Err(Error::Capacity { what, capacity: self.capacity, asked: all.len() });
        }
        let logits = self.executor.execute(&Pass::one(Span::new(0, 0, &all, Want::Last)))?;
        self.rows += all.len();
        self.tokens = all;
        Ok(logits.row(0).to_vec())
    }
    // ANCHOR_END: feed

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        0
    }
}
