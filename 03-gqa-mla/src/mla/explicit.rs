//! Latent attention by the letter: every head's keys and values are made from the latent.

use super::compress::Compression;
use super::{Form, MlaConfig};
use naive_decode::{KeysValues, KvSize, Linear, Parts, Projected, Projection, Result, Rope};
use ndarray::{Array2, Array3, ArrayView2, s};

/// The explicit form. Multi-head attention as far as anyone after it can tell, and its cache is as
/// large; it is here to be compared with.
pub struct ExplicitMla {
    compression: Compression,
    /// `latent → heads · (nope + value)`
    kv_up: Box<dyn Linear>,
    /// `heads · value → hidden`
    o: Box<dyn Linear>,
}

impl ExplicitMla {
    /// Reads the weights of one layer; `prefix` is what its tensors' names begin with, as in
    /// `model.layers.0.self_attn`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than `config` implies.
    pub fn read(config: &MlaConfig, parts: &Parts, prefix: &str) -> Result<Self> {
        let (heads, value) = (config.model.heads, config.v_head_dim);
        let made = heads * (config.qk_nope_head_dim + value);
        let kv_b = format!("{prefix}.kv_b_proj.weight");
        let o = format!("{prefix}.o_proj.weight");
        Ok(ExplicitMla {
            compression: Compression::read(config, parts, prefix)?,
            kv_up: parts.matrix(&kv_b, made, config.kv_lora_rank)?,
            o: parts.matrix(&o, config.model.hidden_size, heads * value)?,
        })
    }
}

impl Projection for ExplicitMla {
    fn kv(&self) -> Option<KvSize> {
        Some(self.compression.config.kv(Form::Explicit))
    }

    // ANCHOR: explicit
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let MlaConfig { kv_lora_rank: latent, qk_nope_head_dim: nope, .. } =
            self.compression.config;
        let KvSize { heads, key_dim, value_dim } = self.compression.config.kv(Form::Explicit);
        let q = self.compression.queries(x, positions, rope)?;
        let latents = self.compression.latents(x, positions, rope)?;
        // [rows, heads · (nope + value)]
        let made = self.kv_up.apply(latents.slice(s![.., ..latent]));
        let rows = made.nrows();
        let made = made.into_shape_with_order((rows, heads, nope + value_dim));
        let made = made.expect("a whole number of heads");
        let mut k = Array3::zeros((rows, heads, key_dim));
        k.slice_mut(s![.., .., ..nope]).assign(&made.slice(s![.., .., ..nope]));
        for head in 0..heads {
            k.slice_mut(s![.., head, nope..]).assign(&latents.slice(s![.., latent..]));
        }
        let v = made.slice(s![.., .., nope..]).as_standard_layout().into_owned();
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }
    // ANCHOR_END: explicit

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        let (rows, heads, value) = attended.dim();
        let flat = attended.into_shape_with_order((rows, heads * value)).expect("contiguous");
        self.o.apply(flat.view())
    }

    fn bytes(&self) -> usize {
        self.compression.bytes() + self.kv_up.bytes() + self.o.bytes()
    }
}
