//! Matrix products.

use super::numbers::{ADDITION, HALF_ULP, Random, from_bf16, near, to_bf16};
use super::{Bench, Buffer, Problem, same};
use crate::gemm::{GROUP, Gemm, Shares, Weights, splits};

/// A matrix of weights, and x.
pub struct Case {
    /// Columns of the product.
    pub outputs: usize,
    /// Columns of x.
    pub inputs: usize,
    /// `[rows][inputs]`
    pub x: Vec<f32>,
    /// As the products see them, `[outputs][inputs]`.
    pub weights: Vec<f32>,
    /// The bytes and scales that they come from, if they do.
    pub int8: Option<(Vec<i8>, Vec<f32>)>,
}

impl Case {
    /// Weights in bf16, or in bytes with scales.
    pub fn new(rows: usize, outputs: usize, inputs: usize, int8: bool) -> Self {
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

    /// Rows of x.
    pub fn rows(&self) -> usize {
        self.x.len() / self.inputs
    }

    /// The product and, beside each element, the sum of its terms' sizes.
    pub fn right(&self) -> (Vec<f64>, Vec<f64>) {
        let element = |i: usize| {
            let (row, output) = (i / self.outputs, i % self.outputs);
            let x = &self.x[row * self.inputs..][..self.inputs];
            let weights = &self.weights[output * self.inputs..][..self.inputs];
            let terms = x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w));
            (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>())
        };
        (0..self.rows() * self.outputs).map(element).unzip()
    }

    /// The product's description.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn gemm(&self, gpu: &mut Bench, out: u64) -> Result<Gemm, Problem> {
        let weights = match &self.int8 {
            None => Weights::Bf16(gpu.upload_bf16(&self.weights)?),
            Some((codes, scales)) => {
                Weights::Int8 { codes: gpu.upload(codes)?, scales: gpu.upload(scales)? }
            }
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
}

/// Ragged in every direction; one split, and several with a short one at the end.
pub const SHAPES: [(usize, usize, usize); 4] =
    [(1, 8, 8), (3, 72, 520), (41, 136, 640), (130, 136, 328)];

/// Whether the kernels for many rows and for few are right and give the same bits.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for (rows, outputs, inputs) in SHAPES {
        for int8 in [false, true] {
            let case = Case::new(rows, outputs, inputs, int8);
            let (right, sizes) = case.right();
            let out = gpu.alloc::<u16>(rows * outputs)?;
            let whole = gpu.alloc::<f32>(rows * outputs)?;
            let parts = case.parts(gpu)?;
            let product = case.gemm(gpu, out.address())?;
            let what = format!("{rows} x {outputs} x {inputs}, in bytes: {int8}");
            // Each of `inputs` additions is off by so much of at most the sum of the terms' sizes.
            let sum = |i: usize| sizes[i] * inputs as f64 * ADDITION;
            let rounded = |i: usize| sum(i) + right[i].abs() * HALF_ULP * 1.01;
            let prefill = gpu.written(out, [&product.prefill()?])?;
            let found: Vec<f32> = prefill.iter().copied().map(from_bf16).collect();
            near(&format!("products, {what}"), &found, &right, rounded)?;
            for shares in [Shares::Outputs, Shares::Splits] {
                let decode = gpu.written(out, &product.decode_by(shares, parts.address())?)?;
                let what = format!("products by both kernels, {what}, blocks have {shares:?}");
                same(&what, &decode, &prefill)?;
            }
            // Its splits have been there, rounded or not.
            gpu.poison(parts)?;
            let in_f32 = Gemm { out: whole.address(), ..product }.decode_f32(parts.address())?;
            near(&format!("products in f32, {what}"), &gpu.written(whole, &in_f32)?, &right, sum)?;
        }
    }
    Ok(())
}

/// For the kernel with Hopper's instructions. One input chunk and one tile; rows for one warpgroup's tile and a bit of the
/// other's; several tiles, splits that are short and such that each stage is used again; more rows than a band of tiles has.
const HOPPER_SHAPES: [(usize, usize, usize); 5] =
    [(1, 8, 8), (70, 72, 256), (130, 200, 264), (300, 392, 1032), (2_100, 200, 72)];

/// Whether the kernel with Hopper's instructions is right. Whether it gives the others' bits is another question:
/// [`hopper_gives_the_same_bits`].
///
/// # Errors
/// Names what is wrong.
pub(super) fn check_hopper(gpu: &mut Bench) -> Result<(), Problem> {
    for (rows, outputs, inputs) in HOPPER_SHAPES {
        let case = Case::new(rows, outputs, inputs, false);
        let (right, sizes) = case.right();
        let out = gpu.alloc::<u16>(rows * outputs)?;
        let product = case.gemm(gpu, out.address())?;
        gpu.run([&product.prefill_hopper()?])?;
        // As for the others.
        let bound =
            |i: usize| sizes[i] * inputs as f64 * ADDITION + right[i].abs() * HALF_ULP * 1.01;
        let what = format!("Hopper's products, {rows} x {outputs} x {inputs}");
        near(&what, &gpu.download_bf16(out)?, &right, bound)?;
    }
    Ok(())
}

/// Whether this device gives the same bits for a small case from the kernel with Hopper's instructions and from the other.
/// Both add the same products in the same order; whether `wgmma` rounds the sums as `mma` does, only a device can say.
///
/// # Errors
/// If the device refuses or fails.
pub fn hopper_gives_the_same_bits(gpu: &mut Bench) -> Result<bool, Problem> {
    // Rows of both warpgroups, a second tile of outputs, and a third split that is short.
    let case = Case::new(70, 200, 584, false);
    let [hopper, usual] = [0; 2].map(|_| gpu.alloc::<u16>(case.rows() * case.outputs));
    let (hopper, usual) = (hopper?, usual?);
    let product = case.gemm(gpu, usual.address())?;
    let on_hopper = Gemm { out: hopper.address(), ..product };
    gpu.run([&product.prefill()?, &on_hopper.prefill_hopper()?])?;
    Ok(gpu.download(hopper)? == gpu.download(usual)?)
}
