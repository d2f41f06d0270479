//! Multi-head latent attention over the paged latents.

use crate::gpu::Gpu;
use crate::mutants::{Prepared, is_noticed};
use cuda_kernels::attention::{MLA_KEY, MLA_VALUE, splits};
use cuda_kernels::check::mla::{Case, requests};
use cuda_kernels::check::paged::Request;
use ptx_interpreter::Counts;

/// Runs the kernels under the interpreter.
trait Runs {
    fn decode(&self) -> (Vec<u16>, Counts);
    fn prefill(&self) -> (Vec<u16>, Counts);
}

impl Runs for Case {
    fn decode(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, workspace, out) = gpu.bench(|gpu| self.place(gpu));
        let [decode, join] = attention.decode(workspace).unwrap();
        let counts = gpu.run(&decode);
        gpu.run(&join);
        (gpu.download(out), counts)
    }

    fn prefill(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let (attention, _, out) = gpu.bench(|gpu| self.place(gpu));
        let counts = gpu.run(&attention.prefill().unwrap());
        (gpu.download(out), counts)
    }
}

#[test]
fn banks_do_not_conflict() {
    let case = Case::new(20, &requests(), 1);
    for (what, (_, counts)) in [("decode", case.decode()), ("prefill", case.prefill())] {
        assert_eq!(counts.bank_conflicts(), 0, "{what}");
    }
}

#[test]
fn a_request_has_the_same_bits_alone_and_among_others() {
    let case = Case::new(4, &requests(), 2);
    let (decode, prefill) = (case.decode().0, case.prefill().0);
    let row = 4 * MLA_VALUE;
    for (request, rows) in [(1, 1..2), (4, 7..27)] {
        let rows = rows.start * row..rows.end * row;
        assert!(case.only(request).decode().0 == decode[rows.clone()], "decode of {request}");
        assert!(case.only(request).prefill().0 == prefill[rows], "prefill of {request}");
    }
}

#[test]
fn a_prompt_has_the_same_bits_in_one_piece_and_in_several() {
    let case = Case::new(4, &[Request::text(140, 90)], 4);
    let mut pieces = Vec::new();
    for (from, to) in [(0, 33), (33, 34), (34, 90)] {
        let piece = case.piece(0, from, to);
        pieces.extend(if to - from == 1 { piece.decode().0 } else { piece.prefill().0 });
    }
    assert!(pieces == case.prefill().0);
}

#[test]
fn splits_have_the_same_bits_from_any_number_of_blocks() {
    let case = Case::new(4, &[Request::text(600, 2), Request::text(512, 1)], 7);
    let right = case.decode().0;
    for across in 1..3 {
        let mut gpu = Gpu::new();
        let (attention, workspace, out) = gpu.bench(|gpu| case.place(gpu));
        let [decode, join] = attention.decode(workspace).unwrap();
        assert_eq!(decode.grid[0], 3);
        gpu.run_across(&decode, across);
        gpu.run(&join);
        assert!(gpu.download::<u16>(out) == right, "{across} across");
    }
}

#[test]
fn a_latent_is_read_once_for_32_rows_of_queries_and_heads() {
    let (heads, keys, queries) = (16, 130, 4);
    let (_, counts) = Case::new(heads, &[Request::text(keys, queries)], 5).prefill();
    let row = MLA_KEY * 2 / 32;
    // Two queries to a block of threads: the first two see two tiles, the last two see all keys.
    let seen = [128, keys];
    let latents = seen.iter().sum::<usize>() * row;
    // A warp has four latents of the 32 that are fetched together, and looks their block up: one sector.
    let lookups: usize = seen.iter().map(|keys| keys.div_ceil(4)).sum();
    let queries = queries * heads * row;
    // Each of the eight warps reads the length and two starts.
    let beside = seen.len() * 8 * 3;
    assert_eq!(counts.global_load_sectors, (latents + lookups + queries + beside) as u64);
    assert_eq!(counts.global_store_sectors, (4 * heads * MLA_VALUE * 2 / 32) as u64);
}

/// For mutants: two splits, and tiles enough that each half's place is used again.
pub(crate) fn prepared() -> Prepared {
    let case = Case::new(8, &[Request::text(330, 5)], 6);
    let mut gpu = Gpu::new();
    let (attention, _, out) = gpu.bench(|gpu| case.place(gpu));
    let launch = attention.prefill().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

/// The same for the first of the other two kernels.
pub(crate) fn prepared_decode() -> Prepared {
    let case = Case::new(8, &[Request::text(330, 5)], 6);
    let mut gpu = Gpu::new();
    let (attention, workspace, _) = gpu.bench(|gpu| case.place(gpu));
    let parts = 5 * 8 * splits(330) * MLA_VALUE;
    let [launch, _] = attention.decode(workspace).unwrap();
    let read = move |gpu: &Gpu| gpu.at(workspace.parts, parts * 4);
    Prepared { gpu, launch, read: Box::new(read) }
}

#[test]
fn a_kernel_that_is_broken_is_noticed() {
    // Copies that are not waited for.
    let wait = |line: &str| line.replace("wait_group 0", "wait_group 1");
    is_noticed(prepared, |line| line.contains("wait_group 0").then(|| wait(line)));
    // A weight, or what sums are multiplied with, that is 1.
    is_noticed(prepared, |line| {
        let (_, operands) = line.split_once("ex2.approx.ftz.f32 ")?;
        let (to, _) = operands.split_once(',')?;
        Some(format!("mov.f32 {to}, 0f3F800000;"))
    });
}
