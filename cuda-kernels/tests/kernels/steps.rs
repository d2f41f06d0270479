//! The numbered steps: each is right, and each is better than the one before at what it is there for.

use crate::gpu::Gpu;
use crate::numbers::{HALF_ULP, Random, assert_near};
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

/// What the steps are counted on: whole tiles of everything, two query heads that share their keys.
const TOKENS: u64 = 128;
const HEADS: u64 = 2;
/// Sectors of 32 bytes of one token's query, key or value.
const ROW: u64 = (HEAD_DIM * 2 / 32) as u64;

fn counts(step: Step) -> Counts {
    Case::new(TOKENS as usize, HEADS as usize, 1).run(step).1
}

/// 1 + 2 + … + n: of n tiles of queries, the first meets one tile of keys and the last n.
fn triangle(n: u64) -> u64 {
    n * (n + 1) / 2
}

/// Sectors read where each tile of `queries` is read once, and for it all tiles of `keys` that it sees.
fn tiled_sectors(queries: u64) -> u64 {
    let tiles = TOKENS / queries;
    HEADS * (TOKENS * ROW + triangle(tiles) * 2 * queries * ROW)
}

#[test]
fn step_1_reads_a_sector_for_every_two_bytes() {
    let counts = counts(Step::Naive);
    let elements = HEAD_DIM as u64;
    // The lanes of a warp read one element of one key together, then of its value: a sector each. Of their queries they
    // read an element from as many rows as there are lanes, and that again for every key.
    let keys_and_values = triangle(TOKENS / 32) * 32 * elements * 2;
    let queries = triangle(TOKENS) * elements;
    assert_eq!(counts.global_load_sectors, HEADS * (keys_and_values + queries));
    assert_eq!(counts.shared_requests, 0);
}

#[test]
fn step_2_reads_whole_sectors_once_a_tile_and_pays_in_bank_conflicts() {
    let counts = counts(Step::Tiled);
    assert_eq!(counts.global_load_sectors, tiled_sectors(32));
    assert_eq!(counts.global_load_bytes, 32 * counts.global_load_sectors);
    // Four warps read 8 chunks of their key in each tile, eight lanes at a time, and all eight want the same banks.
    let tiles = HEADS * triangle(TOKENS / 32);
    assert_eq!(counts.bank_conflicts(), tiles * 4 * 8 * 4 * 7);
    assert_eq!(counts.barriers, 2 * tiles);
}

#[test]
fn step_3_has_no_bank_conflicts() {
    let counts = counts(Step::Swizzled);
    assert_eq!(counts.global_load_sectors, tiled_sectors(32));
    assert_eq!(counts.bank_conflicts(), 0);
}

#[test]
fn step_4_waits_once_a_tile() {
    let counts = counts(Step::Pipelined);
    assert_eq!(counts.global_load_sectors, tiled_sectors(32));
    assert_eq!(counts.bank_conflicts(), 0);
    assert_eq!(counts.barriers, HEADS * triangle(TOKENS / 32));
}

#[test]
fn step_5_multiplies_in_the_tensor_cores() {
    let (before, counts) = (counts(Step::Pipelined), counts(Step::TensorCores));
    // Larger tiles: fewer readings of the same keys.
    assert_eq!(counts.global_load_sectors, tiled_sectors(64));
    assert_eq!(counts.bank_conflicts(), 0);
    // Two products of 64 by 64 by 64 for each pair of tiles, two operations to a multiplication.
    let products = HEADS * triangle(TOKENS / 64) * 2;
    assert_eq!(counts.tensor_flops, products * 2 * 64 * 64 * HEAD_DIM as u64);
    assert!(counts.warp_instructions * 10 < before.warp_instructions);
}
