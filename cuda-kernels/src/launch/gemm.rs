//! Matrix products.
//!
//! [`Gemm::prefill`] and [`Gemm::decode`] give the same bits; which one to launch is a question of speed. Up to a few
//! dozen rows the weights' bytes are what takes time, and `decode` reads them with all multiprocessors.

use super::Argument::{I32, Pointer};
use super::{Address, Argument, Error, Launch, MAX_GRID_X, MAX_GRID_YZ, count, must, within};

/// Inputs after which a sum is closed; `GEMM_SPLIT` in `cuda/gemm.cuh`.
pub const SPLIT: usize = 256;
/// Inputs of an output that share a scale where weights are bytes; `GROUP` in `cuda/gemm.cuh`.
pub const GROUP: usize = 64;

const STEP: usize = 64;
const PREFILL: &str = include_str!("../../ptx/gemm_prefill.ptx");
const DECODE: &str = include_str!("../../ptx/gemm_decode.ptx");

/// A matrix's weights.
#[derive(Debug, Clone, Copy)]
pub enum Weights {
    /// `[outputs][inputs]` in bf16.
    Bf16(Address),
    /// Signed bytes, `[outputs][inputs]`, and what they are multiplied with, `[outputs][ceil(inputs / GROUP)]` in f32.
    /// The product of the two is rounded to bf16.
    Int8 {
        /// The bytes.
        codes: Address,
        /// The scales.
        scales: Address,
    },
}

/// `x [rows][inputs]` times the transpose of `weights [outputs][inputs]`.
#[derive(Debug, Clone, Copy)]
pub struct Gemm {
    /// `[rows][outputs]` in bf16, or in f32 for [`Gemm::decode_f32`]; written.
    pub out: Address,
    /// `[rows][inputs]` in bf16.
    pub x: Address,
    /// The matrix.
    pub weights: Weights,
    /// Number of rows.
    pub rows: usize,
    /// Columns of `out`; a multiple of 8.
    pub outputs: usize,
    /// Columns of `x`; a multiple of 8.
    pub inputs: usize,
}

/// In how many splits so many inputs are summed: [`Gemm::decode`] needs room for `[splits][rows][outputs]` in f32.
pub fn splits(inputs: usize) -> usize {
    inputs.div_ceil(SPLIT)
}

impl Gemm {
    fn check(&self, entry: &'static str) -> Result<[Argument; 3], Error> {
        let expected = "a multiple of 8";
        must(self.outputs.is_multiple_of(8), entry, "number of outputs", self.outputs, expected)?;
        must(self.inputs.is_multiple_of(8), entry, "number of inputs", self.inputs, expected)?;
        let counts = [
            count(entry, "number of rows", self.rows)?,
            count(entry, "number of outputs", self.outputs)?,
            count(entry, "number of inputs", self.inputs)?,
        ];
        let all = self.rows.saturating_mul(self.outputs);
        must(
            all <= super::MAX_WIDTH,
            entry,
            "rows times outputs",
            all,
            format!("at most {}", super::MAX_WIDTH),
        )?;
        Ok(counts)
    }

    fn entry(&self, bf16: &'static str, int8: &'static str) -> &'static str {
        match self.weights {
            Weights::Bf16(_) => bf16,
            Weights::Int8 { .. } => int8,
        }
    }

    fn arguments(&self, to: Address, counts: [Argument; 3]) -> Vec<Argument> {
        let weights = match self.weights {
            Weights::Bf16(weights) => vec![weights],
            Weights::Int8 { codes, scales } => vec![codes, scales],
        };
        [to, self.x].into_iter().chain(weights).map(Pointer).chain(counts).collect()
    }

    /// One block of threads for each 128 by 128 outputs.
    ///
    /// # Errors
    /// If inputs or outputs are no multiples of 8, if there is nothing to do, or more than a grid or a 32-bit index can
    /// hold.
    pub fn prefill(&self) -> Result<Launch, Error> {
        let entry = self.entry("gemm_prefill", "gemm_prefill_int8");
        let counts = self.check(entry)?;
        let (rows, outputs, stages) = (128, 128, 3);
        let across =
            within(entry, "tiles of outputs", self.outputs.div_ceil(outputs), MAX_GRID_YZ)?;
        Ok(Launch {
            ptx: PREFILL,
            entry,
            grid: [self.rows.div_ceil(rows) as u32, across, 1],
            threads: 256,
            shared_bytes: (stages * (rows + outputs) * STEP * 2) as u32,
            arguments: self.arguments(self.out, counts),
        })
    }

    /// One block of threads for each 64 outputs, 16 rows and [`SPLIT`] inputs, and the kernel that adds the splits. Room
    /// for `[splits][rows][outputs]` in f32 is at `parts`.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode(&self, parts: Address) -> Result<[Launch; 2], Error> {
        Ok([self.split(parts)?, self.add("add_splits", parts)?])
    }

    /// The same with the result in f32.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode_f32(&self, parts: Address) -> Result<[Launch; 2], Error> {
        Ok([self.split(parts)?, self.add("add_splits_f32", parts)?])
    }

    fn split(&self, parts: Address) -> Result<Launch, Error> {
        let entry = self.entry("gemm_decode", "gemm_decode_int8");
        let counts = self.check(entry)?;
        let (rows, outputs) = (16, 64);
        let grid = [
            within(entry, "tiles of outputs", self.outputs.div_ceil(outputs), MAX_GRID_X)?,
            within(entry, "splits of inputs", splits(self.inputs), MAX_GRID_YZ)?,
            within(entry, "tiles of rows", self.rows.div_ceil(rows), MAX_GRID_YZ)?,
        ];
        Ok(Launch {
            ptx: DECODE,
            entry,
            grid,
            threads: 128,
            shared_bytes: (SPLIT * (rows + outputs) * 2) as u32,
            arguments: self.arguments(parts, counts),
        })
    }

    fn add(&self, entry: &'static str, parts: Address) -> Result<Launch, Error> {
        let count = self.rows * self.outputs;
        let counts = [splits(self.inputs), count].map(|n| I32(n as i32));
        Ok(Launch {
            ptx: DECODE,
            entry,
            grid: [(count as u32).div_ceil(super::THREADS), 1, 1],
            threads: super::THREADS,
            shared_bytes: 0,
            arguments: [self.out, parts].map(Pointer).into_iter().chain(counts).collect(),
        })
    }
}
