//! Kernels that work through rows: norms, SwiGLU, embeddings, argmax.

use super::Argument::{F32, I32, Pointer, U32};
use super::gemm::Product;
use super::{
    Address, Argument, Error, Launch, MAX_GRID_X, MAX_GRID_YZ, Parts, THREADS, count, multiple,
    within,
};

const RMS_NORM: &str = include_str!("../../ptx/rms_norm.ptx");
const SWIGLU: &str = include_str!("../../ptx/swiglu.ptx");
const EMBEDDING: &str = include_str!("../../ptx/embedding.ptx");
const ARGMAX: &str = include_str!("../../ptx/argmax.ptx");

/// Threads of a block that adds a row's splits; `ADDING_THREADS` in `cuda/rms_norm.cu`.
const ADDING_THREADS: u32 = 1_024;
/// Shared memory that every device has for a block, and that need not be asked for.
const SHARED_BYTES: usize = 48 << 10;
/// Bytes of shared memory for an element of a row whose splits are added: a sum and a weight in bf16.
const SHARED_OF_ELEMENT: usize = 4;
/// The widest row whose splits are added. Beside its elements the norm has a sum for each of eight warps, and what is asked for at
/// launch begins at a multiple of 1,024 bytes.
const WIDEST: usize = (SHARED_BYTES - 1_024) / SHARED_OF_ELEMENT;

/// One block for each row.
fn by_row(
    ptx: &'static str,
    entry: &'static str,
    rows: usize,
    arguments: Vec<Argument>,
) -> Result<Launch, Error> {
    let rows = within(entry, "number of rows", rows, MAX_GRID_X)?;
    Ok(Launch(Parts {
        ptx,
        entry,
        grid: [rows, 1, 1],
        threads: THREADS,
        shared_bytes: 0,
        arguments,
    }))
}

/// RMSNorm.
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm {
    /// `[rows][width]` in bf16, written.
    pub out: Address,
    /// `[rows][width]` in bf16.
    pub x: Address,
    /// `[width]` in bf16.
    pub weight: Address,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

impl RmsNorm {
    /// The launch.
    ///
    /// # Errors
    /// If there is nothing to do, or more than a grid or a 32-bit index can hold.
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "rms_norm";
        let width = count(entry, "width", self.width)?;
        let [out, x, weight] = [self.out, self.x, self.weight].map(Pointer);
        by_row(RMS_NORM, entry, self.rows, vec![out, x, weight, width, F32(self.epsilon)])
    }
}

/// The residual with `x` added, and RMSNorm of that.
#[derive(Debug, Clone, Copy)]
pub struct AddRmsNorm {
    /// `[rows][width]` in bf16, written.
    pub out: Address,
    /// `[rows][width]` in bf16, changed.
    pub residual: Address,
    /// `[rows][width]`. Splits that are apart are added here; see [`AddRmsNorm::adds`].
    pub x: Product,
    /// `[width]` in bf16.
    pub weight: Address,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Up to so many splits, [`AddRmsNorm`] is as fast with them as `add_splits` and it are one after the other, or faster.
///
/// A row is one block's, and a multiprocessor gets some 64 bytes a cycle from the second cache; `add_splits` reads with all of them.
/// 24 splits of 2,048 outputs are 192 KiB, and so 3,072 cycles or 1.7 us, about what is saved: a launch, and the sum's way
/// through memory. Measured on an H200, replayed from graphs, two kernels and one, in microseconds:
///
/// | Splits of outputs | 1 row | 32 rows | 64 rows |
/// |---|---|---|---|
/// | 8 of 2,048 | 2.6, 2.0 | 3.0, 2.4 | 3.4, 2.4 |
/// | 16 of 2,048 | 2.7, 2.4 | 3.3, 3.0 | 3.9, 3.2 |
/// | 24 of 3,072 | 4.1, 3.5 | 5.1, 4.8 | 6.3, 5.1 |
/// | 32 of 2,048 | 3.0, 3.0 | 3.9, 4.2 | 4.9, 4.4 |
/// | 56 of 4,096 | 5.7, 6.3 | 8.5, 10.2 | 21, 16 |
const MOST_SPLITS: usize = 24;

impl AddRmsNorm {
    /// Whether it is as fast to leave a product's splits to be added here as to launch the kernel that adds them.
    pub fn adds(splits: usize, width: usize) -> bool {
        splits <= MOST_SPLITS && width <= WIDEST
    }

    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`]. If splits are to be added: if the width is no multiple of 4, or more than 12,032.
    pub fn launch(&self) -> Result<Launch, Error> {
        let [out, residual, weight] = [self.out, self.residual, self.weight].map(Pointer);
        match self.x {
            Product::Whole(x) => {
                let entry = "add_rms_norm";
                let width = count(entry, "width", self.width)?;
                let arguments = vec![out, residual, Pointer(x), weight, width, F32(self.epsilon)];
                by_row(RMS_NORM, entry, self.rows, arguments)
            }
            Product::Parts { parts, splits } => {
                let entry = "add_rms_norm_parts";
                let splits = count(entry, "number of splits", splits)?;
                let width = within(entry, "width", self.width, WIDEST)?;
                multiple(entry, "width", self.width, 4)?;
                let numbers = [splits, I32(width as i32), F32(self.epsilon)];
                let arguments = [out, residual, Pointer(parts), weight].into_iter().chain(numbers);
                let Launch(launch) = by_row(RMS_NORM, entry, self.rows, arguments.collect())?;
                Ok(Launch(Parts {
                    threads: ADDING_THREADS,
                    shared_bytes: width * SHARED_OF_ELEMENT as u32,
                    ..launch
                }))
            }
        }
    }
}

/// SwiGLU's gate.
#[derive(Debug, Clone, Copy)]
pub struct SwiGlu {
    /// `[rows][width]` in bf16, written.
    pub out: Address,
    /// `[rows][2 * width]` in bf16: a row's gate, then its up.
    pub x: Address,
    /// Number of rows, at most 65,535.
    pub rows: usize,
    /// Elements of a row of `out`.
    pub width: usize,
}

impl SwiGlu {
    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`]; rows are the grid's second dimension here and at most 65,535.
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "swiglu";
        let width = count(entry, "width", self.width)?;
        let rows = within(entry, "number of rows", self.rows, MAX_GRID_YZ)?;
        let grid = [(self.width as u32).div_ceil(THREADS), rows, 1];
        let arguments = vec![Pointer(self.out), Pointer(self.x), width];
        Ok(Launch(Parts { ptx: SWIGLU, entry, grid, threads: THREADS, shared_bytes: 0, arguments }))
    }
}

/// Rows of an embedding table.
#[derive(Debug, Clone, Copy)]
pub struct Embedding {
    /// `[rows][width]` in bf16, written.
    pub out: Address,
    /// `[vocabulary][width]` in bf16.
    pub table: Address,
    /// `[rows]` in u32; one outside of the vocabulary gives a row of NaN.
    pub tokens: Address,
    /// Number of rows.
    pub rows: usize,
    /// Rows of the table.
    pub vocabulary: usize,
    /// Elements of a row.
    pub width: usize,
}

impl Embedding {
    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`].
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "embedding";
        let width = count(entry, "width", self.width)?;
        let vocabulary = within(entry, "vocabulary", self.vocabulary, MAX_GRID_X)?;
        let [out, table, tokens] = [self.out, self.table, self.tokens].map(Pointer);
        by_row(EMBEDDING, entry, self.rows, vec![out, table, tokens, U32(vocabulary), width])
    }
}

/// The token with the largest score in each row, the lowest id among equals.
#[derive(Debug, Clone, Copy)]
pub struct Argmax {
    /// `[rows]` in u64, 0 before: what [`Argmax::token`] makes a token of.
    pub found: Address,
    /// `[rows][vocabulary]` in f32.
    pub scores: Address,
    /// Number of rows.
    pub rows: usize,
    /// Scores of a row.
    pub vocabulary: usize,
}

impl Argmax {
    /// Scores of a row that a block of threads has.
    const AT_ONCE: usize = 16 * THREADS as usize;

    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`].
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "argmax";
        let rows = within(entry, "number of rows", self.rows, MAX_GRID_YZ)?;
        let vocabulary = within(entry, "vocabulary", self.vocabulary, MAX_GRID_X)?;
        Ok(Launch(Parts {
            ptx: ARGMAX,
            entry,
            grid: [self.vocabulary.div_ceil(Self::AT_ONCE) as u32, rows, 1],
            threads: THREADS,
            shared_bytes: 0,
            arguments: vec![Pointer(self.found), Pointer(self.scores), U32(vocabulary)],
        }))
    }

    /// The token that a row's number stands for; none if a score is NaN or +inf, or none is above -inf.
    pub fn token(found: u64) -> Option<u32> {
        /// The place of -inf in the order of scores.
        const NOTHING: u32 = !f32::NEG_INFINITY.to_bits();
        let (order, token) = ((found >> 32) as u32, !(found as u32));
        (order > NOTHING && found != u64::MAX).then_some(token)
    }
}
