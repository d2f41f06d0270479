//! Eight-bit integers with a scale for each token and head.

use super::codec::Codec;
use super::shared;

/// Symmetric INT8: `x ≈ scale · code`, code in -127..=127, the scale so that the largest of the D
/// numbers is just in range.
///
/// One scale for each vector is the *vector-wise* quantisation of LLM.int8() (Dettmers et al. 2022,
/// arXiv 2208.07339, section 3.1), applied to the cache. Symmetric, because then a score is one dot
/// product times one scale: no zero point has to be carried through the sum. (Queries stay f32 here, and
/// codes are widened to meet them.) Where numbers are all of one sign, half of all codes are never used.
/// That costs one bit of eight.
///
/// Layout: the scale in half precision, then D codes.
pub struct Int8 {
    dim: usize,
}

impl Int8 {
    /// For vectors of `dim` numbers.
    pub fn new(dim: usize) -> Self {
        Int8 { dim }
    }
}

/// The code of a number under a scale: the nearest step, ties to even.
pub(crate) fn int8_code(x: f32, scale: f32) -> i8 {
    // A scale of zero is that of numbers too small for half precision, which are taken as zeros.
    let steps = if scale > 0.0 { x / scale } else { 0.0 };
    steps.round_ties_even().clamp(-127.0, 127.0) as i8
}

impl Codec for Int8 {
    fn bytes(&self) -> usize {
        shared::BYTES + self.dim
    }

    // ANCHOR: int8
    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        let largest = rows.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let scale = shared::at_least(largest / 127.0);
        shared::put(tile, 0, scale);
        for (code, &x) in tile[shared::BYTES..].iter_mut().zip(rows) {
            *code = int8_code(x, scale.to_f32()) as u8;
        }
    }

    fn numbers(&self, tile: &[u8], _token: usize, numbers: &mut [f32]) -> f32 {
        for (number, &code) in numbers.iter_mut().zip(&tile[shared::BYTES..]) {
            *number = f32::from(code as i8);
        }
        shared::get(tile, 0)
    }
    // ANCHOR_END: int8
}
