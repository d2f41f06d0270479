//! A model small enough to run thousands of passes.

use naive_decode::{Config, Element, LoadOptions, Model};

pub(crate) const VOCAB: u32 = 30;

/// Two layers, four query heads, two key-value heads of width 8.
pub(crate) fn small_model(kv_element: Element) -> Model {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "intermediate_size": 32, "vocab_size": {VOCAB}, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 64}}"#
    );
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Model::random(config, 1, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
}
