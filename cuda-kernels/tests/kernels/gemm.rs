//! Matrix products: the same bits in any batch, and no byte read in vain.

use crate::gpu::Gpu;
use crate::mutants::Prepared;
use cuda_kernels::check::Bench;
use cuda_kernels::check::gemm::{Case, hopper_gives_the_same_bits};
use cuda_kernels::gated::GatedGemm;
use cuda_kernels::gemm::{Gemm, Shares, Weights};
use cuda_kernels::{Interpreter, Launch};
use ptx_interpreter::Counts;

/// Runs the kernels under the interpreter.
trait Runs {
    fn prefill(&self) -> (Vec<u16>, Counts);
    fn prefill_hopper(&self) -> (Vec<u16>, Counts);
    fn decode(&self) -> (Vec<u16>, Counts);
}

impl Runs for Case {
    fn prefill(&self) -> (Vec<u16>, Counts) {
        run(self, |gemm| gemm.prefill().unwrap())
    }

    fn prefill_hopper(&self) -> (Vec<u16>, Counts) {
        run(self, |gemm| gemm.prefill_hopper().unwrap())
    }

    fn decode(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<u16>(self.rows() * self.outputs);
        let parts = gpu.bench(|gpu| self.parts(gpu)).address();
        let launches = gpu.bench(|gpu| self.gemm(gpu, out.address())).decode(parts).unwrap();
        let counts: Vec<Counts> = launches.iter().map(|launch| gpu.run(launch)).collect();
        (gpu.download(out), counts[0])
    }
}

/// What one launch gives, and what it counted.
fn run(case: &Case, launch: impl Fn(Gemm) -> Launch) -> (Vec<u16>, Counts) {
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let launch = launch(gpu.bench(|gpu| case.gemm(gpu, out.address())));
    let counts = gpu.run(&launch);
    (gpu.download(out), counts)
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    let case = Case::new(37, 72, 328, false);
    let (prefill, decode) = (case.prefill().0, case.decode().0);
    for row in [0, 7, 16, 36] {
        let x = case.x[row * case.inputs..][..case.inputs].to_vec();
        let alone = Case { x, weights: case.weights.clone(), int8: None, ..case };
        let of_row = row * case.outputs..(row + 1) * case.outputs;
        assert_eq!(alone.prefill().0, prefill[of_row.clone()], "row {row}");
        assert_eq!(alone.decode().0, decode[of_row], "row {row}");
    }
}

#[test]
fn the_interpreter_finds_the_usual_kernel_s_bits_with_hopper_s_instructions() {
    // Beside the edges of tiles, steps and splits.
    for (rows, outputs, inputs) in
        [(1, 8, 8), (63, 192, 256), (65, 200, 264), (130, 72, 512), (300, 392, 1_032)]
    {
        let case = Case::new(rows, outputs, inputs, false);
        let what = format!("{rows} x {outputs} x {inputs}");
        assert!(case.prefill_hopper().0 == case.prefill().0, "{what}");
    }
    assert!(hopper_gives_the_same_bits(&mut Bench::new(&mut Interpreter::new())).unwrap());
}

#[test]
fn memory_is_read_in_whole_sectors_and_banks_do_not_conflict() {
    let (rows, outputs, inputs) = (20, 192, 512);
    let case = Case::new(rows, outputs, inputs, false);
    let sectors = |elements: usize| (elements * 2 / 32) as u64;

    let (_, decode) = case.decode();
    // A block of threads reads all rows of x, and weights of its own; there are three tiles of outputs.
    assert_eq!(decode.global_load_sectors, sectors(rows * inputs) * 3 + sectors(outputs * inputs));
    assert_eq!(decode.global_store_sectors, (2 * rows * outputs * 4 / 32) as u64);
    assert_eq!(decode.bank_conflicts(), 0);
    // More than 16 rows are multiplied as 64.
    assert_eq!(decode.tensor_flops, (2 * 64 * outputs * inputs) as u64);

    let (_, prefill) = case.prefill();
    assert_eq!(prefill.global_load_sectors, sectors(rows * inputs) * 2 + sectors(outputs * inputs));
    assert_eq!(prefill.global_store_sectors, sectors(rows * outputs));
    assert_eq!(prefill.bank_conflicts(), 0);
    assert_eq!(prefill.tensor_flops, (2 * 128 * 256 * inputs) as u64);

    // Of what lies outside of a tile nothing is fetched; outputs are one tile.
    let (_, hopper) = case.prefill_hopper();
    assert_eq!(hopper.global_load_sectors, sectors(rows * inputs) + sectors(outputs * inputs));
    assert_eq!(hopper.global_store_sectors, sectors(rows * outputs));
    assert_eq!(hopper.bank_conflicts(), 0);
    assert_eq!(hopper.tensor_flops, (2 * 128 * 192 * inputs) as u64);
}

/// For mutants: several splits, every stage used twice, and the last step in the stage that the output goes through.
pub(crate) fn prepared_prefill(int8: bool) -> Prepared {
    let case = Case::new(70, 72, 448, int8);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let launch = gpu.bench(|gpu| case.gemm(gpu, out.address())).prefill().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

/// The same for few rows: a block has all splits, so that every stage is used again.
pub(crate) fn prepared_decode(rows: usize, int8: bool) -> Prepared {
    let case = Case::new(rows, 72, 520, int8);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let gemm = gpu.bench(|gpu| case.gemm(gpu, out.address()));
    let launch = gemm.decode_by(Shares::Outputs, 0).unwrap().remove(0);
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

/// The same with the gate: half of the matrix is gates, the other half ups.
pub(crate) fn prepared_gated(rows: usize) -> Prepared {
    let case = Case::new(rows, 144, 520, false);
    let (outputs, inputs) = (case.outputs / 2, case.inputs);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(rows * outputs);
    let Gemm { out: to, x, weights: Weights::Bf16(weights), .. } =
        gpu.bench(|gpu| case.gemm(gpu, out.address()))
    else {
        panic!("weights are in bf16")
    };
    let launch = GatedGemm { out: to, x, weights, rows, outputs, inputs }.launch().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

/// The same for Hopper's: rows of both warpgroups.
pub(crate) fn prepared_prefill_hopper() -> Prepared {
    let case = Case::new(70, 72, 520, false);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let launch = gpu.bench(|gpu| case.gemm(gpu, out.address())).prefill_hopper().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}
