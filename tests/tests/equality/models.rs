//! Models to decode with, and texts.

use embedded_models::TARGET;
use naive_decode::{Config, Element, Isa, LoadOptions, Model, Tokenizer};
use std::sync::Arc;

/// Longest sequence of any test here: past two of attention's splits, and past the target's
/// trained context of 512.
pub(crate) const CONTEXT: usize = 1_100;

/// Sizes of a random model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) hidden: usize,
    pub(crate) feed: usize,
    pub(crate) vocab: usize,
    pub(crate) tied: bool,
}

/// Multi-head, grouped and multi-query; head widths below, at and between whole registers; odd
/// numbers of layers, groups and tokens; rows that are and are not worth waking a thread for.
pub(crate) const SHAPES: [Shape; 5] = [
    // Multi-head, as small as it gets.
    Shape {
        layers: 1,
        heads: 2,
        kv_heads: 2,
        head_dim: 8,
        hidden: 24,
        feed: 40,
        vocab: 61,
        tied: true,
    },
    // Grouped in pairs.
    Shape {
        layers: 3,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        hidden: 64,
        feed: 96,
        vocab: 130,
        tied: false,
    },
    // Multi-query, a head that fills no register.
    Shape {
        layers: 2,
        heads: 5,
        kv_heads: 1,
        head_dim: 20,
        hidden: 52,
        feed: 70,
        vocab: 97,
        tied: true,
    },
    // Groups of three, wider than it is deep.
    Shape {
        layers: 2,
        heads: 6,
        kv_heads: 2,
        head_dim: 32,
        hidden: 96,
        feed: 200,
        vocab: 300,
        tied: false,
    },
    // Queries wider than the residual stream.
    Shape {
        layers: 1,
        heads: 3,
        kv_heads: 3,
        head_dim: 48,
        hidden: 80,
        feed: 128,
        vocab: 256,
        tied: false,
    },
];

impl Shape {
    pub(crate) fn config(&self) -> Config {
        let Shape { layers, heads, kv_heads, head_dim, hidden, feed, vocab, tied } = self;
        let json = format!(
            r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": {hidden},
                "num_hidden_layers": {layers}, "num_attention_heads": {heads},
                "num_key_value_heads": {kv_heads}, "head_dim": {head_dim},
                "intermediate_size": {feed}, "vocab_size": {vocab}, "rms_norm_eps": 1e-5,
                "max_position_embeddings": {CONTEXT}, "tie_word_embeddings": {tied}}}"#
        );
        Config::from_json("config.json", json.as_bytes()).unwrap()
    }

    /// The same weights for every instruction set and element.
    pub(crate) fn model(&self, isa: Isa, kv_element: Element) -> Arc<Model> {
        let options = LoadOptions { context: Some(CONTEXT), kv_element, isa };
        Arc::new(Model::random(self.config(), 7, options).unwrap())
    }
}

/// The embedded target, whatever its weights are worth.
pub(crate) fn target(isa: Isa) -> Arc<Model> {
    let options = LoadOptions { context: Some(CONTEXT), isa, ..LoadOptions::default() };
    Arc::new(Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options).unwrap())
}

/// The target's tokens for a text.
pub(crate) fn encode(text: &str) -> Vec<u32> {
    let tokenizer = Tokenizer::from_bytes(TARGET.name, TARGET.tokenizer).unwrap();
    tokenizer.encode(text).unwrap()
}

/// `count` tokens below `vocab` that follow no pattern which attention could fall into.
pub(crate) fn noise(count: usize, vocab: usize) -> Vec<u32> {
    let mut state = 2_463_534_242u32;
    let mut next = || {
        // Xorshift (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % vocab as u32
    };
    (0..count).map(|_| next()).collect()
}
