//! A model that has learned nothing.

use naive_decode::{Config, LoadOptions, Model};
use std::sync::Arc;

pub(crate) fn random(hidden: usize, seed: u64) -> Arc<Model> {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": {hidden}, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
        "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
        "tie_word_embeddings": true}}"#
    );
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Arc::new(Model::random(config, seed, LoadOptions::default()).unwrap())
}
