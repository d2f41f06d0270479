//! The numbered steps of attention.

use super::numbers::{HALF_ULP, Random, from_bf16, near};
use super::paged::textbook;
use super::{Bench, Buffer, Problem};
use crate::steps::{HEAD_DIM, Step, StepAttention};

/// A sequence with itself.
pub struct Case {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    /// `[tokens][heads][HEAD_DIM]`, and of keys and values `[tokens][kv_heads][HEAD_DIM]`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    /// A sequence from a seed.
    pub fn new(tokens: usize, heads: usize, kv_heads: usize) -> Self {
        let mut random = Random(tokens as u64);
        let [queries, keys, values] =
            [heads, kv_heads, kv_heads].map(|heads| random.bf16s(tokens * heads * HEAD_DIM, 2.0));
        Case { tokens, heads, kv_heads, queries, keys, values }
    }

    /// The launches' description, and where they write.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn place(&self, gpu: &mut Bench) -> Result<(StepAttention, Buffer<u16>), Problem> {
        let out = gpu.alloc::<u16>(self.queries.len())?;
        let attention = StepAttention {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries)?,
            keys: gpu.upload_bf16(&self.keys)?,
            values: gpu.upload_bf16(&self.values)?,
            tokens: self.tokens,
            heads: self.heads,
            kv_heads: self.kv_heads,
            scale: 0.125,
        };
        Ok((attention, out))
    }

    /// Attention by the textbook, in f64.
    pub fn right(&self) -> Vec<f64> {
        let group = self.heads / self.kv_heads;
        let rows = self.queries.chunks(HEAD_DIM).enumerate();
        let output = |(row, query): (usize, &[f32])| {
            let kv_head = row % self.heads / group;
            let at = |key: usize| (key * self.kv_heads + kv_head) * HEAD_DIM;
            let keys = (0..=row / self.heads).map(|key| {
                (&self.keys[at(key)..][..HEAD_DIM], &self.values[at(key)..][..HEAD_DIM])
            });
            textbook(query, keys, 0.125)
        };
        rows.flat_map(output).collect()
    }

    /// How far an output may be off: step 5 rounds its weights to bf16, the others round the output alone.
    pub fn bound(&self, step: Step, right: f64) -> f64 {
        let weights = if step == Step::TensorCores { 2.0 * HALF_ULP * 1.1 } else { 1e-5 };
        weights + right.abs() * HALF_ULP * 1.01
    }
}

/// Whether each step is right.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for (tokens, heads, kv_heads) in [(1, 1, 1), (33, 4, 2), (150, 2, 1)] {
        let case = Case::new(tokens, heads, kv_heads);
        let right = case.right();
        let (attention, out) = case.place(gpu)?;
        for step in Step::ALL {
            let found = gpu.written(out, [&attention.launch(step)?])?;
            let found: Vec<f32> = found.into_iter().map(from_bf16).collect();
            let what = format!("step {step:?} of {tokens} tokens");
            near(&what, &found, &right, |i| case.bound(step, right[i]))?;
        }
    }
    Ok(())
}
