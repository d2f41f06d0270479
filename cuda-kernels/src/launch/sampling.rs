//! Drawing the next token.

use super::Argument::{Pointer, U32};
use super::{Address, Error, Launch, MAX_GRID_X, Parts, THREADS, within};

const SAMPLE: &str = include_str!("../../ptx/sample.ptx");

/// A token for each row, drawn after temperature, top-k and top-p; `u32::MAX` where a score is NaN or +inf, or none is
/// above -inf.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// `[rows]` in u32, written.
    pub tokens: Address,
    /// `[rows][vocabulary]` in f32.
    pub scores: Address,
    /// `[rows]` in f32; 0 for the largest score.
    pub temperatures: Address,
    /// `[rows]` in u32; 0 for no limit.
    pub top_ks: Address,
    /// `[rows]` in f32, in (0, 1]; 1 for no limit.
    pub top_ps: Address,
    /// `[rows]` in u64: random numbers, uniform below 2^64.
    pub draws: Address,
    /// Number of rows.
    pub rows: usize,
    /// Scores of a row, at most 2^23.
    pub vocabulary: usize,
}

impl Sample {
    /// The launch.
    ///
    /// # Errors
    /// If there is nothing to do, or more than a grid or a sum of weights can hold.
    pub fn launch(&self) -> Result<Launch, Error> {
        let entry = "sample";
        let rows = within(entry, "number of rows", self.rows, MAX_GRID_X)?;
        let vocabulary = within(entry, "vocabulary", self.vocabulary, 1 << 23)?;
        let pointers =
            [self.tokens, self.scores, self.temperatures, self.top_ks, self.top_ps, self.draws];
        Ok(Launch(Parts {
            ptx: SAMPLE,
            entry,
            grid: [rows, 1, 1],
            threads: THREADS,
            shared_bytes: 0,
            arguments: pointers.map(Pointer).into_iter().chain([U32(vocabulary)]).collect(),
        }))
    }
}
