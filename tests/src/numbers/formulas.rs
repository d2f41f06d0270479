//! What inference costs, as small formulas. Sizes are in bytes, times in seconds, work in FLOP,
//! where a fused multiply-add counts as two.

/// Bytes of keys and values for `batch` sequences of `tokens` tokens: two tensors per layer, each `kv_heads * head_dim` wide.
pub fn kv_bytes(
    layers: u64,
    kv_heads: u64,
    head_dim: u64,
    tokens: u64,
    batch: u64,
    bytes_per_element: u64,
) -> f64 {
    (2 * layers * kv_heads * head_dim * tokens * batch * bytes_per_element) as f64
}

/// Tokens that something at one position can have come from, itself included, when each of `layers` layers lets a row
/// see `window` tokens, the row's own among them.
pub fn window_reach(layers: u64, window: u64) -> f64 {
    (layers * (window - 1) + 1) as f64
}

/// Rows that go through the model when every step runs the whole context again: the first over the prompt, each later
/// one over one token more. The last token is sampled and never goes through.
pub fn tokens_processed_naive(prompt: u64, generated: u64) -> f64 {
    (prompt..prompt + generated).sum::<u64>() as f64
}

/// Rows that go through the model when keys and values are kept: the prompt once, then every token but the last.
pub fn tokens_processed_cached(prompt: u64, generated: u64) -> f64 {
    (prompt + generated - 1) as f64
}

/// Query-key pairs that causal attention scores in one pass over `rows` rows, of which the last one is at position `end - 1`.
pub fn attention_pairs(rows: u64, end: u64) -> f64 {
    (end - rows + 1..=end).sum::<u64>() as f64
}

/// FLOP per byte of `(m x k) * (k x n)`, both factors read and the product written once, two bytes an element.
pub fn arithmetic_intensity(m: u64, k: u64, n: u64) -> f64 {
    let flops = 2.0 * (m * k * n) as f64;
    let bytes = 2.0 * (m * k + k * n + m * n) as f64;
    flops / bytes
}

/// FLOP per byte of attention: `rows` new rows over `context` kept ones, `group` query heads to each key-value head,
/// no mask, two bytes an element.
pub fn attention_intensity(rows: u64, context: u64, group: u64) -> f64 {
    let queries = (rows * group) as f64;
    queries * context as f64 / (context as f64 + queries)
}

/// FLOP per byte at which a machine's arithmetic and its memory are equally busy.
pub fn ridge_point(flops_per_second: f64, bytes_per_second: f64) -> f64 {
    flops_per_second / bytes_per_second
}

/// The least time a pass can take: its arithmetic or its memory traffic, whichever is slower.
pub fn roofline_seconds(flops: f64, bytes: f64, machine: Machine) -> f64 {
    (flops / machine.flops_per_second).max(bytes / machine.bytes_per_second)
}

/// Tokens that one round of speculation yields on average: `gamma` drafted, each accepted with probability `alpha`,
/// the first rejection discards the rest, and the target adds one of its own.
pub fn expected_tokens(alpha: f64, gamma: i32) -> f64 {
    if alpha == 1.0 { f64::from(gamma + 1) } else { (1.0 - alpha.powi(gamma + 1)) / (1.0 - alpha) }
}

/// How many times faster speculation is when a draft pass takes `cost` of a target pass, and checking takes as long as one.
pub fn speculative_speedup(alpha: f64, gamma: i32, cost: f64) -> f64 {
    expected_tokens(alpha, gamma) / (1.0 + f64::from(gamma) * cost)
}

/// What a machine can do at most.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Dense BF16 arithmetic.
    pub flops_per_second: f64,
    /// Reading from main memory.
    pub bytes_per_second: f64,
    /// Size of that memory.
    pub memory_bytes: f64,
}

/// NVIDIA H100 SXM, from its data sheet.
pub const H100: Machine =
    Machine { flops_per_second: 989e12, bytes_per_second: 3.35e12, memory_bytes: 80e9 };

/// The shape of a Llama-family model: RMSNorm, grouped-query attention, SwiGLU, no biases.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Blocks, one after another.
    pub layers: u64,
    /// Width of the residual stream.
    pub width: u64,
    /// Query heads.
    pub heads: u64,
    /// Key-value heads; a divisor of `heads`.
    pub kv_heads: u64,
    /// Width of one head.
    pub head_dim: u64,
    /// Width of the feed-forward network.
    pub feed_forward: u64,
    /// Tokens that the model knows.
    pub vocabulary: u64,
    /// Whether the output head is the embedding table.
    pub tied: bool,
}

/// The model that this repository brings along.
pub const EMBEDDED_TARGET: Shape = Shape {
    layers: 6,
    width: 256,
    heads: 8,
    kv_heads: 2,
    head_dim: 32,
    feed_forward: 704,
    vocabulary: 2048,
    tied: true,
};

/// Llama-2-70B.
pub const LLAMA_2_70B: Shape = Shape {
    layers: 80,
    width: 8192,
    heads: 64,
    kv_heads: 8,
    head_dim: 128,
    feed_forward: 28672,
    vocabulary: 32000,
    tied: false,
};

impl Shape {
    /// Weights of one block's seven matrices.
    pub fn layer_matrices(&self) -> u64 {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        self.width * queries
            + 2 * self.width * keys
            + queries * self.width
            + 3 * self.width * self.feed_forward
    }

    /// All parameters: blocks with their two norms, embeddings, the last norm, and the head where it is not tied.
    pub fn parameters(&self) -> f64 {
        let tables = if self.tied { 1 } else { 2 };
        (self.layers * (self.layer_matrices() + 2 * self.width)
            + tables * self.vocabulary * self.width
            + self.width) as f64
    }

    /// Weights that one token is multiplied with: the blocks' matrices and the head. Looking up an embedding multiplies nothing.
    pub fn multiplied_weights(&self) -> f64 {
        (self.layers * self.layer_matrices() + self.vocabulary * self.width) as f64
    }

    /// FLOP for one token in every matrix: two for each weight it meets.
    pub fn matrix_flops_per_token(&self) -> f64 {
        2.0 * self.multiplied_weights()
    }

    /// FLOP of attention for one token that sees `context` tokens, itself among them: a score and a weighted sum for each.
    pub fn attention_flops(&self, context: u64) -> f64 {
        (4 * self.layers * self.heads * self.head_dim * context) as f64
    }

    /// Bytes that each token adds to a cache of this element size.
    pub fn kv_bytes_per_token(&self, bytes_per_element: u64) -> f64 {
        kv_bytes(self.layers, self.kv_heads, self.head_dim, 1, 1, bytes_per_element)
    }

    /// FLOP of generating `generated` tokens after a prompt, with or without a cache.
    pub fn generation_flops(&self, prompt: u64, generated: u64, cached: bool) -> f64 {
        (prompt..prompt + generated)
            .map(|end| {
                let rows = if cached && end > prompt { 1 } else { end };
                rows as f64 * self.matrix_flops_per_token()
                    + attention_pairs(rows, end) * self.attention_flops(1)
            })
            .sum()
    }
}
