//! Step 6: Hopper's instructions.

use super::numbers::{HALF_ULP, Random, near};
use super::paged::textbook;
use super::{Bench, Buffer, Problem};
use crate::steps::HopperAttention;

/// A sequence with itself.
pub struct Case {
    /// Tokens of the sequence.
    pub tokens: usize,
    /// Query heads.
    pub heads: usize,
    kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Whether a query sees only the keys up to its own.
    pub is_causal: bool,
    /// `[tokens][heads][head_dim]`, and of keys and values `[tokens][kv_heads][head_dim]`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    /// A sequence from a seed.
    pub fn new(
        tokens: usize,
        [heads, kv_heads]: [usize; 2],
        head_dim: usize,
        is_causal: bool,
    ) -> Self {
        let mut random = Random((tokens + head_dim) as u64);
        let [queries, keys, values] =
            [heads, kv_heads, kv_heads].map(|heads| random.bf16s(tokens * heads * head_dim, 2.0));
        Case { tokens, heads, kv_heads, head_dim, is_causal, queries, keys, values }
    }

    /// The launch's description, and where it writes.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn place(&self, gpu: &mut Bench) -> Result<(HopperAttention, Buffer<u16>), Problem> {
        let out = gpu.alloc::<u16>(self.queries.len())?;
        let attention = HopperAttention {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries)?,
            keys: gpu.upload_bf16(&self.keys)?,
            values: gpu.upload_bf16(&self.values)?,
            tokens: self.tokens,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            is_causal: self.is_causal,
            scale: 0.1,
        };
        Ok((attention, out))
    }

    /// Attention by the textbook, in f64.
    pub fn right(&self) -> Vec<f64> {
        let (heads, kv_heads, width) = (self.heads, self.kv_heads, self.head_dim);
        let rows = self.queries.chunks(width).enumerate();
        let output = |(row, query): (usize, &[f32])| {
            let at = |key: usize| (key * kv_heads + row % heads / (heads / kv_heads)) * width;
            let end = if self.is_causal { row / heads + 1 } else { self.tokens };
            let keys = (0..end)
                .map(|key| (&self.keys[at(key)..][..width], &self.values[at(key)..][..width]));
            textbook(query, keys, 0.1)
        };
        rows.flat_map(output).collect()
    }
}

/// Causal and not, both head sizes, lengths beside the edges of tiles.
pub fn cases() -> [Case; 4] {
    [
        Case::new(1, [1, 1], 64, true),
        Case::new(150, [2, 1], 64, true),
        Case::new(150, [2, 1], 128, false),
        Case::new(300, [1, 1], 128, true), // each stage is used more than once
    ]
}

/// Whether it is right.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for case in cases() {
        let right = case.right();
        let (attention, out) = case.place(gpu)?;
        gpu.run([&attention.launch()?])?;
        // As in paged.rs, with values below 2.
        let bound = |i: usize| 2.0 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
        let what = format!("step 6, {} tokens, heads of {}", case.tokens, case.head_dim);
        near(&what, &gpu.download_bf16(out)?, &right, bound)?;
    }
    Ok(())
}
