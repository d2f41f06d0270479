//! Attention over the paged cache: the same bits in whatever batch, and no byte read in vain.

use crate::gpu::Gpu;
use crate::mutants::Prepared;
use crate::paged_case::{Case, Heads, NARROW, Request, Runs, WIDE, ragged, upload_batch};
use cuda_kernels::Argument;
use cuda_kernels::attention::{PagedAttention, Workspace};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache};
use cuda_kernels::check::numbers::{Random, to_bf16};
use cuda_kernels::check::paged::cases;

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    for heads in [NARROW, WIDE] {
        let case = Case::new(heads, &ragged(), false, 20);
        let together = case.prefill().out;
        for request in [0, 1, 4] {
            let alone = case.only(&[request]);
            assert!(alone.prefill().out[0] == together[request], "prefill of request {request}");
            assert!(alone.decode().out[0] == together[request], "decode of request {request}");
        }
    }
}

#[test]
fn a_prompt_has_the_same_bits_in_one_piece_and_in_several() {
    let case = Case::new(NARROW, &[Request::text(290, 100)], false, 21);
    let whole = &case.prefill().out[0];
    let mut pieces = Vec::new();
    for (from, to) in [(0, 33), (33, 34), (34, 100)] {
        let piece = case.piece(0, from, to);
        let out = if to - from == 1 { piece.decode().out } else { piece.prefill().out };
        pieces.extend_from_slice(&out[0]);
    }
    assert!(pieces == *whole);
}

#[test]
fn splits_have_the_same_bits_from_any_number_of_blocks() {
    let requests = [Request::text(1100, 2), Request::text(1024, 1), Request::text(70, 5)];
    let cases = [
        Case::new(NARROW, &requests, false, 23),
        Case::new(WIDE, &requests, false, 24),
        Case::new(NARROW, &requests, true, 25),
        Case::fp8(WIDE, &requests, 26),
    ];
    for case in cases {
        let right = case.decode().out;
        for across in 1..5 {
            let mut gpu = Gpu::new();
            let (attention, workspace, out, _) = case.upload(&mut gpu);
            let [decode, join] = attention.decode(workspace).unwrap();
            assert_eq!(decode.grid[0], 5);
            gpu.run_across(&decode, across);
            gpu.run(&join);
            assert!(case.split(gpu.download(out)) == right, "{}, {across} across", decode.entry);
        }
    }
}

/// Splits of random numbers, more than are joined at a time; of some of them nothing is seen.
pub(crate) fn prepared_join() -> Prepared {
    let (mut gpu, mut random) = (Gpu::new(), Random(27));
    let (splits, heads, head_dim) = (130, 2, 64);
    let attention = PagedAttention {
        batch: upload_batch(
            &mut gpu,
            &[Request::text(splits * 256 - 5, 1)],
            &[vec![0; splits * 16]],
        ),
        out: gpu.alloc::<u16>(heads * head_dim).address(),
        queries: 0,
        cache: Cache { keys: 0, values: 0, block_stride: 0, head_stride: 0, scales: None },
        heads,
        kv_heads: 1,
        head_dim,
        scale: 0.125,
    };
    let states = random.bf16s(heads * splits, 40.0).into_iter().enumerate();
    let state = |(i, highest): (usize, f32)| match i % 7 {
        3 => [f32::NEG_INFINITY, 0.0],
        _ => [highest, 1.0 + (i % 5) as f32],
    };
    let workspace = Workspace {
        parts: gpu.upload(&random.bf16s(heads * splits * head_dim, 3.0)),
        states: gpu.upload(&states.flat_map(state).collect::<Vec<f32>>()),
    };
    let [_, launch] = attention.decode(workspace).unwrap();
    let (out, bytes) = (attention.out, heads * head_dim * 2);
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.at(out, bytes)) }
}

/// The sums as they are defined, one split after another.
#[test]
fn splits_are_joined_in_order() {
    let mut prepared = prepared_join();
    prepared.gpu.run(&prepared.launch);
    let found = (prepared.read)(&prepared.gpu);
    let found: Vec<u16> = bytemuck::pod_collect_to_vec(&found);
    let floats = |pointer: &Argument, count: usize| -> Vec<f32> {
        let Argument::Pointer(address) = *pointer else { panic!("an array") };
        bytemuck::pod_collect_to_vec(&prepared.gpu.at(address, count * 4))
    };
    let (splits, heads, head_dim) = (130, 2, 64);
    let parts = floats(&prepared.launch.arguments[1], heads * splits * head_dim);
    let states = floats(&prepared.launch.arguments[2], heads * splits * 2);
    let scale = 0.125f32 * std::f32::consts::LOG2_E;
    for head in 0..heads {
        for column in 0..head_dim {
            let (mut highest, mut sum, mut value) = (f32::NEG_INFINITY, 0.0, 0.0);
            for split in head * splits..(head + 1) * splits {
                let [score, weights] = [states[2 * split], states[2 * split + 1]];
                if weights == 0.0 {
                    continue;
                }
                let base = highest.max(score) * scale;
                // The interpreter's power of two is the nearest f32.
                let power = |x: f32| f64::from(x * scale - base).exp2() as f32;
                let [before, here] = [highest, score].map(power);
                highest = highest.max(score);
                sum = weights.mul_add(here, sum * before);
                value = parts[split * head_dim + column].mul_add(here, value * before);
            }
            assert_eq!(found[head * head_dim + column], to_bf16(value * (1.0 / sum)));
        }
    }
}

#[test]
fn banks_do_not_conflict() {
    for (name, case) in cases() {
        assert_eq!(case.prefill().counts.bank_conflicts(), 0, "{name}: prefill");
        assert_eq!(case.decode().counts.bank_conflicts(), 0, "{name}: decode");
    }
}

#[test]
fn keys_and_values_are_read_once_for_all_heads_of_a_group() {
    let Heads { heads, kv_heads, head_dim } = NARROW;
    for keys in [64, 256, 260] {
        let case = Case::new(NARROW, &[Request::text(keys, 1)], false, 22);
        let row = head_dim * 2 / 32;
        let keys_and_values = 2 * keys * kv_heads * row;
        // Each of four warps looks up a block of keys once, and the same for values.
        let tables = 2 * kv_heads * keys.div_ceil(BLOCK_TOKENS) * 4;
        // What each block of threads reads beside: its queries; and each of its warps the length and two starts.
        let queries = heads / kv_heads * row;
        let beside = |blocks: usize| blocks * (queries + 4 * 3);
        let sectors = |blocks| (keys_and_values + tables + beside(blocks)) as u64;
        let splits = keys.div_ceil(256);
        let (prefill, decode) = (case.prefill().counts, case.decode().counts);
        assert_eq!(prefill.global_load_sectors, sectors(kv_heads), "prefill, {keys} keys");
        assert_eq!(decode.global_load_sectors, sectors(kv_heads * splits), "decode, {keys} keys");
        // Outputs are written in whole sectors, decode's in f32. With each goes a pair of highest score and sum, where a
        // sector holds four; a warp's first two rows are stored together.
        assert_eq!(prefill.global_store_sectors, (heads * row) as u64);
        let (parts, states) = (heads * splits * head_dim * 4 / 32, kv_heads * splits);
        assert_eq!(decode.global_store_sectors, (parts + states) as u64, "{keys} keys");
    }
}
