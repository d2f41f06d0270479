//! Shapes of published models, from their `config.json`.

use super::Shape;

/// A model whose shape its makers have published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedShape {
    /// What it is called, in lower case: "llama-2-70b".
    pub name: &'static str,
    /// Its sizes.
    pub shape: Shape,
    /// Tokens back that a row sees, if not all of them.
    pub window: Option<usize>,
    /// Tokens that it was trained to see.
    pub context: usize,
}

/// Models that examples are about, dense ones of Llama's family.
pub const PUBLISHED: [PublishedShape; 7] = [
    PublishedShape {
        name: "smollm2-135m",
        shape: Shape {
            hidden_size: 576,
            layers: 30,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            intermediate_size: 1_536,
            vocab_size: 49_152,
            tied_head: true,
        },
        window: None,
        context: 8_192,
    },
    PublishedShape { name: "llama-2-7b", shape: LLAMA_2_7B, window: None, context: 4_096 },
    PublishedShape {
        name: "llama-2-13b",
        shape: Shape {
            hidden_size: 5_120,
            layers: 40,
            heads: 40,
            kv_heads: 40,
            intermediate_size: 13_824,
            ..LLAMA_2_7B
        },
        window: None,
        context: 4_096,
    },
    PublishedShape { name: "llama-2-70b", shape: LLAMA_2_70B, window: None, context: 4_096 },
    PublishedShape {
        name: "llama-3-8b",
        shape: Shape { kv_heads: 8, intermediate_size: 14_336, vocab_size: 128_256, ..LLAMA_2_7B },
        window: None,
        context: 8_192,
    },
    PublishedShape {
        name: "llama-3-70b",
        shape: Shape { vocab_size: 128_256, ..LLAMA_2_70B },
        window: None,
        context: 8_192,
    },
    PublishedShape {
        name: "mistral-7b",
        shape: Shape { kv_heads: 8, intermediate_size: 14_336, ..LLAMA_2_7B },
        window: Some(4_096),
        context: 32_768,
    },
];

const LLAMA_2_7B: Shape = Shape {
    hidden_size: 4_096,
    layers: 32,
    heads: 32,
    kv_heads: 32,
    head_dim: 128,
    intermediate_size: 11_008,
    vocab_size: 32_000,
    tied_head: false,
};

const LLAMA_2_70B: Shape = Shape {
    hidden_size: 8_192,
    layers: 80,
    heads: 64,
    kv_heads: 8,
    intermediate_size: 28_672,
    ..LLAMA_2_7B
};

/// The published model of this name, if it is one of [`PUBLISHED`].
pub fn published(name: &str) -> Option<&'static PublishedShape> {
    PUBLISHED.iter().find(|model| model.name == name)
}
