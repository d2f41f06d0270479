//! Qwen2: biases on queries, keys and values.

use crate::checkpoint::{self as tiny, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::qwen2::{Config, ModelForCausalLM};
use serde_json::json;

#[test]
fn biases_are_qwen2s() -> Result<()> {
    for tied in [true, false] {
        let config = with(tiny::qwen2(), json!({ "tie_word_embeddings": tied }));
        let ours = Ours::new(config.clone())?;
        let theirs: Config = serde_json::from_value(config)?;
        let mut model = ModelForCausalLM::new(&theirs, ours.weights()?)?;
        ours.compare_passes("Qwen2", |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps("Qwen2", |input, position| model.forward(input, position))?;
    }
    Ok(())
}
