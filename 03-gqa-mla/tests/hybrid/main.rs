//! Models whose layers differ, and the rings that serve them.
//!
//! | File | Tests |
//! |---|---|
//! | `config.rs` | what is read from `config.json`, and what is refused |
//! | `model.rs` | windows, QK norm and sharing, held against their definitions |
//! | `equality.rs` | rings give the bits of masked full attention |
//! | `memory.rs` | bytes, and how far back a ring can be rolled |
//! | `stateful.rs` | any sequence of operations on a ring cache |

mod config;
mod equality;
mod memory;
mod model;
mod stateful;

use gqa_mla::hybrid::{self, HybridConfig};
use naive_decode::{
    Attention, Element, LoadOptions, Logits, Model, NaiveAttention, Pass, Span, Want,
};
use std::sync::Arc;

/// `HybridForCausalLM` with these windows and this sharing, small in all else.
fn config(windows: &[Option<usize>], shares: &[Option<usize>], context: usize) -> HybridConfig {
    let json = format!(
        r#"{{"architectures": ["HybridForCausalLM"], "hidden_size": 24,
            "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 8, "intermediate_size": 32, "vocab_size": 40, "rms_norm_eps": 1e-5,
            "max_position_embeddings": {context}}}"#,
        windows.len()
    );
    let plain = HybridConfig::from_json("config.json", json.as_bytes()).unwrap();
    HybridConfig { windows: windows.to_vec(), shares: shares.to_vec(), ..plain }
}

/// Random weights in that shape.
fn random(
    windows: &[Option<usize>],
    shares: &[Option<usize>],
    context: usize,
    kv_element: Element,
) -> Arc<Model> {
    let options = LoadOptions { kv_element, ..LoadOptions::default() };
    Arc::new(hybrid::random(config(windows, shares, context), 7, options).unwrap())
}

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 5 * i / 3 + 3) % 40).collect()
}

/// Logits after every token, from attention without a cache.
fn naive(model: &Model, tokens: &[u32]) -> Logits {
    run(model, &mut NaiveAttention::new(model.isa), 0, tokens)
}

fn run(model: &Model, cache: &mut dyn Attention, start: usize, tokens: &[u32]) -> Logits {
    model.forward(&Pass::one(Span::new(0, start, tokens, Want::All)), cache).unwrap()
}

fn bits(logits: &Logits, row: usize) -> Vec<u32> {
    logits.row(row).iter().map(|v| v.to_bits()).collect()
}
