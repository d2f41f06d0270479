//! What both forms of latent attention share: queries, latents and rotary keys.

use super::MlaConfig;
use super::layout::pairs_to_halves;
use naive_decode::kernels::norm_rows;
use naive_decode::{Crew, Isa, Linear, Parts, Result, Rope};
use ndarray::{Array2, Array3, ArrayView1, ArrayView2};
use std::sync::Arc;

const CONTIGUOUS: &str = "Linear gives contiguous rows";

/// The maps from hidden rows to queries and to `[latent | rotary key]`.
pub(super) struct Compression {
    queries: Queries,
    /// `hidden → latent + rope`
    kv_down: Box<dyn Linear>,
    /// RMSNorm weight of the latent, `[latent]`.
    kv_norm: Vec<f32>,
    epsilon: f32,
    /// Instruction set for norms and RoPE.
    isa: Isa,
    /// Who takes the rows.
    pub(super) crew: Arc<dyn Crew>,
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
            isa: parts.options.isa,
            crew: parts.crew(),
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
        rope.check(positions)?;
        let mut q = match &self.queries {
            Queries::Direct(linear) => linear.apply(x),
            Queries::Compressed { down, norm, up } => {
                let mut compressed = down.apply(x);
                let rows = compressed.as_slice_mut().expect(CONTIGUOUS);
                self.crew.rows(rows, norm.len(), &|_, row| {
                    norm_rows(self.isa, row, norm, self.epsilon);
                });
                up.apply(compressed.view())
            }
        };
        let MlaConfig { qk_nope_head_dim: nope, qk_rope_head_dim: rotary, .. } = self.config;
        let (width, outputs) = (nope + rotary, q.ncols());
        self.crew.rows(q.as_slice_mut().expect(CONTIGUOUS), outputs, &|row, heads| {
            for head in heads.chunks_exact_mut(width) {
                let turned = rope.rotate_with(self.isa, &mut head[nope..], positions[row]);
                turned.expect("checked");
            }
        });
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
        rope.check(positions)?;
        let mut rows = self.kv_down.apply(x);
        let width = rows.ncols();
        self.crew.rows(rows.as_slice_mut().expect(CONTIGUOUS), width, &|row, numbers| {
            let (latent, key) = numbers.split_at_mut(self.config.kv_lora_rank);
            norm_rows(self.isa, latent, &self.kv_norm, self.epsilon);
            rope.rotate_with(self.isa, key, positions[row]).expect("checked");
        });
        Ok(rows)
    }
    // ANCHOR_END: latents

    /// Calls `fill` with each row, head, and what they have in `to`, `[rows, heads, width]`.
    pub(super) fn by_row(
        &self,
        to: &mut Array3<f32>,
        fill: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) {
        let (_, heads, width) = to.dim();
        let to = to.as_slice_mut().expect("just made");
        self.crew.rows(to, heads * width, &|row, numbers| {
            let heads = numbers.chunks_exact_mut(width).enumerate();
            heads.for_each(|(head, numbers)| fill(row, head, numbers));
        });
    }

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

/// Copies numbers that lie side by side.
pub(super) fn copy(to: &mut [f32], from: ArrayView1<f32>) {
    to.copy_from_slice(from.as_slice().expect("a row is contiguous"));
}
