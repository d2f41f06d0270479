//! Attention over the paged cache with Hopper's instructions: right, and the bits that the kernel for all devices gives.

use crate::gpu::Gpu;
use crate::mutants::Prepared;
use crate::paged_case::{Case, Heads, NARROW, Request, Runs, WIDE};

/// Ragged lengths, ends at and beside the edges of blocks, tiles, splits and of the 128 rows of a block of threads; trees.
fn cases() -> Vec<Case> {
    let text = [(1, 1), (300, 1), (70, 70), (256, 3), (336, 140), (65, 2), (64, 64), (129, 128)];
    let text = text.map(|(keys, queries)| Request::text(keys, queries));
    let branches = [None, Some(0), Some(0), Some(1), Some(2), Some(2), None, Some(6)];
    let trees = [
        Request::tree(40, &branches),
        Request::text(90, 3),
        Request::tree(260, &branches),
        Request::tree(9, &[None]),
    ];
    vec![
        Case::new(NARROW, &text, false, 1),
        Case::new(WIDE, &text[..6], false, 2),
        Case::new(NARROW, &trees, false, 3),
        Case::new(WIDE, &trees, false, 4),
    ]
}

#[test]
fn the_interpreter_finds_the_bits_of_the_usual_kernel() {
    for case in cases() {
        assert!(case.prefill_hopper().out == case.prefill().out);
    }
    let mut gpu = cuda_kernels::Interpreter::new();
    for heads in [NARROW, WIDE] {
        let bench = &mut cuda_kernels::check::Bench::new(&mut gpu);
        assert!(cuda_kernels::check::paged::hopper_gives_the_same_bits(bench, heads).unwrap());
    }
}

#[test]
fn banks_do_not_conflict() {
    for case in cases() {
        assert_eq!(case.prefill_hopper().counts.bank_conflicts(), 0);
    }
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others_and_in_pieces() {
    let case = &cases()[0];
    let together = case.prefill_hopper().out;
    for request in [1, 2, 4] {
        assert!(case.only(&[request]).prefill_hopper().out[0] == together[request]);
    }
    let pieces = [(0, 33), (33, 34), (34, 140)]
        .map(|(from, to)| case.piece(4, from, to).prefill_hopper().out.remove(0));
    assert!(pieces.concat() == together[4]);
}

#[test]
fn a_tile_of_queries_reads_what_it_sees_in_whole_sectors() {
    let Heads { heads, head_dim, .. } = NARROW;
    let (keys, queries) = (340, 150);
    let case = Case::new(NARROW, &[Request::text(keys, queries)], false, 5);
    let counts = case.prefill_hopper().counts;
    let row = head_dim * 2 / 32;
    // The first 128 queries see 318 keys, whose tiles and blocks end at 320; the others see all, of which the last block has
    // four: all of its keys are fetched, but of its values only these.
    let keys_and_values = 320 + 320 + 352 + 340;
    // The numbers of a tile's four blocks are looked up together, a tile ahead of what is seen: six tiles by either block of
    // threads.
    let lookups = 6 + 6;
    // Each of twelve warps reads the length and two starts.
    let beside = 2 * 12 * 3;
    let sectors = heads * (row * (queries + keys_and_values) + lookups + beside);
    assert_eq!(counts.global_load_sectors, sectors as u64);
    assert_eq!(counts.global_store_sectors, (queries * heads * row) as u64);
    // Two products for each pair of a warpgroup's 64 queries and a tile of keys, of 64 by 64 by a head's size.
    let tiles = 320 / 64 + 384 / 64;
    assert_eq!(counts.tensor_flops, (heads * tiles * 2 * 2 * 2 * 64 * 64 * head_dim) as u64);
}

/// The interpreter's lanes go on together unless they part, as a device's need not. So the text has to say it.
#[test]
fn the_lanes_that_fetch_are_brought_together_for_each_tile() {
    for head_dim in [64, 128] {
        let launch = prepared_with(head_dim).launch;
        let (_, kernel) = launch.ptx.split_once(&format!("{}(", launch.entry)).unwrap();
        // Where registers are given away, those begin who fetch; the first that they wait for is a free stage.
        let (_, fetching) = kernel.split_once("setmaxnreg.dec").unwrap();
        let (before, _) = fetching.split_once("mbarrier.try_wait").unwrap();
        let (_, of_a_tile) = before.rsplit_once("\n$L__BB").unwrap();
        assert!(of_a_tile.contains("bar.warp.sync"), "{}: {of_a_tile}", launch.entry);
    }
}

/// Three splits, the last of which has the highest score of some queries; so many tiles that each stage is used again; and a
/// last block that is not full.
pub(crate) fn prepared_with(head_dim: usize) -> Prepared {
    let heads = Heads { heads: 1, kv_heads: 1, head_dim };
    let case = Case::new(heads, &[Request::text(630, 100)], false, 6);
    let mut gpu = Gpu::new();
    let (launch, out) = case.launch_hopper(&mut gpu);
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}
