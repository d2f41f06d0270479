//! What is timed: kinds of work at their sizes, and what each must compute and move.

use cuda_kernels::attention::{MLA_KEY, MLA_VALUE};
use serde::Serialize;

/// A shape of any of the benches.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shape {
    /// One sequence attends to itself.
    Prefill {
        /// Tokens of the sequence.
        tokens: usize,
        /// Query heads.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// Whether a query sees only the keys up to its own.
        is_causal: bool,
    },
    /// One query of each of several sequences.
    Decode {
        /// Sequences.
        batch: usize,
        /// Keys of each.
        keys: usize,
        /// Query heads.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// The same over latents.
    Mla {
        /// Sequences.
        batch: usize,
        /// Latents of each.
        keys: usize,
        /// Query heads.
        heads: usize,
    },
    /// A matrix product.
    Gemm {
        /// Rows of x.
        rows: usize,
        /// Columns of the product.
        outputs: usize,
        /// Columns of x.
        inputs: usize,
    },
    /// Bytes copied within the device's memory.
    Copy {
        /// How many.
        bytes: usize,
    },
}

impl Shape {
    /// Operations, as papers count them.
    pub fn flops(self) -> f64 {
        let count = match self {
            Shape::Prefill { tokens, heads, head_dim, is_causal, .. } => {
                4 * tokens * tokens * heads * head_dim / if is_causal { 2 } else { 1 }
            }
            Shape::Decode { batch, keys, heads, head_dim, .. } => {
                4 * batch * keys * heads * head_dim
            }
            Shape::Mla { batch, keys, heads } => 2 * batch * keys * heads * (MLA_KEY + MLA_VALUE),
            Shape::Gemm { rows, outputs, inputs } => 2 * rows * outputs * inputs,
            Shape::Copy { .. } => 0,
        };
        count as f64
    }

    /// Bytes that must be read and written, each once.
    pub fn bytes(self) -> f64 {
        let count = match self {
            Shape::Prefill { tokens, heads, kv_heads, head_dim, .. } => {
                2 * tokens * head_dim * (2 * heads + 2 * kv_heads)
            }
            Shape::Decode { batch, keys, heads, kv_heads, head_dim } => {
                2 * batch * head_dim * (2 * keys * kv_heads + 2 * heads)
            }
            Shape::Mla { batch, keys, heads } => {
                2 * batch * (keys * MLA_KEY + heads * (MLA_KEY + MLA_VALUE))
            }
            Shape::Gemm { rows, outputs, inputs } => {
                2 * (rows * inputs + outputs * inputs + rows * outputs)
            }
            Shape::Copy { bytes } => 2 * bytes,
        };
        count as f64
    }
}

/// What is timed, and how often.
#[derive(Debug, Clone, Serialize)]
pub struct Shapes {
    /// The shapes.
    pub shapes: Vec<Shape>,
    /// Samples of each.
    pub samples: usize,
    /// Bytes that are gone through before any is read again: several times what a cache holds. (The L2 of an H200 has 50 MB,
    /// of a B200 126 MB.)
    pub cold_bytes: usize,
}

impl Shapes {
    /// Sizes of heads and lengths that figures are published for, and shapes of models that are served. The batch of a
    /// prompt is 1: papers keep 16,384 tokens in all, so that 4,096 tokens come four times. Such a figure has four times as
    /// many blocks of threads, and is not to be read beside these. Without causality only step 6 is timed, on Hopper.
    pub fn for_a_gpu() -> Self {
        let mut shapes = vec![Shape::Copy { bytes: 1 << 30 }];
        for tokens in [4096, 8192, 16_384] {
            for (heads, head_dim) in [(32, 64), (16, 128)] {
                for is_causal in [false, true] {
                    let kv_heads = heads;
                    shapes.push(Shape::Prefill { tokens, heads, kv_heads, head_dim, is_causal });
                }
            }
        }
        for (batch, keys) in [(1, 16_384), (16, 4096), (64, 4096)] {
            for (heads, kv_heads, head_dim) in [(32, 8, 64), (32, 8, 128)] {
                shapes.push(Shape::Decode { batch, keys, heads, kv_heads, head_dim });
            }
        }
        for (batch, keys) in [(1, 16_384), (32, 4096)] {
            shapes.push(Shape::Mla { batch, keys, heads: 128 });
        }
        for rows in [1, 16, 64, 4096] {
            for (outputs, inputs) in [(4096, 4096), (14_336, 4096)] {
                shapes.push(Shape::Gemm { rows, outputs, inputs });
            }
        }
        Shapes { shapes, samples: 9, cold_bytes: 512 << 20 }
    }

    /// How many times what a shape reads from memory has to lie there. Prompts compute longer than they read.
    pub fn copies(&self, shape: Shape) -> usize {
        let bytes = match shape {
            Shape::Prefill { .. } | Shape::Copy { .. } => return 1,
            Shape::Decode { batch, keys, kv_heads, head_dim, .. } => {
                2 * 2 * batch * keys * kv_heads * head_dim
            }
            Shape::Mla { batch, keys, .. } => 2 * batch * keys * MLA_KEY,
            Shape::Gemm { outputs, inputs, .. } => 2 * outputs * inputs,
        };
        self.cold_bytes.div_ceil(bytes).max(1)
    }
}
