//! QK norm, and the maps around attention of layers without keys and values of their own.

use naive_decode::kernels::norm_rows;
use naive_decode::{
    Crew, HeadStep, Isa, KvSize, Linear, Parts, Projected, Projection, Result, Rope,
    heads_to_hidden,
};
use ndarray::{Array2, Array3, ArrayView2};
use std::sync::Arc;

/// A norm of heads, one by one.
///
/// QK norm (Henry et al. 2020; per head and with learned weights in Qwen3): a score can then not
/// grow with the length of a query or a key, only with the learned weights.
pub struct HeadNorm {
    /// RMSNorm weight, the same for every head, `[D]`.
    pub weight: Vec<f32>,
    /// Added to the mean square before the root.
    pub epsilon: f32,
    /// Instruction set for norm and RoPE.
    pub isa: Isa,
}

impl HeadNorm {
    /// Reads the weight of this name.
    ///
    /// # Errors
    /// If it is missing or is not as wide as a head.
    pub fn read(parts: &Parts, name: &str) -> Result<Self> {
        let weight = parts.vector(name, parts.config.head_dim)?;
        Ok(HeadNorm { weight, epsilon: parts.config.rms_norm_eps, isa: parts.options.isa })
    }

    /// Norms the heads of a row, `[heads · D]`, and turns them by its position.
    ///
    /// # Errors
    /// If the position lies past what `rope` covers.
    pub fn apply(&self, row: &mut [f32], position: usize, rope: &Rope) -> Result<()> {
        norm_rows(self.isa, row, &self.weight, self.epsilon);
        rope.rotate_with(self.isa, row, position)
    }

    fn bytes(&self) -> usize {
        size_of_val(self.weight.as_slice())
    }
}

/// Queries and keys normed, then turned, as in Qwen3; values are neither.
pub struct QkNorm {
    /// Queries'.
    pub q: HeadNorm,
    /// Keys'.
    pub k: HeadNorm,
}

impl QkNorm {
    /// Reads `q_norm` and `k_norm` of block `index`.
    ///
    /// # Errors
    /// If one is missing or is not as wide as a head.
    pub fn read(parts: &Parts, index: usize) -> Result<Self> {
        let norm = |part: &str| format!("model.layers.{index}.self_attn.{part}.weight");
        let read = |part: &str| HeadNorm::read(parts, &norm(part));
        Ok(QkNorm { q: read("q_norm")?, k: read("k_norm")? })
    }
}

impl HeadStep for QkNorm {
    fn row(&self, [q, k, _]: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()> {
        self.q.apply(q, position, rope)?;
        self.k.apply(k, position, rope)
    }

    fn bytes(&self) -> usize {
        self.q.bytes() + self.k.bytes()
    }
}

/// The maps of a layer that asks, and reads the keys and values of an earlier one (Cross-Layer
/// Attention, Brandon et al. 2024): no key matrix, no value matrix, nothing to cache.
pub struct Sharing {
    /// `hidden → heads · D`
    pub q: Box<dyn Linear>,
    /// Of queries.
    pub norm: HeadNorm,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
    /// Who takes the rows.
    pub crew: Arc<dyn Crew>,
}

impl Projection for Sharing {
    fn kv(&self) -> Option<KvSize> {
        None
    }

    // ANCHOR: sharing
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        rope.check(positions)?;
        let mut q = self.q.apply(x);
        let width = q.ncols();
        self.crew.rows(q.as_slice_mut().expect("rows are contiguous"), width, &|row, heads| {
            self.norm.apply(heads, positions[row], rope).expect("checked");
        });
        let dim = self.norm.weight.len();
        let q = q.into_shape_with_order((x.nrows(), self.q.outputs() / dim, dim));
        Ok(Projected { q: q.expect("whole heads"), kv: None })
    }
    // ANCHOR_END: sharing

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        self.q.bytes() + self.norm.bytes() + self.o.bytes()
    }
}
