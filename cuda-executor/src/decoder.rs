//! One sequence that grows, on a device.

use crate::executor::CudaExecutor;
use crate::gpu::Gpu;
use naive_decode::{Decoder, Error, Executor, Pass, Result, Span, Want};

/// The executor's sequence that a decoder uses.
const SEQUENCE: usize = 0;

/// Decodes one sequence with keys and values on the device: a prompt in passes of as many rows as there is room for,
/// then a row at a time.
pub struct CudaDecoder<G> {
    executor: CudaExecutor<G>,
    rows: usize,
}

impl<G: Gpu> CudaDecoder<G> {
    /// A decoder over an executor, of which it uses the first sequence.
    pub fn new(executor: CudaExecutor<G>) -> Self {
        CudaDecoder { executor, rows: 0 }
    }
}

impl<G: Gpu> Decoder for CudaDecoder<G> {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid("tokens to feed", "none", "at least one"));
        }
        let start = self.executor.len(SEQUENCE);
        let asked = start + tokens.len();
        if asked > self.capacity() {
            let (what, capacity) = (format!("the cache of sequence {SEQUENCE}"), self.capacity());
            return Err(Error::Capacity { what, capacity, asked });
        }
        let mut last = Vec::new();
        for chunk in tokens.chunks(self.executor.room().rows) {
            let held = self.executor.len(SEQUENCE);
            let want = if held + chunk.len() == asked { Want::Last } else { Want::Nothing };
            match self.executor.execute(&Pass::one(Span::new(SEQUENCE, held, chunk, want))) {
                Ok(logits) => last = logits.iter().copied().collect(),
                Err(error) => {
                    // All or nothing: chunks that did go through are rolled back.
                    self.executor.truncate(SEQUENCE, start)?;
                    return Err(error);
                }
            }
            self.rows += chunk.len();
        }
        Ok(last)
    }

    fn capacity(&self) -> usize {
        self.executor.room().capacity
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.executor.kv_bytes_per_token()
    }
}
