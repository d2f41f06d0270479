//! What chapter 4 of the book says, made to come true: the answers of its quiz, the figures that it counts
//! with, the examples that it works by hand.

mod breaking;
mod fusion;
mod long_contexts;
mod pieces;
mod traffic;
mod weights;

use embedded_models::TARGET;
use flash_attention::Head;
use naive_decode::{Config, Isa};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

fn embedded() -> Config {
    Config::from_json("config.json", TARGET.config).unwrap()
}

/// The shape of SmolLM2-135M.
fn smollm2() -> Config {
    let json =
        br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "vocab_size": 49152, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
        "tie_word_embeddings": true}"#;
    Config::from_json("config.json", json).unwrap()
}

/// Weights that one token of it meets.
fn smollm2_weights() -> usize {
    let Config { layers, hidden_size, intermediate_size, vocab_size, .. } = smollm2();
    let (q, kv) = (9 * 64, 3 * 64);
    let block = hidden_size * (2 * q + 2 * kv + 3 * intermediate_size);
    layers * block + vocab_size * hidden_size
}

/// A head whose query `i` sees `sees[i]`.
fn head<'a>(
    queries: &'a Array2<f32>,
    keys: &'a Array2<f32>,
    values: &'a Array2<f32>,
    sees: &'a [Range<usize>],
) -> Head<'a> {
    let isa = Isa::best();
    Head {
        isa,
        scale: 1.0,
        cap: None,
        queries: queries.view(),
        keys: keys.view(),
        values: values.view(),
        sees,
    }
}

/// A head of which nothing is asked but to add values to a sum.
fn adding<'a>(nothing: ArrayView2<'a, f32>) -> Head<'a> {
    let isa = Isa::best();
    Head { isa, scale: 1.0, cap: None, queries: nothing, keys: nothing, values: nothing, sees: &[] }
}
