//! The seam of all quantised caches: how the numbers of some tokens become bytes.

use ndarray::Array2;

// ANCHOR: codec
/// A way to write the keys of one head, or the values of one head, in few bytes.
///
/// Tokens are coded in *tiles* of one or more consecutive tokens, each tile by itself: what a token's
/// code is depends on its tile's numbers and on nothing else, so it does not matter in which passes
/// they came. A codec is plain data, shared by all heads and layers.
pub trait Codec: Send + Sync {
    /// Tokens in a tile.
    fn tokens(&self) -> usize {
        1
    }

    /// Bytes of a tile: codes, and whatever says what they mean.
    fn bytes(&self) -> usize;

    /// Rows `[n, D]` into the basis that the codes are in, `[n, D]`.
    fn turn(&self, rows: Array2<f32>) -> Array2<f32> {
        rows
    }

    /// Queries `[n, D]` into what [`Codec::numbers`] are to be multiplied with, `[n, W]`. The first D
    /// of the W numbers are the query in the codes' basis.
    fn turn_queries(&self, queries: Array2<f32>) -> Array2<f32> {
        self.turn(queries)
    }

    /// Undoes [`Codec::turn`], for weighted sums of values.
    fn turn_back(&self, sums: Array2<f32>) -> Array2<f32> {
        sums
    }

    /// Codes of a tile's rows `[tokens][D]`, already turned.
    fn encode(&self, rows: &[f32], tile: &mut [u8]);

    /// What one token's codes stand for, but for a factor, which is returned: `numbers [W]` of a key,
    /// `[D]` of a value. The factor meets the finished score, or the value's weight.
    fn numbers(&self, tile: &[u8], token: usize, numbers: &mut [f32]) -> f32;
}
// ANCHOR_END: codec
