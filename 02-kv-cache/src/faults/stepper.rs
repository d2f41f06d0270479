//! Decoding over any executor that remembers.

use naive_decode::{Decoder, Error, Executor, Pass, Result, Span, Want};

/// Prefill in chunks, then one row a token, as [`crate::CachedDecoder`] does; but over whatever
/// executor it is given, so that a fault or a guard can stand between decoder and model.
///
/// It counts the tokens itself. Should its count and the cache's part, the cache refuses the pass.
/// A prompt that fails in a later chunk keeps the earlier ones: not every executor can roll back.
pub struct Stepper<E> {
    /// Who runs the passes.
    pub executor: E,
    capacity: usize,
    chunk: usize,
    length: usize,
    rows: usize,
}

impl<E: Executor> Stepper<E> {
    /// A decoder of an empty sequence 0 of at most `capacity` tokens, fed at most `chunk` (not 0) at
    /// once.
    pub fn new(executor: E, capacity: usize, chunk: usize) -> Self {
        Stepper { executor, capacity, chunk, length: 0, rows: 0 }
    }
}

impl<E: Executor> Decoder for Stepper<E> {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let end = self.length + tokens.len();
        if end > self.capacity {
            let what = "the sequence".into();
            return Err(Error::Capacity { what, capacity: self.capacity, asked: end });
        }
        let mut last = Err(Error::invalid("tokens to feed", "none", "at least one"));
        for chunk in tokens.chunks(self.chunk) {
            let want = if self.length + chunk.len() == end { Want::Last } else { Want::Nothing };
            last = self.executor.execute(&Pass::one(Span::new(0, self.length, chunk, want)));
            if last.is_err() {
                break;
            }
            self.length += chunk.len();
            self.rows += chunk.len();
        }
        last.map(|logits| logits.iter().copied().collect())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    /// Not known here: it is the business of whoever keeps them.
    fn kv_bytes_per_token(&self) -> usize {
        0
    }
}
