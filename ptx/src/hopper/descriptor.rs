//! Descriptors: where a `wgmma` finds the elements of a matrix in shared memory.

use super::tensor_map::Swizzle;
use crate::error::Problem;

/// A matrix in shared memory, as a descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Matrix {
    start: usize,
    leading: usize,
    stride: usize,
    swizzle: Swizzle,
    /// Rows are along k: `false`. Columns are: `true`.
    transposed: bool,
    element: usize,
}

impl Matrix {
    pub(super) fn new(descriptor: u64, transposed: bool, element: usize) -> Result<Self, Problem> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) as usize * 16;
        if descriptor >> 49 & 7 != 0 {
            return Err(Problem::invalid(
                "the interpreter knows matrices with a base offset of 0 alone",
            ));
        }
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        Ok(Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            swizzle,
            transposed,
            element,
        })
    }

    /// Where element (`row`, `k`) lies; rows are those of A, or the columns of B.
    pub(super) fn place(&self, row: usize, k: usize) -> usize {
        let Self { start, leading, stride, element, .. } = *self;
        let linear = match (self.swizzle.span(), self.transposed) {
            // Rows of `span` bytes along k, in groups of eight.
            (Some(span), false) => start + row / 8 * stride + row % 8 * span as usize + k * element,
            // Core matrices of eight rows of 16 bytes.
            (None, false) => {
                let byte = k * element;
                start + row / 8 * stride + row % 8 * 16 + byte / 16 * leading + byte % 16
            }
            // Rows of `span` bytes along the other dimension, one for each k, in groups of eight.
            (Some(span), true) => {
                let per = span as usize / element;
                start
                    + row / per * leading
                    + k / 8 * stride
                    + k % 8 * span as usize
                    + row % per * element
            }
            (None, true) => {
                start + row / 8 * stride + k / 8 * leading + k % 8 * 16 + row % 8 * element
            }
        };
        self.swizzle.apply(linear)
    }

    /// The 16-byte chunks of rows `first` and on.
    pub(super) fn chunks(&self, first: usize, rows: usize, k: usize, found: &mut Vec<u32>) {
        for row in first..first + rows {
            for k in 0..k {
                found.push((self.place(row, k) / 16) as u32);
            }
        }
    }
}
