//! Step 6: Hopper's instructions.

use crate::gpu::Gpu;
use crate::numbers::{HALF_ULP, Random, assert_near};
use crate::paged_case::textbook;
use cuda_kernels::steps::HopperAttention;
use ptx_interpreter::{Buffer, Counts};

/// Queries of a block, and keys of a tile.
const TILE: usize = 128;

pub(crate) struct Case {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    is_causal: bool,
    /// `[tokens][heads][head_dim]`, and of keys and values `[tokens][kv_heads][head_dim]`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    pub(crate) fn new(
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

    pub(crate) fn upload(&self, gpu: &mut Gpu) -> (HopperAttention, Buffer<u16>) {
        let out = gpu.alloc::<u16>(self.queries.len());
        let [queries, keys, values] =
            [&self.queries, &self.keys, &self.values].map(|numbers| gpu.upload_bf16(numbers));
        let attention = HopperAttention {
            out: out.address(),
            queries,
            keys,
            values,
            tokens: self.tokens,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            is_causal: self.is_causal,
            scale: 0.1,
        };
        (attention, out)
    }

    fn run(&self) -> (Vec<f32>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, out) = self.upload(&mut gpu);
        let counts = gpu.run(&attention.launch().unwrap());
        (gpu.download_bf16(out), counts)
    }

    fn right(&self) -> Vec<f64> {
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

#[test]
fn step_6_is_right() {
    let cases = [
        Case::new(1, [1, 1], 64, true),
        Case::new(150, [2, 1], 64, true),
        Case::new(150, [2, 1], 128, false),
        Case::new(300, [1, 1], 128, true), // each stage is used more than once
    ];
    for case in cases {
        let right = case.right();
        // As in paged.rs, with values below 2.
        let bound = |i: usize| 2.0 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
        let what = format!("{} tokens, head size {}", case.tokens, case.head_dim);
        let (found, counts) = case.run();
        assert_near(&what, &found, &right, bound);
        // Boxes bring what is inside of the tensor: queries once, keys and values once for each tile of queries.
        let ends = (1..=case.tokens.div_ceil(TILE)).map(|tile| (tile * TILE).min(case.tokens));
        let seen: usize =
            ends.map(|end| if case.is_causal { end } else { case.tokens }).sum::<usize>();
        let row = case.head_dim * 2 / 32;
        let sectors = case.heads * (case.tokens + 2 * seen) * row;
        assert_eq!(counts.global_load_sectors, sectors as u64, "{what}");
    }
}
