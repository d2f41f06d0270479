//! What the book's questions about kernels are answered with.

use crate::gpu::Gpu;
use crate::paged_case::{Case, NARROW, Request, Runs};
use cuda_kernels::check::steps;
use cuda_kernels::small::ALL;
use cuda_kernels::small::attention::{Paged, hopper, step};
use cuda_kernels::steps::Step as Which;
use ptx_interpreter::{Counts, Device, Error, FaultKind, Step, Trace};

/// The shapes of `examples/count_kernels.rs`.
const DECODE: Paged = Paged { keys: 1_024, queries: 1, heads: 8, kv_heads: 2, is_int8: false };

fn counts(which: Which) -> Counts {
    let mut device = Device::new();
    step(&mut device, which, 512, 2).run_interpreted(&mut device).unwrap()
}

/// How step 2 fails without the `which`-th of its barriers.
fn without_barrier(which: usize) -> FaultKind {
    let mut gpu = Gpu::new();
    let case = steps::Case::new(64, 1, 1);
    let (attention, _) = gpu.bench(|gpu| case.place(gpu));
    let launch = attention.launch(Which::Tiled).unwrap();
    let at = launch.ptx.match_indices("bar.sync \t0;").nth(which).unwrap().0;
    let broken = format!("{}{}", &launch.ptx[..at], &launch.ptx[at + "bar.sync \t0;".len()..]);
    match gpu.try_run(&broken, &launch) {
        Err(Error::Fault(fault)) => fault.kind,
        other => panic!("expected a fault and got {other:?}"),
    }
}

#[test]
fn tiles_read_far_fewer_sectors() {
    let times = counts(Which::Naive).global_load_sectors / counts(Which::Tiled).global_load_sectors;
    assert_eq!(times, 243);
}

#[test]
fn eight_rows_of_128_bytes_meet_in_four_banks() {
    // Row r begins at byte 128 * r; a chunk of 16 bytes lies in four of 32 banks of 4 bytes.
    let first_bank = |row: u32, chunk: u32| (128 * row + 16 * chunk) / 4 % 32;
    let in_bank_0 = (0..8).filter(|&row| first_bank(row, 0) == 0).count();
    assert_eq!(in_bank_0, 8);
    // Exchanged by the row's number, chunk 0 of each row has banks of its own.
    let mut exchanged: Vec<u32> = (0..8).map(|row| first_bank(row, row)).collect();
    exchanged.dedup();
    assert_eq!(exchanged, [0, 4, 8, 12, 16, 20, 24, 28]);
}

#[test]
fn exchanging_chunks_costs_instructions_and_no_turns() {
    let (tiled, swizzled) = (counts(Which::Tiled), counts(Which::Swizzled));
    assert!(swizzled.warp_instructions > tiled.warp_instructions);
    assert!(swizzled.bank_conflicts() == 0 && tiled.bank_conflicts() > 0);
}

#[test]
fn a_tile_filled_too_early_is_a_race() {
    assert_eq!(without_barrier(0), FaultKind::Uninitialised);
    assert_eq!(without_barrier(1), FaultKind::Race);
}

#[test]
fn two_products_for_a_pair_of_tiles() {
    let mut device = Device::new();
    // 64 tokens: one tile of queries and one of keys.
    let counts = step(&mut device, Which::TensorCores, 64, 1).run_interpreted(&mut device).unwrap();
    assert_eq!(counts.tensor_flops, 1_048_576);
    assert_eq!(counts.tensor_flops, 2 * 2 * 64 * 64 * 64);
}

/// How often an `mma` was executed.
struct Products(u64);

impl Trace for Products {
    fn step(&mut self, step: &Step<'_>) {
        self.0 += u64::from(step.text.starts_with("mma.sync"));
    }
}

#[test]
fn one_mma_does_what_64_multiply_adds_do() {
    let small = ALL.iter().find(|small| small.name == "attention_05_tensor_cores").unwrap();
    let mut products = Products(0);
    let counts = small.run_traced(&mut products).unwrap();
    let (per_mma, per_multiply_add) = (counts.tensor_flops / products.0, 2 * 32);
    assert_eq!(per_mma / per_multiply_add, 64);
}

#[test]
fn exponentials_beside_products() {
    // A score of a head of 128 takes 2 * 128 operations, its weight as many again, and one exponential lies between.
    let products = |tera: f64| 4.0 * 128.0 / (tera * 1e12);
    let exponential = 1.0 / 3.9e12;
    let share = |tera: f64| (100.0 * exponential / products(tera)).round() / 100.0;
    assert_eq!(share(989.0), 0.5);
    // A chip with faster matrix units and the same units for exponentials.
    assert_eq!(share(2_250.0), 1.13);
}

#[test]
fn larger_tiles_read_keys_less_often() {
    let mut device = Device::new();
    let six = hopper(&mut device, 512, 2).run_interpreted(&mut device).unwrap();
    let sectors = [counts(Which::Pipelined), counts(Which::TensorCores), six]
        .map(|counts| counts.global_load_sectors);
    assert_eq!(sectors, [73_728, 40_960, 24_576]);
}

#[test]
fn a_split_for_each_256_keys() {
    let mut device = Device::new();
    let blocks = |grid: [u32; 3]| grid.iter().product::<u32>();
    let [decode, _] = DECODE.decode(&mut device);
    assert_eq!(blocks(decode.grid), 8);
    assert_eq!(blocks(DECODE.prefill(&mut device).grid), 2);
}

#[test]
fn four_queries_read_what_one_reads() {
    let sectors = |queries: usize| {
        let mut device = Device::new();
        let [decode, _] = Paged { queries, ..DECODE }.decode(&mut device);
        assert_eq!(decode.grid, [4, 2, 1], "splits, kv heads, requests");
        decode.run_interpreted(&mut device).unwrap().global_load_sectors
    };
    // Beside the queries themselves, for each of the 8 blocks of threads: three more, four heads, four sectors.
    assert_eq!(sectors(4) - sectors(1), 384);
}

#[test]
fn bytes_halve_keys_and_values_and_nothing_else() {
    let sectors = |is_int8: bool| {
        let mut device = Device::new();
        let [decode, _] = Paged { is_int8, ..DECODE }.decode(&mut device);
        decode.run_interpreted(&mut device).unwrap().global_load_sectors
    };
    // Keys and values; a look into the table for each 16 sectors; for each of 8 blocks of threads its queries, and what
    // each of its warps wants to know of the request. Bytes have a scale of four for each token and head beside.
    assert_eq!(sectors(false), 16_384 + 1_024 + 8 * (16 + 12));
    assert_eq!(sectors(true), 8_192 + 512 + 512 + 8 * (16 + 12));
    assert_eq!(sectors(true), 9_440);
}

#[test]
fn a_last_token_computed_again_has_the_same_bits() {
    let case = Case::new(NARROW, &[Request::text(290, 100)], false, 23);
    let whole = &case.prefill().out[0];
    let again = &case.piece(0, 99, 100).decode().out[0];
    assert!(whole.ends_with(again));
}

#[test]
fn a_node_sees_its_ancestors() {
    // Two guesses after node 0, and one more after the first of them.
    let parents = [None, Some(0), Some(0), Some(1)];
    let before = 6;
    let request = Request::tree(before + parents.len(), &parents);
    let sees = |node: usize, other: usize| u64::from(request.sees(node, before + other));
    let seen = |node: usize| (0..parents.len()).fold(0, |bits, at| bits | sees(node, at) << at);
    assert_eq!(seen(3), 11);
    assert_eq!(seen(2), 0b101);
}
