//! What some families do to queries, keys and values that Llama does not.

use naive_decode::kernels::norm_rows;
use naive_decode::{Config, HeadStep, Isa, Parts, Result, Rope, Turn};
use std::sync::Arc;

/// Biases, then RoPE (Qwen2).
pub(super) struct Biased {
    /// `[heads · D]`, and twice `[kv_heads · D]`.
    biases: [Vec<f32>; 3],
    turn: Turn,
}

impl Biased {
    /// Reads `q_proj.bias`, `k_proj.bias` and `v_proj.bias` of block `index`.
    ///
    /// # Errors
    /// If one of them is missing or has another shape.
    pub(super) fn read(parts: &Parts, index: usize) -> Result<Self> {
        let Config { heads, kv_heads, head_dim, .. } = *parts.config;
        let bias = |part: &str, heads: usize| {
            parts.vector(&format!("model.layers.{index}.self_attn.{part}.bias"), heads * head_dim)
        };
        let biases = [bias("q_proj", heads)?, bias("k_proj", kv_heads)?, bias("v_proj", kv_heads)?];
        Ok(Biased { biases, turn: Turn(parts.options.isa) })
    }
}

impl HeadStep for Biased {
    fn row(&self, qkv: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()> {
        let [q, k, v] = qkv;
        for (row, biases) in [&mut *q, &mut *k, &mut *v].into_iter().zip(&self.biases) {
            row.iter_mut().zip(biases).for_each(|(out, bias)| *out += bias);
        }
        self.turn.row([q, k, v], position, rope)
    }

    fn bytes(&self) -> usize {
        self.biases.iter().map(|bias| size_of_val(bias.as_slice())).sum()
    }
}

/// Queries and keys normed, all heads of a row at once, then turned (OLMo 2).
pub(super) struct NormedWhole {
    /// `[heads · D]`
    q: Vec<f32>,
    /// `[kv_heads · D]`
    k: Vec<f32>,
    epsilon: f32,
    turn: Turn,
}

impl NormedWhole {
    /// Reads `q_norm` and `k_norm` of block `index`.
    ///
    /// # Errors
    /// If one is missing or has another width.
    pub(super) fn read(parts: &Parts, index: usize) -> Result<Self> {
        let Config { heads, kv_heads, head_dim, rms_norm_eps: epsilon, .. } = *parts.config;
        let norm = |part: &str, heads: usize| {
            parts.vector(&format!("model.layers.{index}.self_attn.{part}.weight"), heads * head_dim)
        };
        let (q, k) = (norm("q_norm", heads)?, norm("k_norm", kv_heads)?);
        Ok(NormedWhole { q, k, epsilon, turn: Turn(parts.options.isa) })
    }
}

impl HeadStep for NormedWhole {
    fn row(&self, [q, k, v]: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()> {
        norm_rows(self.turn.0, q, &self.q, self.epsilon);
        norm_rows(self.turn.0, k, &self.k, self.epsilon);
        self.turn.row([q, k, v], position, rope)
    }

    fn bytes(&self) -> usize {
        size_of_val(self.q.as_slice()) + size_of_val(self.k.as_slice())
    }
}

/// Positions of a RoPE of one's own: more than any context. Which positions a model takes is for its own RoPE to say; tables of
/// positions that nobody asks for are not computed.
pub(super) const ANY_POSITION: usize = 1 << 24;

/// A RoPE of one's own, whatever the model's is: layers of one model can then turn at different speeds (Gemma 3).
pub(super) struct OwnRope<S> {
    pub(super) step: S,
    pub(super) rope: Arc<Rope>,
}

impl<S: HeadStep> HeadStep for OwnRope<S> {
    fn row(&self, qkv: [&mut [f32]; 3], position: usize, _: &Rope) -> Result<()> {
        self.step.row(qkv, position, &self.rope)
    }

    fn own_rope(&self) -> Option<&Rope> {
        Some(&self.rope)
    }

    fn bytes(&self) -> usize {
        self.step.bytes()
    }
}

/// Of each head RoPE turns a part: the first `2 · pairs` numbers, where `pairs` is how many frequencies it has (Phi-3).
pub(super) struct TurnPart {
    pub(super) head_dim: usize,
    pub(super) isa: Isa,
}

impl HeadStep for TurnPart {
    fn row(&self, [q, k, v]: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()> {
        let turned = 2 * rope.frequencies().len();
        if turned == self.head_dim {
            return Turn(self.isa).row([q, k, v], position, rope);
        }
        let heads = [q, k].into_iter().flat_map(|row| row.chunks_exact_mut(self.head_dim));
        for head in heads {
            rope.rotate_with(self.isa, &mut head[..turned], position)?;
        }
        Ok(())
    }
}
