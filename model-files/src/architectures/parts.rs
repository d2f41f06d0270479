//! What blocks are made of in families that add something to Llama's matrices and norms.
//!
//! Each is a decorator over a seam of rung 01: it holds what Llama has and does one thing more.

use naive_decode::kernels::{norm_rows, soft_cap};
use naive_decode::{
    Crew, Embedding, FeedForward, Isa, KvSize, Linear, Projected, Projection, Result, Rope,
};
use ndarray::{Array2, Array3, ArrayView2};
use std::sync::Arc;

/// Rows of a table times a number (Gemma, Granite).
pub(super) struct Scaled {
    pub(super) table: Box<dyn Embedding>,
    pub(super) factor: f32,
}

impl Embedding for Scaled {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        self.table.rows(tokens) * self.factor
    }
}

/// A head whose logits are bent to stay within a bound (Gemma 2).
pub(super) struct Capped {
    pub(super) linear: Box<dyn Linear>,
    pub(super) cap: f32,
    pub(super) isa: Isa,
}

impl Linear for Capped {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut logits = self.linear.apply(x);
        let values = logits.as_slice_mut().expect("Linear gives contiguous rows");
        soft_cap(self.isa, values, self.cap);
        logits
    }

    fn inputs(&self) -> usize {
        self.linear.inputs()
    }

    fn outputs(&self) -> usize {
        self.linear.outputs()
    }

    fn bytes(&self) -> usize {
        self.linear.bytes()
    }
}

/// RMSNorm on what a half of a block gives back, before it joins the residual stream.
pub(super) struct Normed<T: ?Sized> {
    /// `[hidden]`
    pub(super) weight: Vec<f32>,
    pub(super) epsilon: f32,
    pub(super) isa: Isa,
    pub(super) crew: Arc<dyn Crew>,
    pub(super) inner: Box<T>,
}

impl<T: ?Sized> Normed<T> {
    fn norm(&self, mut x: Array2<f32>) -> Array2<f32> {
        let rows = x.as_slice_mut().expect("Linear gives contiguous rows");
        let (isa, weight, epsilon) = (self.isa, &self.weight, self.epsilon);
        self.crew.rows(rows, weight.len(), &|_, row| norm_rows(isa, row, weight, epsilon));
        x
    }
}

impl FeedForward for Normed<dyn FeedForward> {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.norm(self.inner.apply(x))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(self.weight.as_slice())
    }
}

impl Projection for Normed<dyn Projection> {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        self.inner.project(x, positions, rope)
    }

    fn has_own_rope(&self) -> bool {
        self.inner.has_own_rope()
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.norm(self.inner.output(attended))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(self.weight.as_slice())
    }
}

/// What a half of a block gives back, times a number, before it joins the residual stream (Granite).
pub(super) struct Times<T: ?Sized> {
    pub(super) factor: f32,
    pub(super) crew: Arc<dyn Crew>,
    pub(super) inner: Box<T>,
}

impl<T: ?Sized> Times<T> {
    fn times(&self, mut x: Array2<f32>) -> Array2<f32> {
        let (width, factor) = (x.ncols(), self.factor);
        let rows = x.as_slice_mut().expect("Linear gives contiguous rows");
        self.crew.rows(rows, width, &|_, row| row.iter_mut().for_each(|value| *value *= factor));
        x
    }
}

impl FeedForward for Times<dyn FeedForward> {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.times(self.inner.apply(x))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

impl Projection for Times<dyn Projection> {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        self.inner.project(x, positions, rope)
    }

    fn has_own_rope(&self) -> bool {
        self.inner.has_own_rope()
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.times(self.inner.output(attended))
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// A head whose logits are divided by a number (Granite).
pub(super) struct Divided {
    pub(super) linear: Box<dyn Linear>,
    pub(super) by: f32,
    pub(super) crew: Arc<dyn Crew>,
}

impl Linear for Divided {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut logits = self.linear.apply(x);
        let (width, by) = (logits.ncols(), self.by);
        let rows = logits.as_slice_mut().expect("Linear gives contiguous rows");
        // A quotient, not a product with the inverse: that is rounded twice.
        self.crew.rows(rows, width, &|_, row| row.iter_mut().for_each(|logit| *logit /= by));
        logits
    }

    fn inputs(&self) -> usize {
        self.linear.inputs()
    }

    fn outputs(&self) -> usize {
        self.linear.outputs()
    }

    fn bytes(&self) -> usize {
        self.linear.bytes()
    }
}
