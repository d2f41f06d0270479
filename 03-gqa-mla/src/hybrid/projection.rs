//! The maps around attention in models with QK norm, with and without keys and values of their own.

use naive_decode::numerics::rms_norm;
use naive_decode::{KeysValues, KvSize, Linear, Projected, Projection, Result, Rope};
use ndarray::{Array2, Array3, ArrayView2};

/// Hidden rows to heads that are normed one by one, then turned by their positions.
///
/// QK norm (Henry et al. 2020; per head and with learned weights in Qwen3): a score can then not
/// grow with the length of a query or a key, only with the learned weights.
pub struct NormedHeads {
    /// `hidden → heads · D`
    pub linear: Box<dyn Linear>,
    /// RMSNorm weight, the same for every head, `[D]`.
    pub norm: Vec<f32>,
    /// Added to the mean square before the root.
    pub epsilon: f32,
}

impl NormedHeads {
    // ANCHOR: normed
    /// `x [rows, hidden]` → `[rows, heads, D]`.
    ///
    /// # Errors
    /// If a position lies past what `rope` covers.
    pub fn apply(
        &self,
        x: ArrayView2<f32>,
        positions: &[usize],
        rope: &Rope,
    ) -> Result<Array3<f32>> {
        let flat = self.linear.apply(x);
        let shape = (flat.nrows(), self.heads(), self.norm.len());
        let flat = flat.as_slice().expect("Linear gives contiguous rows");
        // A row of `norm`'s width is one head.
        let mut normed = rms_norm(flat, &self.norm, self.epsilon);
        let row = shape.1 * shape.2;
        for (row, &position) in normed.chunks_exact_mut(row).zip(positions) {
            rope.rotate(row, position)?;
        }
        Ok(Array3::from_shape_vec(shape, normed).expect("a norm keeps the shape"))
    }
    // ANCHOR_END: normed

    fn heads(&self) -> usize {
        self.linear.outputs() / self.norm.len()
    }

    fn bytes(&self) -> usize {
        self.linear.bytes() + size_of_val(self.norm.as_slice())
    }
}

/// Grouped-query attention's maps with QK norm, as in Qwen3.
pub struct NormedProjection {
    /// `hidden → [heads, D]`
    pub q: NormedHeads,
    /// `hidden → [kv_heads, D]`
    pub k: NormedHeads,
    /// `hidden → kv_heads · D`; values are neither normed nor turned.
    pub v: Box<dyn Linear>,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
}

impl Projection for NormedProjection {
    fn kv(&self) -> Option<KvSize> {
        let head_dim = self.k.norm.len();
        Some(KvSize { heads: self.k.heads(), key_dim: head_dim, value_dim: head_dim })
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let q = self.q.apply(x, positions, rope)?;
        let k = self.k.apply(x, positions, rope)?;
        let v = self.v.apply(x).into_shape_with_order(k.dim()).expect("as many values as keys");
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        self.q.bytes() + self.k.bytes() + self.v.bytes() + self.o.bytes()
    }
}

/// The maps of a layer that asks, and reads the keys and values of an earlier one (Cross-Layer
/// Attention, Brandon et al. 2024): no key matrix, no value matrix, nothing to cache.
pub struct Sharing {
    /// `hidden → [heads, D]`
    pub q: NormedHeads,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
}

impl Projection for Sharing {
    fn kv(&self) -> Option<KvSize> {
        None
    }

    // ANCHOR: sharing
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        Ok(Projected { q: self.q.apply(x, positions, rope)?, kv: None })
    }
    // ANCHOR_END: sharing

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        self.q.bytes() + self.o.bytes()
    }
}

/// `[rows, heads, D]` → `[rows, hidden]`.
fn heads_to_hidden(o: &dyn Linear, attended: Array3<f32>) -> Array2<f32> {
    let (rows, heads, dim) = attended.dim();
    let flat = attended.into_shape_with_order((rows, heads * dim)).expect("contiguous");
    o.apply(flat.view())
}
