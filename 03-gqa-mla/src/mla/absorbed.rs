//! Latent attention with its up-projections absorbed: multi-query attention over the latent.

use super::compress::{Compression, copy};
use super::layout::transposed;
use super::{Form, MlaConfig};
use naive_decode::{
    KeysValues, KvSize, Linear, Parts, Projected, Projection, Result, Rope, heads_to_hidden,
};
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis, s};

/// The absorbed form. One key-value head: a key is `[latent | rotary key]`, a value its latent.
pub struct AbsorbedMla {
    compression: Compression,
    /// For each head `nope → latent`: the transpose of what would make its keys.
    query_up: Vec<Box<dyn Linear>>,
    /// For each head `latent → value`.
    value_up: Vec<Box<dyn Linear>>,
    /// `heads · value → hidden`
    o: Box<dyn Linear>,
}

impl AbsorbedMla {
    /// Reads the weights of one layer; `prefix` is what its tensors' names begin with, as in
    /// `model.layers.0.self_attn`.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than `config` implies.
    pub fn read(config: &MlaConfig, parts: &Parts, prefix: &str) -> Result<Self> {
        let MlaConfig { kv_lora_rank: latent, qk_nope_head_dim: nope, v_head_dim: value, .. } =
            *config;
        let heads = config.model.heads;
        let kv_b = format!("{prefix}.kv_b_proj.weight");
        let o = format!("{prefix}.o_proj.weight");
        // [heads][nope + value][latent]
        let shape = [heads * (nope + value), latent];
        let up = parts.when_asked(&kv_b, &shape);
        let (plain, both) = (nope * latent, (nope + value) * latent);
        let query_up = (0..heads).map(|head| {
            let make = || Ok(transposed(&up()?[head * both..][..plain], latent));
            parts.derived(&format!("{kv_b}[{head}].queries"), latent, nope, &make)
        });
        let value_up = (0..heads).map(|head| {
            let make = || Ok(up()?[head * both..][plain..both].to_vec());
            parts.derived(&format!("{kv_b}[{head}].values"), value, latent, &make)
        });
        Ok(AbsorbedMla {
            compression: Compression::read(config, parts, prefix)?,
            query_up: query_up.collect::<Result<_>>()?,
            value_up: value_up.collect::<Result<_>>()?,
            o: parts.matrix(&o, config.model.hidden_size, heads * value)?,
        })
    }
}

impl Projection for AbsorbedMla {
    fn kv(&self) -> Option<KvSize> {
        Some(self.compression.config.kv(Form::Absorbed))
    }

    // ANCHOR: absorbed
    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let MlaConfig { kv_lora_rank: latent, qk_nope_head_dim: nope, .. } =
            self.compression.config;
        let plain = self.compression.queries(x, positions, rope)?; // [rows, heads, nope + rope]
        let k = self.compression.latents(x, positions, rope)?.insert_axis(Axis(1));
        let (rows, _, key_dim) = k.dim();
        let absorbed = self.each_head(&self.query_up, plain.slice(s![.., .., ..nope]));
        let mut q = Array3::zeros((rows, absorbed.len(), key_dim));
        self.compression.by_row(&mut q, |row, head, q| {
            let (content, rotary) = q.split_at_mut(latent);
            copy(content, absorbed[head].row(row));
            copy(rotary, plain.slice(s![row, head, nope..]));
        });
        // The value is not kept beside the key; it is handed over for attention without a memory.
        let v = k.slice(s![.., .., ..latent]).as_standard_layout().into_owned();
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        let made = self.each_head(&self.value_up, attended.view()); // of each head [rows, value]
        let mut values = Array3::zeros((attended.dim().0, made.len(), made[0].ncols()));
        self.compression.by_row(&mut values, |row, head, value| copy(value, made[head].row(row)));
        heads_to_hidden(&*self.o, values)
    }
    // ANCHOR_END: absorbed

    fn bytes(&self) -> usize {
        let up = self.query_up.iter().chain(&self.value_up).map(|linear| linear.bytes());
        self.compression.bytes() + up.sum::<usize>() + self.o.bytes()
    }
}

impl AbsorbedMla {
    /// Each head through a matrix of its own: `[rows, heads, inputs]` → for each head `[rows, outputs]`.
    fn each_head(&self, linears: &[Box<dyn Linear>], x: ArrayView3<f32>) -> Vec<Array2<f32>> {
        let made = |head: usize| linears[head].apply(x.index_axis(Axis(1), head));
        self.compression.crew.made(linears.len(), made)
    }
}
