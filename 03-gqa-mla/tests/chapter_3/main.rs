//! What chapter 3 of the book says, made to come true: the answers of its quiz, the figures that it counts
//! with, the examples that it works by hand.

mod breaking;
mod heads;
mod keeping_less;
mod latents;
mod narrower;
mod windows;

use embedded_models::TARGET;
use naive_decode::{
    Attention, Config, LoadOptions, Logits, Model, NaiveAttention, Pass, Span, Want,
};

/// As small as a Llama with two layers can be.
fn small() -> Model {
    let json =
        br#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32,
        "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 1024}"#;
    let config = Config::from_json("config.json", json).unwrap();
    Model::random(config, 1, LoadOptions::default()).unwrap()
}

/// The embedded target's shape with random weights: what holds of it holds whatever was learnt.
fn target() -> Model {
    Model::random(target_config(), 1, LoadOptions::default()).unwrap()
}

fn target_config() -> Config {
    Config::from_json("config.json", TARGET.config).unwrap()
}

fn text(length: u32) -> Vec<u32> {
    (0..length).map(|i| (i * i + 5 * i / 3 + 3) % 40).collect()
}

fn feed(model: &Model, cache: &mut dyn Attention, start: usize, tokens: &[u32]) -> Logits {
    model.forward(&Pass::one(Span::new(0, start, tokens, Want::All)), cache).unwrap()
}

fn naive(model: &Model, tokens: &[u32]) -> Logits {
    feed(model, &mut NaiveAttention::new(model.isa), 0, tokens)
}

fn bits(logits: &Logits) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}
