//! A product with its gate, against the two kernels that it stands for, bit for bit.

use super::numbers::Random;
use super::{Bench, Problem, same};
use crate::gated::GatedGemm;
use crate::gemm::{Gemm, Shares, Weights};
use crate::rows::SwiGlu;

/// Rows, outputs, inputs: tiles that are whole and ragged, one split and several.
const SHAPES: [(usize, usize, usize); 5] =
    [(1, 8, 8), (16, 32, 256), (17, 40, 264), (64, 96, 520), (65, 72, 600)];

/// A row has the same bits in one kernel as in two.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for (rows, outputs, inputs) in SHAPES {
        let mut random = Random((rows * outputs + inputs) as u64);
        let x = gpu.upload_bf16(&random.bf16s(rows * inputs, 2.0))?;
        // Sums of all sizes: some gates are nearly shut, and some as good as open.
        let weights = gpu.upload_bf16(&random.bf16s(2 * outputs * inputs, 0.5))?;
        let product = gpu.alloc::<u16>(2 * rows * outputs)?.address();
        let [right, found] = [gpu.alloc::<u16>(rows * outputs)?, gpu.alloc(rows * outputs)?];
        let kind = Weights::Bf16(weights);
        let both = Gemm { out: product, x, weights: kind, rows, outputs: 2 * outputs, inputs };
        gpu.run(&both.decode_by(Shares::Outputs, 0)?)?;
        gpu.run([&SwiGlu { out: right.address(), x: product, rows, width: outputs }.launch()?])?;
        let one = GatedGemm { out: found.address(), x, weights, rows, outputs, inputs };
        gpu.run([&one.launch()?])?;
        let (found, right) = (gpu.download(found)?, gpu.download(right)?);
        same(&format!("{rows} rows of {outputs} gated outputs of {inputs}"), &found, &right)?;
    }
    Ok(())
}
