//! Kernels that work through rows: norms, SwiGLU, embeddings, argmax.

use super::Argument::{F32, Pointer, U32};
use super::{
    Address, Argument, Error, Launch, MAX_GRID_X, MAX_GRID_YZ, Parts, THREADS, count, within,
};

const RMS_NORM: &str = include_str!("../../ptx/rms_norm.ptx");
const SWIGLU: &str = include_str!("../../ptx/swiglu.ptx");
const EMBEDDING: &str = include_str!("../../ptx/embedding.ptx");
const ARGMAX: &str = include_str!("../../ptx/argmax.ptx");

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

impl AddRmsNorm {
    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`].
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "add_rms_norm";
        let width = count(entry, "width", self.width)?;
        let [out, residual, x, weight] =
            [self.out, self.residual, self.x, self.weight].map(Pointer);
        let arguments = vec![out, residual, x, weight, width, F32(self.epsilon)];
        by_row(RMS_NORM, entry, self.rows, arguments)
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

/// The token with the largest score in each row, the lowest id among equals; `u32::MAX` where a score is NaN or +inf,
/// or none is above -inf.
#[derive(Debug, Clone, Copy)]
pub struct Argmax {
    /// `[rows]` in u32, written.
    pub tokens: Address,
    /// `[rows][vocabulary]` in f32.
    pub scores: Address,
    /// Number of rows.
    pub rows: usize,
    /// Scores of a row.
    pub vocabulary: usize,
}

impl Argmax {
    /// The launch.
    ///
    /// # Errors
    /// As [`RmsNorm::launch`].
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "argmax";
        count(entry, "vocabulary", self.vocabulary)?;
        let vocabulary = U32(self.vocabulary as u32);
        by_row(
            ARGMAX,
            entry,
            self.rows,
            vec![Pointer(self.tokens), Pointer(self.scores), vocabulary],
        )
    }
}
