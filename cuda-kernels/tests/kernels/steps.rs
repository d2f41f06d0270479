//! The numbered steps: each is better than the one before at what it is there for.

use crate::gpu::Gpu;
use cuda_kernels::check::steps::Case;
use cuda_kernels::steps::{HEAD_DIM, Step};
use ptx_interpreter::Counts;

/// What the steps are counted on: whole tiles of everything, two query heads that share their keys.
const TOKENS: u64 = 128;
const HEADS: u64 = 2;
/// Sectors of 32 bytes of one token's query, key or value.
const ROW: u64 = (HEAD_DIM * 2 / 32) as u64;

fn counts(step: Step) -> Counts {
    let mut gpu = Gpu::new();
    let case = Case::new(TOKENS as usize, HEADS as usize, 1);
    let (attention, _) = gpu.bench(|gpu| case.place(gpu));
    gpu.run(&attention.launch(step).unwrap())
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
