//! What both forms of latent attention share: queries, latents and rotary keys.

use super::MlaConfig;
use super::layout::pairs_to_halves;
use naive_decode::numerics::rms_norm;
use naive_decode::{Linear, Parts, Result, Rope};
use ndarray::{Array2, Array3, ArrayView2};

/// The maps from hidden rows to queries and to `[latent | rotary key]`.
pub(super) struct Compression {
    queries: Queries,
    /// `hidden → latent + rope`
    kv_down: Box<dyn Linear>,
    /// RMSNorm weight of the latent, `[latent]`.
    kv_norm: Vec<f32>,
    epsilon: f32,
    /// Widths, by their names in the config.
    pub(super) config: MlaConfig,
}

/// How queries are made: `hidden → heads · (nope + rope)`.
enum Queries {
    Direct(Box<dyn Linear>),
    /// By way of a latent of their own, which saves weights and nothing else: queries are not kept.
    Compressed {
        /// `hidden → q_lora_rank`
        down: Box<dyn Linear>,
        /// `[q_lora_rank]`
        norm: Vec<f32>,
        /// `q_lora_rank → heads · (nope + rope)`
        up: Box<dyn Linear>,
    },
}

impl Compression {
    /// Reads the maps of one layer; `prefix` is its `self_attn`.
    pub(super) fn read(config: &MlaConfig, parts: &Parts, prefix: &str) -> Result<Self> {
        let (hidden, latent) = (config.model.hidden_size, config.kv_lora_rank);
        let (nope, rope) = (config.qk_nope_head_dim, config.qk_rope_head_dim);
        let name = |part: &str| format!("{prefix}.{part}.weight");
        // A matrix whose outputs are blocks of plain rows and rotary rows.
        let turned = |part: &str, before: usize, blocks: usize, inputs: usize| {
            let outputs = blocks * (before + rope);
            let make = || {
                let weights = parts.tensor(&name(part), &[outputs, inputs])?;
                Ok(pairs_to_halves(&weights, before, rope, inputs))
            };
            parts.derived(&format!("{}.turned", name(part)), outputs, inputs, &make)
        };
        let heads = config.model.heads;
        Ok(Compression {
            queries: match config.q_lora_rank {
                None => Queries::Direct(turned("q_proj", nope, heads, hidden)?),
                Some(rank) => Queries::Compressed {
                    down: parts.matrix(&name("q_a_proj"), rank, hidden)?,
                    norm: parts.vector(&name("q_a_layernorm"), rank)?,
                    up: turned("q_b_proj", nope, heads, rank)?,
                },
            },
            kv_down: turned("kv_a_proj_with_mqa", latent, 1, hidden)?,
            kv_norm: parts.vector(&name("kv_a_layernorm"), latent)?,
            // Hugging Face's code has 1e-6 here whatever the config says, which says 1e-6 as well
            // in everything that DeepSeek published.
            epsilon: config.model.rms_norm_eps,
            config: config.clone(),
        })
    }

    /// Queries of `x [rows, hidden]`, `[rows, heads, nope + rope]`, their rotary parts turned.
    pub(super) fn queries(
        &self,
        x: ArrayView2<f32>,
        positions: &[usize],
        rope: &Rope,
    ) -> Result<Array3<f32>> {
        let mut q = match &self.queries {
            Queries::Direct(linear) => linear.apply(x),
            Queries::Compressed { down, norm, up } => {
                let compressed = down.apply(x);
                let rows = compressed.as_slice().expect("Linear gives contiguous rows");
                let normed = rms_norm(rows, norm, self.epsilon);
                let shape = compressed.dim();
                up.apply(ArrayView2::from_shape(shape, &normed).expect("a norm keeps the shape"))
            }
        };
        let width = self.config.qk_nope_head_dim + self.config.qk_rope_head_dim;
        for (mut row, &position) in q.rows_mut().into_iter().zip(positions) {
            let row = row.as_slice_mut().expect("rows are contiguous");
            for head in row.chunks_exact_mut(width) {
                rope.rotate(&mut head[self.config.qk_nope_head_dim..], position)?;
            }
        }
        let shape = (q.nrows(), q.ncols() / width, width);
        Ok(q.into_shape_with_order(shape).expect("a whole number of heads"))
    }

    // ANCHOR: latents
    /// What there is to keep of `x [rows, hidden]`: `[rows, latent + rope]`, the normed latent and
    /// the turned rotary key.
    pub(super) fn latents(
        &self,
        x: ArrayView2<f32>,
        positions: &[usize],
        rope: &Rope,
    ) -> Result<Array2<f32>> {
        let mut rows = self.kv_down.apply(x);
        for (mut row, &position) in rows.rows_mut().into_iter().zip(positions) {
            let row = row.as_slice_mut().expect("rows are contiguous");
            let (latent, key) = row.split_at_mut(self.config.kv_lora_rank);
            latent.copy_from_slice(&rms_norm(latent, &self.kv_norm, self.epsilon));
            rope.rotate(key, position)?;
        }
        Ok(rows)
    }
    // ANCHOR_END: latents

    /// Bytes of weights that one pass reads.
    pub(super) fn bytes(&self) -> usize {
        let queries = match &self.queries {
            Queries::Direct(linear) => linear.bytes(),
            Queries::Compressed { down, norm, up } => {
                down.bytes() + size_of_val(norm.as_slice()) + up.bytes()
            }
        };
        queries + self.kv_down.bytes() + size_of_val(self.kv_norm.as_slice())
    }
}
