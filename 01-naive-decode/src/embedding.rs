//! From tokens to rows of numbers: one row of a table for each token of the vocabulary.

use ndarray::{Array2, Axis};

/// A table with a row for each token. A pass reads only the rows that it looks up, so the table may lie
/// wherever and however it is stored.
pub trait Embedding: Send + Sync {
    /// The rows of these tokens, `[tokens, hidden]`.
    ///
    /// # Panics
    /// If a token is past the end; a model checks its passes before.
    fn rows(&self, tokens: &[usize]) -> Array2<f32>;
}

/// Plain f32, `[vocab, hidden]`.
impl Embedding for Array2<f32> {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        self.select(Axis(0), tokens)
    }
}
