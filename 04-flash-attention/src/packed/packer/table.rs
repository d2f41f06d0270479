//! A table that is embedding and head at once.

use super::PackedLinear;
use naive_decode::{Embedding, Linear};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;

/// A packed matrix that is looked up by row, multiplied, or both.
#[derive(Clone)]
pub(super) struct Table(pub(super) Arc<PackedLinear>);

impl Embedding for Table {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        self.0.rows(tokens)
    }
}

impl Linear for Table {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.0.apply(x)
    }

    fn inputs(&self) -> usize {
        self.0.inputs()
    }

    fn outputs(&self) -> usize {
        self.0.outputs()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
