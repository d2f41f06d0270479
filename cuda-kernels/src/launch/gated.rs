//! A product with its gate: the first half of a feed-forward layer in one kernel, for few rows.

use super::gemm::{self, Gemm, Shares, Weights};
use super::{Address, Error, Launch, MAX_GRID_YZ, Parts, within};

/// Outputs of a block of threads; half of `OUTPUTS` in `cuda/gemm_decode.cu`.
const OUTPUTS: usize = 32;

/// `silu(x * gates) * (x * ups)`, with the bits of [`Gemm::decode`](super::gemm::Gemm::decode) and
/// [`SwiGlu`](super::rows::SwiGlu).
#[derive(Debug, Clone, Copy)]
pub struct GatedGemm {
    /// `[rows][outputs]` in bf16, written.
    pub out: Address,
    /// `[rows][inputs]` in bf16.
    pub x: Address,
    /// Gates and then ups, `[2][outputs][inputs]` in bf16.
    pub weights: Address,
    /// Number of rows.
    pub rows: usize,
    /// Columns of `out`; a multiple of 8.
    pub outputs: usize,
    /// Columns of `x`; a multiple of 8.
    pub inputs: usize,
}

impl GatedGemm {
    /// Whether so many outputs are faster in one kernel: where a block of threads has all inputs of its outputs in any case.
    pub fn is_faster(outputs: usize, inputs: usize) -> bool {
        Shares::of(2 * outputs, inputs) == Shares::Outputs
    }

    /// The launch.
    ///
    /// # Errors
    /// If inputs or outputs are no multiples of 8, if there is nothing to do, or more than a grid or a 32-bit index can
    /// hold.
    pub fn launch(&self) -> Result<Launch, Error> {
        let (rows_of_block, entry) = match self.rows {
            0..=16 => (16, "gemm_decode_swiglu_16"),
            _ => (64, "gemm_decode_swiglu_64"),
        };
        let GatedGemm { out, x, weights, rows, outputs, inputs } = *self;
        // Its sizes are those of a product, and so are its arguments.
        let product = Gemm { out, x, weights: Weights::Bf16(weights), rows, outputs, inputs };
        let counts = product.check(entry)?;
        let across = outputs.div_ceil(OUTPUTS);
        Ok(Launch(Parts {
            ptx: gemm::DECODE,
            entry,
            grid: [
                rows.div_ceil(rows_of_block) as u32,
                1,
                within(entry, "tiles of outputs", across, MAX_GRID_YZ)?,
            ],
            threads: 128,
            shared_bytes: (gemm::SPLIT * (rows_of_block + 2 * OUTPUTS) * 2) as u32,
            arguments: product.arguments(out, counts),
        }))
    }
}
