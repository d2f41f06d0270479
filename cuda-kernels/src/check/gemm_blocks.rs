//! Matrix products with weights in blocks, INT4 and FP8.

use super::numbers::{ADDITION, HALF_ULP, Random, from_bf16, from_e4m3, near, to_bf16};
use super::{Bench, Buffer, Problem, same};
use crate::gemm::{BLOCK, Blocks, Gemm, Shares, Weights, splits};
use half::f16;

/// How a block's weights are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// Four bits each, as in Q4_0.
    Int4,
    /// E4M3.
    Fp8,
}

impl Format {
    /// All there are.
    pub const BOTH: [Format; 2] = [Format::Int4, Format::Fp8];

    /// Bytes of a block's codes.
    pub fn code_bytes(self) -> usize {
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
pub struct Case {
    /// How its weights are stored.
    pub format: Format,
    /// Columns of the product.
    pub outputs: usize,
    /// Columns of x.
    pub inputs: usize,
    /// `[rows][inputs]`
    pub x: Vec<f32>,
    /// `[outputs]` rows of blocks: a scale in f16, and the codes.
    pub rows: Vec<u8>,
    /// As the products see them, `[outputs][inputs]`.
    pub weights: Vec<f32>,
}

impl Case {
    /// Weights in blocks from a seed.
    pub fn new(format: Format, rows: usize, outputs: usize, inputs: usize) -> Self {
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

    /// Rows of x.
    pub fn rows(&self) -> usize {
        self.x.len() / self.inputs
    }

    /// The product's description, with the weights in blocks or in bf16.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn gemm(&self, gpu: &mut Bench, out: u64, in_blocks: bool) -> Result<Gemm, Problem> {
        let weights = if in_blocks {
            let code_bytes = self.format.code_bytes();
            let blocks = Blocks::of_rows(&self.rows, self.outputs, code_bytes)?;
            let (codes, scales) = (gpu.upload(&blocks.codes)?, gpu.upload(&blocks.scales)?);
            match self.format {
                Format::Int4 => Weights::Int4 { codes, scales },
                Format::Fp8 => Weights::Fp8 { codes, scales },
            }
        } else {
            Weights::Bf16(gpu.upload_bf16(&self.weights)?)
        };
        let x = gpu.upload_bf16(&self.x)?;
        let rows = self.rows();
        Ok(Gemm { out, x, weights, rows, outputs: self.outputs, inputs: self.inputs })
    }

    /// Room for what the kernels for few rows leave to be added.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn parts(&self, gpu: &mut Bench) -> Result<Buffer<f32>, Problem> {
        gpu.alloc(splits(self.inputs) * self.rows() * self.outputs)
    }

    /// The product, and beside each element the sum of its terms' sizes.
    fn right(&self) -> (Vec<f64>, Vec<f64>) {
        let element = |i: usize| {
            let x = &self.x[i / self.outputs * self.inputs..][..self.inputs];
            let weights = &self.weights[i % self.outputs * self.inputs..][..self.inputs];
            let terms = x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w));
            (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>())
        };
        (0..self.rows() * self.outputs).map(element).unzip()
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

/// Whether products are right, and have the bits that the same weights in bf16 give, from both kernels.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for case in cases() {
        let out = gpu.alloc::<u16>(case.rows() * case.outputs)?;
        let parts = case.parts(gpu)?.address();
        let blocks = case.gemm(gpu, out.address(), true)?;
        let prefill = gpu.written(out, [&blocks.prefill()?])?;
        let mut decoded = Vec::new();
        for shares in [Shares::Outputs, Shares::Splits] {
            decoded.push((shares, gpu.written(out, &blocks.decode_by(shares, parts)?)?));
        }
        let in_bf16 = case.gemm(gpu, out.address(), false)?;
        let plain = gpu.written(out, [&in_bf16.prefill()?])?;
        let what = format!("{:?}, {} inputs", case.format, case.inputs);
        let (right, sizes) = case.right();
        // Each of `inputs` additions is off by so much of at most the sum of the terms' sizes; then once to bf16.
        let bound =
            |i: usize| sizes[i] * case.inputs as f64 * ADDITION + right[i].abs() * HALF_ULP * 1.01;
        let found: Vec<f32> = prefill.iter().copied().map(from_bf16).collect();
        near(&what, &found, &right, bound)?;
        same(&format!("{what}, and the same weights in bf16"), &prefill, &plain)?;
        for (shares, decode) in decoded {
            same(&format!("{what}, by both kernels, blocks have {shares:?}"), &decode, &prefill)?;
        }
    }
    Ok(())
}
