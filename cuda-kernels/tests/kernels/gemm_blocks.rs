//! Matrix products with weights in blocks, INT4 and FP8: fewer bytes read, and the same bits in any batch.

use crate::gpu::Gpu;
use crate::mutants::{Prepared, is_noticed};
use cuda_kernels::Launch;
use cuda_kernels::check::gemm_blocks::{Case, Format};
use cuda_kernels::gemm::{BLOCK, Blocks, Gemm, Shares};
use ptx_interpreter::Counts;

/// Runs the kernels under the interpreter.
trait Runs {
    fn prefill(&self, in_blocks: bool) -> (Vec<u16>, Counts);
    fn decode(&self, in_blocks: bool) -> (Vec<u16>, Counts);
}

impl Runs for Case {
    fn prefill(&self, in_blocks: bool) -> (Vec<u16>, Counts) {
        run(self, in_blocks, |gemm, _| vec![gemm.prefill().unwrap()])
    }

    fn decode(&self, in_blocks: bool) -> (Vec<u16>, Counts) {
        run(self, in_blocks, |gemm, parts| gemm.decode(parts).unwrap())
    }
}

/// What the launches give, and what the first of them counted.
fn run(
    case: &Case,
    in_blocks: bool,
    launches: impl Fn(Gemm, u64) -> Vec<Launch>,
) -> (Vec<u16>, Counts) {
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let parts = gpu.bench(|gpu| case.parts(gpu)).address();
    let gemm = gpu.bench(|gpu| case.gemm(gpu, out.address(), in_blocks));
    let counts: Vec<Counts> = launches(gemm, parts).iter().map(|launch| gpu.run(launch)).collect();
    (gpu.download(out), counts[0])
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    for format in Format::BOTH {
        let case = Case::new(format, 37, 72, 352);
        let (prefill, decode) = (case.prefill(true).0, case.decode(true).0);
        for row in [0, 16, 36] {
            let x = case.x[row * case.inputs..][..case.inputs].to_vec();
            let (rows, weights) = (case.rows.clone(), case.weights.clone());
            let alone = Case { x, rows, weights, ..case };
            let of_row = row * case.outputs..(row + 1) * case.outputs;
            assert_eq!(alone.prefill(true).0, prefill[of_row.clone()], "{format:?}, row {row}");
            assert_eq!(alone.decode(true).0, decode[of_row], "{format:?}, row {row}");
        }
    }
}

#[test]
fn memory_is_read_in_whole_sectors_and_banks_do_not_conflict() {
    let (rows, outputs, inputs) = (20, 192, 512);
    for format in Format::BOTH {
        let case = Case::new(format, rows, outputs, inputs);
        let (_, decode) = case.decode(true);
        let (_, prefill) = case.prefill(true);
        // What weighs a code and a half-precision scale.
        let codes = outputs * inputs / BLOCK * format.code_bytes() / 32;
        // A warp reads 512 bytes at a time: so many outputs' codes of GEMM_STEP inputs, and two blocks' scales of as many
        // outputs, a sector for each.
        let scales = codes * 32 / 512 * 2;
        let x = rows * inputs * 2 / 32;
        // Weights are read once, and x for each tile of outputs: three of them, two of the other kernel's.
        assert_eq!(decode.global_load_sectors, (x * 3 + codes + scales) as u64, "{format:?}");
        assert_eq!(prefill.global_load_sectors, (x * 2 + codes + scales) as u64, "{format:?}");
        assert_eq!(decode.bank_conflicts() + prefill.bank_conflicts(), 0, "{format:?}");
        assert_eq!(decode.tensor_flops, (2 * 64 * outputs * inputs) as u64);
        assert_eq!(prefill.tensor_flops, (2 * 128 * 256 * inputs) as u64);
    }
}

/// The kernel's instructions that fetch codes, unpack them and multiply, in order; one for several of a kind.
pub(crate) fn order(launch: &Launch) -> Vec<&'static str> {
    let entry = format!(".visible .entry {}(", launch.entry);
    let body = &launch.ptx[launch.ptx.find(&entry).unwrap()..];
    let body = &body[..body.find("\n}").unwrap()];
    let words =
        [("ld.global.nc.v4", "fetch"), ("st.shared.v4", "unpack"), ("mma.sync", "multiply")];
    let of_line = |line: &str| words.iter().find(|(word, _)| line.contains(word));
    let mut order: Vec<&str> = body.lines().filter_map(of_line).map(|(_, what)| *what).collect();
    order.dedup();
    order
}

/// What is fetched is under way while what was fetched before is multiplied.
pub(crate) const OVERLAPPED: [&str; 5] = ["fetch", "unpack", "fetch", "multiply", "unpack"];

#[test]
fn weights_are_under_way_while_something_else_is_done() {
    for format in Format::BOTH {
        assert_eq!(order(&prepared(format, None).launch), OVERLAPPED, "{format:?}");
        // For few rows all of a split is asked for at once, and unpacked a step at a time; a step of the next split is asked
        // for when its stage has been read.
        let steps = ["unpack", "fetch", "multiply"].repeat(4);
        for rows in [7, 20] {
            let order = order(&prepared(format, Some(rows)).launch);
            assert_eq!(order, [&["fetch"], &steps[..]].concat(), "{format:?}, {rows} rows");
        }
    }
}

#[test]
fn a_matrix_of_blocks_is_taken_apart() {
    let block = |scale: u8, code: u8| [&[scale, 0x3c][..], &[code; 16]].concat();
    let rows = [block(1, 11), block(2, 12), block(3, 13), block(4, 14), block(5, 15), block(6, 16)];
    let blocks = Blocks::of_rows(&rows.concat(), 2, 16).unwrap();
    assert_eq!(blocks.scales, [0x3c01, 0x3c04, 0x3c02, 0x3c05, 0x3c03, 0x3c06]);
    let codes: Vec<u8> = (11..=16).flat_map(|code| [code; 16]).collect();
    assert_eq!(blocks.codes, codes);
}

/// For mutants: several splits, every stage used twice, and the last step in the stage that the output goes through. With
/// few rows, the kernel for so many; otherwise the one for prompts.
pub(crate) fn prepared(format: Format, few: Option<usize>) -> Prepared {
    let case = Case::new(format, few.unwrap_or(70), 72, 448);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let gemm = gpu.bench(|gpu| case.gemm(gpu, out.address(), true));
    let launch = match few {
        None => gemm.prefill().unwrap(),
        Some(_) => gemm.decode_by(Shares::Outputs, 0).unwrap().remove(0),
    };
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

#[test]
fn a_code_that_is_taken_apart_wrongly_is_noticed() {
    let changed = |from: &'static str, to: &'static str| {
        move |line: &str| line.contains(from).then(|| line.replace(from, to))
    };
    // 2^23 + 8 without the eight; the wrong four bits of the upper halves; 2^120 halved.
    is_noticed(|| prepared(Format::Int4, Some(20)), changed(", 4;", ", 8;"));
    is_noticed(|| prepared(Format::Int4, Some(20)), changed("0f4B000008", "0f4B000000"));
    is_noticed(|| prepared(Format::Fp8, Some(20)), changed("0f7B800000", "0f7B000000"));
}
