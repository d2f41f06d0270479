//! The third seam: how hidden rows become queries, keys and values, and how attention's answer
//! comes back.

use crate::error::Result;
use crate::heads::HeadStep;
use crate::linear::Linear;
use crate::rope::Rope;
use ndarray::{Array2, Array3, ArrayView2};

/// Queries of some rows, and the keys and values that go with them.
pub struct Projected {
    /// `[rows, heads, D]`, turned by RoPE.
    pub q: Array3<f32>,
    /// Keys and values; none if the layer shares those of the nearest earlier layer that made some.
    pub kv: Option<KeysValues>,
}

/// Keys and values of the same rows.
pub struct KeysValues {
    /// `[rows, kv_heads, D]`, turned by RoPE.
    pub k: Array3<f32>,
    /// `[rows, kv_heads, D_v]`.
    pub v: Array3<f32>,
}

/// What keys and values of one token and one layer come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSize {
    /// Key-value heads.
    pub heads: usize,
    /// Width of a key.
    pub key_dim: usize,
    /// Width of a value; 0 if a value is the beginning of its key, and need not be kept beside it.
    pub value_dim: usize,
}

impl KvSize {
    /// Numbers to keep for each token.
    pub fn numbers(&self) -> usize {
        self.heads * (self.key_dim + self.value_dim)
    }
}

/// The learned maps on both sides of attention.
pub trait Projection: Send + Sync {
    /// Sizes of the keys and values that it makes; none if the layer shares an earlier one's.
    fn kv(&self) -> Option<KvSize>;
    /// Normed hidden rows `[rows, hidden]` at their positions → queries, keys, values.
    ///
    /// # Errors
    /// If a position lies past what `rope` covers.
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected>;
    /// Whether it turns queries and keys by a RoPE of its own, and not by the one that it is handed.
    fn has_own_rope(&self) -> bool {
        false
    }
    /// Attention's answer `[rows, heads, D_v]` → `[rows, hidden]`.
    fn output(&self, attended: Array3<f32>) -> Array2<f32>;
    /// Bytes of weights that one pass reads.
    fn bytes(&self) -> usize;
}

/// Attention's answer `[rows, heads, D]` through the matrix behind it, `heads · D → hidden`.
pub fn heads_to_hidden(o: &dyn Linear, attended: Array3<f32>) -> Array2<f32> {
    let (rows, heads, dim) = attended.dim();
    let flat = attended.into_shape_with_order((rows, heads * dim)).expect("contiguous");
    o.apply(flat.view())
}

/// Grouped-query attention's: one matrix each for queries, keys, values and the way back. As many key-value heads as query
/// heads make it multi-head attention.
pub struct GroupedProjection {
    /// `hidden → heads · D`
    pub q: Box<dyn Linear>,
    /// `hidden → kv_heads · D`
    pub k: Box<dyn Linear>,
    /// `hidden → kv_heads · D`
    pub v: Box<dyn Linear>,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
    /// Width of one head, `D`.
    pub head_dim: usize,
    /// What is done to queries, keys and values before attention: Llama turns them.
    pub step: Box<dyn HeadStep>,
}

impl Projection for GroupedProjection {
    fn kv(&self) -> Option<KvSize> {
        let heads = self.k.outputs() / self.head_dim;
        Some(KvSize { heads, key_dim: self.head_dim, value_dim: self.head_dim })
    }

    // ANCHOR: project
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        assert_eq!(x.nrows(), positions.len(), "a position for each row");
        let [mut q, mut k, mut v] = [&self.q, &self.k, &self.v].map(|matrix| matrix.apply(x));
        for (row, &position) in positions.iter().enumerate() {
            let qkv = [&mut q, &mut k, &mut v].map(|rows| rows.row_mut(row).into_slice());
            self.step.row(qkv.map(|row| row.expect("rows are contiguous")), position, rope)?;
        }
        let heads = |x: Array2<f32>| {
            let shape = (x.nrows(), x.ncols() / self.head_dim, self.head_dim);
            x.into_shape_with_order(shape).expect("a whole number of heads")
        };
        Ok(Projected { q: heads(q), kv: Some(KeysValues { k: heads(k), v: heads(v) }) })
    }
    // ANCHOR_END: project

    fn has_own_rope(&self) -> bool {
        self.step.own_rope().is_some()
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        let matrices = [&self.q, &self.k, &self.v, &self.o];
        self.step.bytes() + matrices.iter().map(|linear| linear.bytes()).sum::<usize>()
    }
}
