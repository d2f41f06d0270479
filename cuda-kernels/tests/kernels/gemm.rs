//! Matrix products: right, the same bits from both kernels and in any batch, and no byte read in vain.

use crate::gpu::Gpu;
use crate::mutants::Prepared;
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16, to_bf16};
use cuda_kernels::gemm::{GROUP, Gemm, Weights, splits};
use ptx_interpreter::{Buffer, Counts};

/// A matrix of weights, and x.
struct Case {
    outputs: usize,
    inputs: usize,
    x: Vec<f32>,
    /// As the products see them, `[outputs][inputs]`.
    weights: Vec<f32>,
    /// The bytes and scales that they come from, if they do.
    int8: Option<(Vec<i8>, Vec<f32>)>,
}

impl Case {
    fn new(rows: usize, outputs: usize, inputs: usize, int8: bool) -> Self {
        let mut random = Random((rows * outputs + inputs) as u64);
        let x = random.bf16s(rows * inputs, 2.0);
        if !int8 {
            let weights = random.bf16s(outputs * inputs, 1.0);
            return Case { outputs, inputs, x, weights, int8: None };
        }
        let codes: Vec<i8> = (0..outputs * inputs).map(|_| random.next() as i8).collect();
        let groups = inputs.div_ceil(GROUP);
        let scales: Vec<f32> =
            random.bf16s(outputs * groups, 0.01).iter().map(|s| s.abs() + 1e-3).collect();
        let weight = |i: usize| {
            let scale = scales[i / inputs * groups + i % inputs / GROUP];
            from_bf16(to_bf16(f32::from(codes[i]) * scale))
        };
        let weights = (0..codes.len()).map(weight).collect();
        Case { outputs, inputs, x, weights, int8: Some((codes, scales)) }
    }

    fn rows(&self) -> usize {
        self.x.len() / self.inputs
    }

    /// The product and, beside each element, the sum of its terms' sizes.
    fn right(&self) -> (Vec<f64>, Vec<f64>) {
        let element = |i: usize| {
            let (row, output) = (i / self.outputs, i % self.outputs);
            let x = &self.x[row * self.inputs..][..self.inputs];
            let weights = &self.weights[output * self.inputs..][..self.inputs];
            let terms = x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w));
            (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>())
        };
        (0..self.rows() * self.outputs).map(element).unzip()
    }

    fn gemm(&self, gpu: &mut Gpu, out: u64) -> Gemm {
        let weights = match &self.int8 {
            None => Weights::Bf16(gpu.upload_bf16(&self.weights)),
            Some((codes, scales)) => {
                Weights::Int8 { codes: gpu.upload(codes), scales: gpu.upload(scales) }
            }
        };
        let x = gpu.upload_bf16(&self.x);
        Gemm { out, x, weights, rows: self.rows(), outputs: self.outputs, inputs: self.inputs }
    }

    fn parts(&self, gpu: &mut Gpu) -> Buffer<f32> {
        gpu.alloc(splits(self.inputs) * self.rows() * self.outputs)
    }

    fn prefill(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<u16>(self.rows() * self.outputs);
        let launch = self.gemm(&mut gpu, out.address()).prefill().unwrap();
        let counts = gpu.run(&launch);
        (gpu.download(out), counts)
    }

    fn decode(&self) -> (Vec<u16>, Counts) {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<u16>(self.rows() * self.outputs);
        let parts = self.parts(&mut gpu).address();
        let [split, add] = self.gemm(&mut gpu, out.address()).decode(parts).unwrap();
        let counts = gpu.run(&split);
        gpu.run(&add);
        (gpu.download(out), counts)
    }

    fn decode_f32(&self) -> Vec<f32> {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<f32>(self.rows() * self.outputs);
        let parts = self.parts(&mut gpu).address();
        for launch in self.gemm(&mut gpu, out.address()).decode_f32(parts).unwrap() {
            gpu.run(&launch);
        }
        gpu.download(out)
    }
}

fn floats(bits: &[u16]) -> Vec<f32> {
    bits.iter().copied().map(from_bf16).collect()
}

/// Ragged in every direction; one split, and several with a short one at the end.
const SHAPES: [(usize, usize, usize); 4] =
    [(1, 8, 8), (3, 72, 520), (17, 136, 256), (130, 136, 328)];

#[test]
fn products_are_right() {
    for (rows, outputs, inputs) in SHAPES {
        for int8 in [false, true] {
            let case = Case::new(rows, outputs, inputs, int8);
            let (right, sizes) = case.right();
            // f32 rounds each of `inputs` additions by 2^-24 of at most the sum of the terms' sizes.
            let sum = |i: usize| sizes[i] * inputs as f64 * 2f64.powi(-24);
            let rounded = |i: usize| sum(i) + right[i].abs() * HALF_ULP * 1.01;
            assert_near("decode in f32", &case.decode_f32(), &right, sum);
            assert_near("decode", &floats(&case.decode().0), &right, rounded);
            assert_near("prefill", &floats(&case.prefill().0), &right, rounded);
        }
    }
}

#[test]
fn both_kernels_give_the_same_bits() {
    for (rows, outputs, inputs) in SHAPES {
        for int8 in [false, true] {
            let case = Case::new(rows, outputs, inputs, int8);
            assert_eq!(case.prefill().0, case.decode().0, "{rows} x {outputs} x {inputs}");
        }
    }
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
fn memory_is_read_in_whole_sectors_and_banks_do_not_conflict() {
    let (rows, outputs, inputs) = (20, 192, 512);
    let case = Case::new(rows, outputs, inputs, false);
    let sectors = |elements: usize| (elements * 2 / 32) as u64;

    let (_, decode) = case.decode();
    // Every block of threads reads its rows of x and its weights; there are two tiles of rows and three of outputs.
    assert_eq!(
        decode.global_load_sectors,
        sectors(rows * inputs) * 3 + sectors(outputs * inputs) * 2
    );
    assert_eq!(decode.global_store_sectors, (2 * rows * outputs * 4 / 32) as u64);
    assert_eq!(decode.bank_conflicts(), 0);
    assert_eq!(decode.tensor_flops, (2 * 32 * outputs * inputs) as u64);

    let (_, prefill) = case.prefill();
    assert_eq!(prefill.global_load_sectors, sectors(rows * inputs) * 2 + sectors(outputs * inputs));
    assert_eq!(prefill.global_store_sectors, sectors(rows * outputs));
    assert_eq!(prefill.bank_conflicts(), 0);
    assert_eq!(prefill.tensor_flops, (2 * 128 * 256 * inputs) as u64);
}

/// For mutants: several splits, every stage used twice, and the last step in the stage that the output goes through.
pub(crate) fn prepared_prefill() -> Prepared {
    let case = Case::new(70, 72, 448, false);
    let mut gpu = Gpu::new();
    let out = gpu.alloc::<u16>(case.rows() * case.outputs);
    let launch = case.gemm(&mut gpu, out.address()).prefill().unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(out)) }
}

/// The same for the first of the other two kernels.
pub(crate) fn prepared_decode() -> Prepared {
    let case = Case::new(7, 72, 520, false);
    let mut gpu = Gpu::new();
    let parts = case.parts(&mut gpu);
    let [launch, _] = case.gemm(&mut gpu, 0).decode(parts.address()).unwrap();
    Prepared { gpu, launch, read: Box::new(move |gpu| gpu.bytes(parts)) }
}
