//! Matrix products.
//!
//! [`Gemm::prefill`] and [`Gemm::decode`] give the same bits; which one to launch is a question of speed. Up to a few
//! dozen rows the weights' bytes are what takes time, and `decode` reads them with all multiprocessors.
//! [`Gemm::prefill_hopper`] does what `prefill` does with the instructions that Hopper has beside.

use super::Argument::{I32, Pointer};
use super::cache::check_bases;
use super::{
    Address, Argument, Error, Launch, MAX_GRID_X, MAX_GRID_YZ, Parts, TensorMap, count, multiple,
    must, within,
};

/// Inputs after which a sum is closed; `GEMM_SPLIT` in `cuda/gemm.cuh`.
pub const SPLIT: usize = 256;
/// Inputs of an output that share a scale where weights are bytes; `GROUP` in `cuda/gemm.cuh`.
pub const GROUP: usize = 64;

/// Inputs of a block of [`Weights::Int4`] and [`Weights::Fp8`]; `BLOCK` in `cuda/gemm.cuh`.
pub const BLOCK: usize = 32;

const STEP: usize = 64;

/// Outputs of a block of threads of [`Gemm::decode`]; `OUTPUTS` in `cuda/gemm_decode.cu`.
const OUTPUTS: usize = 64;
/// So many blocks keep all multiprocessors of a large GPU (132 on an H200) reading: with fewer, a block's share is smaller.
const ENOUGH_BLOCKS: usize = 192;

const PREFILL: &str = include_str!("../../ptx/gemm_prefill.ptx");
const HOPPER: &str = include_str!("../../ptx/gemm_prefill_hopper.ptx");
pub(super) const DECODE: &str = include_str!("../../ptx/gemm_decode.ptx");

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
    /// Four bits each, in blocks of [`BLOCK`] inputs: 16 bytes, of which byte i has input i in its lower half and input
    /// i + 16 in its upper half, each eight more than the number. [`Blocks`] makes them of rung 04's INT4.
    Int4 {
        /// `[outputs][inputs / BLOCK][16]` in bytes.
        codes: Address,
        /// `[inputs / BLOCK][outputs]` in f16; a code's number times its scale is rounded to bf16.
        scales: Address,
    },
    /// FP8, E4M3 (arXiv 2209.05433), with a scale for [`BLOCK`] inputs. [`Blocks`] makes them of rung 04's FP8.
    Fp8 {
        /// `[outputs][inputs]` in bytes.
        codes: Address,
        /// As [`Weights::Int4`]'s.
        scales: Address,
    },
}

/// A matrix of blocks with their codes and scales apart, as the kernels read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// `[outputs][inputs / BLOCK]` blocks of codes.
    pub codes: Vec<u8>,
    /// `[inputs / BLOCK][outputs]` in f16's bits.
    pub scales: Vec<u16>,
}

impl Blocks {
    /// From `[outputs]` rows of blocks as rung 04 and GGUF files have them: a scale in f16, then `code_bytes` of codes, 16
    /// in Q4_0 and 32 in FP8.
    ///
    /// # Errors
    /// If the bytes are not `outputs` rows of whole blocks.
    pub fn of_rows(rows: &[u8], outputs: usize, code_bytes: usize) -> Result<Self, Error> {
        let block = 2 + code_bytes;
        let is_whole = outputs > 0 && rows.len().is_multiple_of(outputs * block);
        let expected = || format!("{outputs} rows of blocks of {block} bytes");
        must(is_whole, "a matrix of blocks", "number of bytes", rows.len(), expected())?;
        let blocks = rows.chunks_exact(block);
        let of_row = rows.len() / block / outputs;
        let mut scales = vec![0; outputs * of_row];
        for (i, block) in blocks.clone().enumerate() {
            scales[i % of_row * outputs + i / of_row] = u16::from_le_bytes([block[0], block[1]]);
        }
        Ok(Blocks { codes: blocks.flat_map(|block| &block[2..]).copied().collect(), scales })
    }
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
    /// Columns of `x`; a multiple of 8, or of [`BLOCK`] where weights are in blocks.
    pub inputs: usize,
}

/// In how many splits so many inputs are summed.
pub fn splits(inputs: usize) -> usize {
    inputs.div_ceil(SPLIT)
}

/// How blocks of threads share out a product of few rows. The bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shares {
    /// A block has all inputs of its outputs.
    Outputs,
    /// A block has one split of them, and the next kernel adds the splits.
    Splits,
}

impl Shares {
    /// The faster one.
    pub fn of(outputs: usize, inputs: usize) -> Self {
        match outputs.div_ceil(OUTPUTS) >= ENOUGH_BLOCKS || splits(inputs) == 1 {
            true => Shares::Outputs,
            false => Shares::Splits,
        }
    }
}

/// A product as the kernel after it finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// `[rows][outputs]` in bf16.
    Whole(Address),
    /// `[splits][rows][outputs]` in f32: who reads them adds them from the first on, and rounds the sum to bf16.
    Parts {
        /// Where they are.
        parts: Address,
        /// How many.
        splits: usize,
    },
}

/// Elements in f32 that [`Gemm::decode`] needs room for: `[splits][rows][outputs]`, or none.
pub fn parts(rows: usize, outputs: usize, inputs: usize) -> usize {
    match Shares::of(outputs, inputs) {
        Shares::Outputs => 0,
        Shares::Splits => splits(inputs) * rows * outputs,
    }
}

impl Gemm {
    pub(super) fn check(&self, entry: &'static str) -> Result<[Argument; 3], Error> {
        let is_in_blocks = matches!(self.weights, Weights::Int4 { .. } | Weights::Fp8 { .. });
        multiple(entry, "number of outputs", self.outputs, 8)?;
        let of = if is_in_blocks { BLOCK } else { 8 };
        multiple(entry, "number of inputs", self.inputs, of)?;
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

    fn entry(&self, [bf16, int8, int4, fp8]: [&'static str; 4]) -> &'static str {
        match self.weights {
            Weights::Bf16(_) => bf16,
            Weights::Int8 { .. } => int8,
            Weights::Int4 { .. } => int4,
            Weights::Fp8 { .. } => fp8,
        }
    }

    pub(super) fn arguments(&self, to: Address, counts: [Argument; 3]) -> Vec<Argument> {
        let weights = match self.weights {
            Weights::Bf16(weights) => vec![weights],
            Weights::Int8 { codes, scales }
            | Weights::Int4 { codes, scales }
            | Weights::Fp8 { codes, scales } => vec![codes, scales],
        };
        [to, self.x].into_iter().chain(weights).map(Pointer).chain(counts).collect()
    }

    /// One block of threads for each 128 by 128 outputs.
    ///
    /// # Errors
    /// If inputs or outputs are no multiples of 8, if there is nothing to do, or more than a grid or a 32-bit index can
    /// hold.
    pub fn prefill(&self) -> Result<Launch, Error> {
        let entry = self.entry([
            "gemm_prefill",
            "gemm_prefill_int8",
            "gemm_prefill_int4",
            "gemm_prefill_fp8",
        ]);
        let counts = self.check(entry)?;
        let (rows, outputs, stages) = (128, 128, 3);
        let across =
            within(entry, "tiles of outputs", self.outputs.div_ceil(outputs), MAX_GRID_YZ)?;
        Ok(Launch(Parts {
            ptx: PREFILL,
            entry,
            grid: [self.rows.div_ceil(rows) as u32, across, 1],
            threads: 256,
            shared_bytes: (stages * (rows + outputs) * STEP * 2) as u32,
            arguments: self.arguments(self.out, counts),
        }))
    }

    /// For Hopper (compute capability 9.0) and weights in bf16: one block of threads for each 128 by 192 outputs. It adds
    /// the products that [`Gemm::prefill`] adds, in the same order; whether a device rounds the sums alike, the device has
    /// to show.
    ///
    /// # Errors
    /// As [`Gemm::prefill`]; and if weights are not bf16, or an array does not begin at a multiple of 16 bytes.
    pub fn prefill_hopper(&self) -> Result<Launch, Error> {
        let entry = "gemm_prefill_hopper";
        let Weights::Bf16(weights) = self.weights else {
            let (what, expected) = ("bytes of a weight, rounded up", "2, which is bf16".into());
            return Err(Error { kernel: entry, what, found: 1, expected });
        };
        let counts = self.check(entry)?;
        check_bases(
            entry,
            [
                ("where the output begins", self.out),
                ("where x begins", self.x),
                ("where weights begin", weights),
            ],
        )?;
        let (rows, outputs, stages) = (128, 192, 4);
        let tiles = self.rows.div_ceil(rows) * self.outputs.div_ceil(outputs);
        // A matrix is a tensor with one index in the middle.
        let map = |base: Address, height: usize, box_rows: usize| {
            Argument::TensorMap(TensorMap {
                base,
                sizes: [self.inputs, 1, height].map(|size| size as u64),
                strides: [self.inputs as u64 * 2; 2],
                box_sizes: [STEP, 1, box_rows].map(|size| size as u32),
            })
        };
        let maps = [map(self.x, self.rows, rows), map(weights, self.outputs, outputs)];
        let barriers = 2 * stages;
        Ok(Launch(Parts {
            ptx: HOPPER,
            entry,
            grid: [within(entry, "number of tiles", tiles, MAX_GRID_X)?, 1, 1],
            threads: 384,
            shared_bytes: (stages * (rows + outputs) * STEP * 2 + barriers * 8) as u32,
            arguments: [Pointer(self.out)].into_iter().chain(maps).chain(counts).collect(),
        }))
    }

    /// One block of threads for each 64 outputs of up to 16 rows, or up to 64; or one for each [`SPLIT`] inputs of those,
    /// and the kernel that adds the splits, where there would be too few. Room for [`parts`] elements in f32 is at `parts`.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode(&self, parts: Address) -> Result<Vec<Launch>, Error> {
        self.decode_by(Shares::of(self.outputs, self.inputs), parts)
    }

    /// [`Gemm::decode`] without the kernel that adds, for a next kernel that does it itself: the launch, and what it leaves, at
    /// `out` or at `parts`.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode_parts(&self, parts: Address) -> Result<(Launch, Product), Error> {
        let shares = Shares::of(self.outputs, self.inputs);
        let product = match shares {
            Shares::Outputs => Product::Whole(self.out),
            Shares::Splits => Product::Parts { parts, splits: splits(self.inputs) },
        };
        Ok((self.few(shares, false, parts)?, product))
    }

    /// [`Gemm::decode`] with the result in f32.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode_f32(&self, parts: Address) -> Result<Vec<Launch>, Error> {
        self.whole(Shares::of(self.outputs, self.inputs), true, parts)
    }

    /// [`Gemm::decode`] with these shares. [`Shares::Splits`] needs room for `[splits][rows][outputs]` in f32 at `parts`.
    ///
    /// # Errors
    /// As [`Gemm::prefill`].
    pub fn decode_by(&self, shares: Shares, parts: Address) -> Result<Vec<Launch>, Error> {
        self.whole(shares, false, parts)
    }

    /// The product, and the kernel that adds its splits if they are apart.
    fn whole(&self, shares: Shares, is_f32: bool, parts: Address) -> Result<Vec<Launch>, Error> {
        let product = self.few(shares, is_f32, parts)?;
        if product.grid[1] == 1 {
            return Ok(vec![product]);
        }
        let add = self.add(if is_f32 { "add_splits_f32" } else { "add_splits" }, parts);
        Ok(vec![product, add])
    }

    fn few(&self, shares: Shares, is_f32: bool, parts: Address) -> Result<Launch, Error> {
        let (rows, entry) = if self.rows <= 16 {
            let entries = [
                "gemm_decode_16",
                "gemm_decode_int8_16",
                "gemm_decode_int4_16",
                "gemm_decode_fp8_16",
            ];
            (16, self.entry(entries))
        } else {
            let entries = [
                "gemm_decode_64",
                "gemm_decode_int8_64",
                "gemm_decode_int4_64",
                "gemm_decode_fp8_64",
            ];
            (64, self.entry(entries))
        };
        let counts = self.check(entry)?;
        let splits = if shares == Shares::Outputs { 1 } else { splits(self.inputs) };
        let grid = [
            within(entry, "tiles of rows", self.rows.div_ceil(rows), MAX_GRID_X)?,
            within(entry, "splits of inputs", splits, MAX_GRID_YZ)?,
            within(entry, "tiles of outputs", self.outputs.div_ceil(OUTPUTS), MAX_GRID_YZ)?,
        ];
        let mut arguments = self.arguments(self.out, counts);
        arguments.insert(1, Pointer(parts));
        arguments.push(I32(is_f32.into()));
        Ok(Launch(Parts {
            ptx: DECODE,
            entry,
            grid,
            threads: 128,
            shared_bytes: (SPLIT * (rows + OUTPUTS) * 2) as u32,
            arguments,
        }))
    }

    fn add(&self, entry: &'static str, parts: Address) -> Launch {
        let count = self.rows * self.outputs;
        let counts = [splits(self.inputs), count].map(|n| I32(n as i32));
        Launch(Parts {
            ptx: DECODE,
            entry,
            grid: [(count as u32).div_ceil(super::THREADS), 1, 1],
            threads: super::THREADS,
            shared_bytes: 0,
            arguments: [self.out, parts].map(Pointer).into_iter().chain(counts).collect(),
        })
    }
}
