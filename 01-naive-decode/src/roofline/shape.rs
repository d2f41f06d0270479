//! The work of a Llama-family forward pass, matrix by matrix.

use super::work::{ElementBytes, Work};

/// The sizes that decide what a forward pass costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads per block.
    pub heads: usize,
    /// Key-value heads per block.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Whether the output head is the embedding table.
    pub tied_head: bool,
}

/// Which rows of a sequence one pass computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Tokens that go through the model.
    pub new: usize,
    /// Tokens before them whose keys and values are already there. The naive loop has none.
    pub cached: usize,
    /// How many of the new tokens get logits; to choose the next token, one is enough.
    pub logits: usize,
}

impl Rows {
    /// Decoding without a cache: all `length` tokens again, logits for the last.
    pub fn naive(length: usize) -> Self {
        Rows { new: length, cached: 0, logits: 1 }
    }

    /// Decoding with a cache: one token after `cached` others.
    pub fn decode(cached: usize) -> Self {
        Rows { new: 1, cached, logits: 1 }
    }

    /// Pairs of a new token and a token it sees: the `i`-th new one sees all cached ones and
    /// `i` new ones, itself included.
    pub fn visible_pairs(&self) -> u64 {
        let (new, cached) = (self.new as u64, self.cached as u64);
        new * cached + new * (new + 1) / 2
    }
}

/// A weight matrix: `[outputs, inputs]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixShape {
    /// Its name in a Hugging Face checkpoint, without the prefix of its block.
    pub name: &'static str,
    /// Width of the rows it takes.
    pub inputs: usize,
    /// Width of the rows it gives.
    pub outputs: usize,
}

impl MatrixShape {
    /// Numbers in it.
    pub fn parameters(&self) -> u64 {
        self.inputs as u64 * self.outputs as u64
    }

    /// `[rows, inputs] × [inputs, outputs]`: a dot product per output, the whole matrix read once.
    pub fn apply(&self, rows: usize, bytes: ElementBytes) -> Work {
        let rows = rows as u64;
        Work {
            flops: 2 * rows * self.parameters(),
            weight_bytes: if rows == 0 { 0 } else { self.parameters() * bytes.weight },
            kv_bytes: 0,
            activation_bytes: rows * (self.inputs + self.outputs) as u64 * bytes.activation,
        }
    }
}

impl Shape {
    /// The matrices of one block, in the order in which they are applied.
    pub fn block_matrices(&self) -> [MatrixShape; 7] {
        let (d, ff) = (self.hidden_size, self.intermediate_size);
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        [
            MatrixShape { name: "self_attn.q_proj", inputs: d, outputs: queries },
            MatrixShape { name: "self_attn.k_proj", inputs: d, outputs: keys },
            MatrixShape { name: "self_attn.v_proj", inputs: d, outputs: keys },
            MatrixShape { name: "self_attn.o_proj", inputs: queries, outputs: d },
            MatrixShape { name: "mlp.gate_proj", inputs: d, outputs: ff },
            MatrixShape { name: "mlp.up_proj", inputs: d, outputs: ff },
            MatrixShape { name: "mlp.down_proj", inputs: ff, outputs: d },
        ]
    }

    /// The output head.
    pub fn head(&self) -> MatrixShape {
        MatrixShape { name: "lm_head", inputs: self.hidden_size, outputs: self.vocab_size }
    }

    /// Every number of the model, norms and embeddings included.
    pub fn parameters(&self) -> u64 {
        let block: u64 = self.block_matrices().iter().map(MatrixShape::parameters).sum();
        let norms = (2 * self.layers + 1) * self.hidden_size;
        let tables = if self.tied_head { 1 } else { 2 };
        self.layers as u64 * block + norms as u64 + tables * self.head().parameters()
    }

    /// One block's attention itself: scores and weighted sums, `2 · head_dim` FLOPs each for every
    /// query head and visible pair. Keys and values are read once for all query heads that share
    /// them; queries come in and mixed values go out.
    pub fn attention(&self, rows: Rows, bytes: ElementBytes) -> Work {
        let query_width = (self.heads * self.head_dim) as u64;
        let kv_width = (self.kv_heads * self.head_dim) as u64;
        Work {
            flops: 4 * query_width * rows.visible_pairs(),
            weight_bytes: 0,
            kv_bytes: 2 * kv_width * (rows.cached + rows.new) as u64 * bytes.kv,
            activation_bytes: 2 * query_width * rows.new as u64 * bytes.activation,
        }
    }

    /// A whole forward pass, of all rows through all blocks. (Rung 04 leaves out what the last block would do
    /// for rows without logits after its attention.)
    pub fn forward(&self, rows: Rows, bytes: ElementBytes) -> Work {
        let block = self.block_matrices().iter().map(|m| m.apply(rows.new, bytes)).sum::<Work>()
            + self.attention(rows, bytes);
        block * self.layers + self.head().apply(rows.logits, bytes)
    }
}
