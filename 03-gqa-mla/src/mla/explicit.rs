//! Latent attention by the letter: every head's keys and values are made from the latent.

use super::compress::{Compression, copy};
use super::{Form, MlaConfig};
use naive_decode::{
    KeysValues, KvSize, Linear, Parts, Projected, Projection, Result, Rope, heads_to_hidden,
};
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
        self.compression.by_row(&mut k, |row, head, key| {
            let (plain, rotary) = key.split_at_mut(nope);
            copy(plain, made.slice(s![row, head, ..nope]));
            copy(rotary, latents.slice(s![row, latent..]));
        });
        let mut v = Array3::zeros((rows, heads, value_dim));
        self.compression
            .by_row(&mut v, |row, head, value| copy(value, made.slice(s![row, head, nope..])));
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }
    // ANCHOR_END: explicit

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        self.compression.bytes() + self.kv_up.bytes() + self.o.bytes()
    }
}
