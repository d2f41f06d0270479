//! Projections that turn queries and keys otherwise than the model's own RoPE would.

use naive_decode::{GroupedProjection, KeysValues, KvSize, Projected, Projection, Result, Rope};
use ndarray::{Array2, Array3, ArrayView2};
use std::sync::Arc;

/// A projection with a RoPE of its own, whatever the model's is: layers of one model can then turn
/// at different speeds.
pub(super) struct OwnRope {
    pub(super) inner: Box<dyn Projection>,
    pub(super) rope: Arc<Rope>,
}

impl Projection for OwnRope {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], _: &Rope) -> Result<Projected> {
        self.inner.project(x, positions, &self.rope)
    }

    fn has_own_rope(&self) -> bool {
        true
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.inner.output(attended)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// Llama's projection with heads of which RoPE turns a part: the first `2 · pairs` numbers, where
/// `pairs` is how many frequencies its own RoPE has.
pub(super) struct PartlyTurned {
    pub(super) inner: GroupedProjection,
    pub(super) rope: Arc<Rope>,
}

impl Projection for PartlyTurned {
    fn kv(&self) -> Option<KvSize> {
        self.inner.kv()
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], _: &Rope) -> Result<Projected> {
        let GroupedProjection { q, k, v, head_dim, .. } = &self.inner;
        let turned = 2 * self.rope.frequencies().len();
        let (mut q, mut k) = (q.apply(x), k.apply(x));
        for rows in [&mut q, &mut k] {
            for (mut row, &position) in rows.rows_mut().into_iter().zip(positions) {
                let row = row.as_slice_mut().expect("rows are contiguous");
                for head in row.chunks_exact_mut(*head_dim) {
                    self.rope.rotate(&mut head[..turned], position)?;
                }
            }
        }
        let heads = |x: Array2<f32>| {
            let shape = (x.nrows(), x.ncols() / head_dim, *head_dim);
            x.into_shape_with_order(shape).expect("a whole number of heads")
        };
        Ok(Projected { q: heads(q), kv: Some(KeysValues { k: heads(k), v: heads(v.apply(x)) }) })
    }

    fn has_own_rope(&self) -> bool {
        true
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        self.inner.output(attended)
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}
