//! Matrix products with weights in blocks, INT4 and FP8: the bits that the same weights in bf16 give, and fewer bytes read.

use crate::gpu::Gpu;
use crate::mutants::{Prepared, is_noticed};
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16, from_e4m3, to_bf16};
use cuda_kernels::Launch;
use cuda_kernels::gemm::{BLOCK, Blocks, Gemm, Weights, splits};
use half::f16;
use ptx_interpreter::{Buffer, Counts};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Int4,
    Fp8,
}

impl Format {
    const BOTH: [Format; 2] = [Format::Int4, Format::Fp8];

    /// Bytes of a block's codes.
    fn code_bytes(self) -> usize {
        match self {
            Format::Int4 => BLOCK / 2,
            Format::Fp8 => BLOCK,
        }
    }

    /// The number of a block's weight, before it is multiplied with the scale.
    fn number(self, codes: &[u8], i: usize) -> f32 {
        match self {
            Format::Int4 => f32::from((codes[i % 16] >> (4 * (i / 16))) & 15) - 8.0,
            Format::Fp8 => from_e4m3(codes[i]),
        }
    }
}

/// A matrix in blocks, and x.
struct Case {
    format: Format,
    outputs: usize,
    inputs: usize,
    x: Vec<f32>,
    /// `[outputs]` rows of blocks: a scale in f16, and the codes.
    rows: Vec<u8>,
    /// As the products see them, `[outputs][inputs]`.
    weights: Vec<f32>,
}

impl Case {
    fn new(format: Format, rows: usize, outputs: usize, inputs: usize) -> Self {
        let mut random = Random((rows * outputs + inputs) as u64);
        let x = random.bf16s(rows * inputs, 2.0);
        let (mut bytes, mut weights) = (Vec::new(), Vec::new());
        for _ in 0..outputs * inputs / BLOCK {
            // The largest weight is about 1. In Q4_0 a scale may be negative.
            let scale = random.bf16s(1, if format == Format::Int4 { 0.1 } else { 0.002 })[0];
            let scale = f16::from_f32(scale);
            let mut codes: Vec<u8> =
                (0..format.code_bytes()).map(|_| random.next() as u8).collect();
            if format == Format::Fp8 {
                codes.iter_mut().filter(|code| **code & 0x7f == 0x7f).for_each(|code| *code = 0);
            }
            bytes.extend(scale.to_le_bytes());
            let weight = |i| from_bf16(to_bf16(format.number(&codes, i) * scale.to_f32()));
            weights.extend((0..BLOCK).map(weight));
            bytes.extend(codes);
        }
        Case { format, outputs, inputs, x, rows: bytes, weights }
    }

    fn rows(&self) -> usize {
        self.x.len() / self.inputs
    }

    fn gemm(&self, gpu: &mut Gpu, out: u64, in_blocks: bool) -> Gemm {
        let weights = if in_blocks {
            let code_bytes = self.format.code_bytes();
            let blocks = Blocks::of_rows(&self.rows, self.outputs, code_bytes).unwrap();
            let (codes, scales) = (gpu.upload(&blocks.codes), gpu.upload(&blocks.scales));
            match self.format {
                Format::Int4 => Weights::Int4 { codes, scales },
                Format::Fp8 => Weights::Fp8 { codes, scales },
            }
        } else {
            Weights::Bf16(gpu.upload_bf16(&self.weights))
        };
        let x = gpu.upload_bf16(&self.x);
        Gemm { out, x, weights, rows: self.rows(), outputs: self.outputs, inputs: self.inputs }
    }

    fn parts(&self, gpu: &mut Gpu) -> Buffer<f32> {
        gpu.alloc(splits(self.inputs) * self.rows() * self.outputs)
    }

    /// What the launches give, and what the first of them counted.
    fn run(
        &self,
        in_blocks: bool,
        launches: impl Fn(Gemm, u64) -> Vec<Launch>,
    ) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<u16>(self.rows() * self.outputs);
        let parts = self.parts(&mut gpu).address();
        let gemm = self.gemm(&mut gpu, out.address(), in_blocks);
        let counts: Vec<Counts> =
            launches(gemm, parts).iter().map(|launch| gpu.run(launch)).collect();
        (gpu.download(out), counts[0])
    }

    fn prefill(&self, in_blocks: bool) -> (Vec<u16>, Counts) {
        self.run(in_blocks, |gemm, _| vec![gemm.prefill().unwrap()])
    }

    fn decode(&self, in_blocks: bool) -> (Vec<u16>, Counts) {
        self.run(in_blocks, |gemm, parts| gemm.decode(parts).unwrap().into())
    }
}

/// Ragged in every direction; one split, and several with a short one at the end, half of a step too.
const SHAPES: [(usize, usize, usize); 4] =
    [(1, 8, 32), (3, 72, 544), (17, 136, 256), (130, 136, 352)];

fn cases() -> impl Iterator<Item = Case> {
    SHAPES.into_iter().flat_map(|(rows, outputs, inputs)| {
        Format::BOTH.map(|format| Case::new(format, rows, outputs, inputs))
    })
}

#[test]
fn products_are_right() {
    for case in cases() {
        let found: Vec<f32> = case.prefill(true).0.into_iter().map(from_bf16).collect();
        let terms = |i: usize| {
            let x = &case.x[i / case.outputs * case.inputs..][..case.inputs];
            let weights = &case.weights[i % case.outputs * case.inputs..][..case.inputs];
            x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w))
        };
        let right: Vec<f64> = (0..found.len()).map(|i| terms(i).sum()).collect();
        // f32 rounds each of `inputs` additions by 2^-24 of at most the sum of the terms' sizes; then once to bf16.
        let bound = |i: usize| {
            let sum = terms(i).map(f64::abs).sum::<f64>() * case.inputs as f64 * 2f64.powi(-24);
            sum + right[i].abs() * HALF_ULP * 1.01
        };
        let what = format!("{:?}, {} inputs", case.format, case.inputs);
        assert_near(&what, &found, &right, bound);
    }
}

#[test]
fn blocks_give_the_bits_of_the_same_weights_in_bf16_from_both_kernels() {
    for case in cases() {
        let right = case.prefill(false).0;
        assert_eq!(case.prefill(true).0, right, "{:?}, {} inputs", case.format, case.inputs);
        assert_eq!(case.decode(true).0, right, "{:?}, {} inputs", case.format, case.inputs);
    }
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
        // Two tiles of rows read the weights and three of outputs x; the other kernel has one and two.
        assert_eq!(decode.global_load_sectors, (x * 3 + (codes + scales) * 2) as u64, "{format:?}");
        assert_eq!(prefill.global_load_sectors, (x * 2 + codes + scales) as u64, "{format:?}");
        assert_eq!(decode.bank_conflicts() + prefill.bank_conflicts(), 0, "{format:?}");
        assert_eq!(decode.tensor_flops, (2 * 32 * outputs * inputs) as u64);
        assert_eq!(prefill.tensor_flops, (2 * 128 * 256 * inputs) as u64);
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

/// For mutants: several splits, every stage used twice, and the last step in the stage that the output goes through.
fn prepared(format: Format, is_prefill: bool) -> Prepared {
    let case = Case::new(format, 70, 72, 448);
    let mut gpu = Gpu::new();
    let (out, parts) = (gpu.alloc::<u16>(case.rows() * case.outputs), case.parts(&mut gpu));
    let gemm = case.gemm(&mut gpu, out.address(), true);
    if is_prefill {
        let launch = gemm.prefill().unwrap();
        return Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) };
    }
    let [launch, _] = gemm.decode(parts.address()).unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(parts)) }
}

#[test]
fn a_code_that_is_taken_apart_wrongly_is_noticed() {
    let changed = |from: &'static str, to: &'static str| {
        move |line: &str| line.contains(from).then(|| line.replace(from, to))
    };
    // 2^23 + 8 without the eight; the wrong four bits of the upper halves; 2^120 halved.
    is_noticed(|| prepared(Format::Int4, false), changed(", 4;", ", 8;"));
    is_noticed(|| prepared(Format::Int4, false), changed("0f4B000008", "0f4B000000"));
    is_noticed(|| prepared(Format::Fp8, false), changed("0f7B800000", "0f7B000000"));
}

#[test]
fn a_dropped_barrier_is_noticed() {
    let without = |line: &str| line.contains("bar.sync").then(String::new);
    is_noticed(|| prepared(Format::Int4, true), without);
    is_noticed(|| prepared(Format::Int4, false), without);
    is_noticed(|| prepared(Format::Fp8, true), without);
}
