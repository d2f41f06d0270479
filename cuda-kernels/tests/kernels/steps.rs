//! The numbered steps: each is right, and each is better than the one before at what it is there for.

use crate::gpu::Gpu;
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16};
use crate::paged_case::textbook;
use cuda_kernels::steps::{HEAD_DIM, Step, StepAttention};
use ptx_interpreter::Counts;

pub(crate) struct Case {
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    /// `[tokens][heads][HEAD_DIM]`, and of keys and values `[tokens][kv_heads][HEAD_DIM]`.
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Case {
    pub(crate) fn new(tokens: usize, heads: usize, kv_heads: usize) -> Self {
        let mut random = Random(tokens as u64);
        let [queries, keys, values] =
            [heads, kv_heads, kv_heads].map(|heads| random.bf16s(tokens * heads * HEAD_DIM, 2.0));
        Case { tokens, heads, kv_heads, queries, keys, values }
    }

    pub(crate) fn upload(&self, gpu: &mut Gpu) -> (StepAttention, ptx_interpreter::Buffer<u16>) {
        let out = gpu.alloc::<u16>(self.queries.len());
        let [queries, keys, values] =
            [&self.queries, &self.keys, &self.values].map(|numbers| gpu.upload_bf16(numbers));
        let attention = StepAttention {
            out: out.address(),
            queries,
            keys,
            values,
            tokens: self.tokens,
            heads: self.heads,
            kv_heads: self.kv_heads,
            scale: 0.125,
        };
        (attention, out)
    }

    fn run(&self, step: Step) -> (Vec<f32>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, out) = self.upload(&mut gpu);
        let counts = gpu.run(&attention.launch(step).unwrap());
        (gpu.download_bf16(out), counts)
    }

    pub(crate) fn right(&self) -> Vec<f64> {
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
    pub(crate) fn bound(&self, step: Step, right: f64) -> f64 {
        let weights = if step == Step::TensorCores { 2.0 * HALF_ULP * 1.1 } else { 1e-5 };
        weights + right.abs() * HALF_ULP * 1.01
    }
}

#[test]
fn every_step_is_right() {
    for (tokens, heads, kv_heads) in [(1, 1, 1), (33, 4, 2), (150, 2, 1)] {
        let case = Case::new(tokens, heads, kv_heads);
        let right = case.right();
        for step in Step::ALL {
            let (found, _) = case.run(step);
            assert_near(&format!("{step:?}"), &found, &right, |i| case.bound(step, right[i]));
        }
    }
}

#[test]
fn what_each_step_gains() {
    let case = Case::new(128, 2, 1);
    for step in Step::ALL {
        println!("{step:?}: {:?}", case.run(step).1);
    }
}
