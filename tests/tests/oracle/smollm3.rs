//! SmolLM3: layers that do not turn.

use crate::checkpoint::{self as tiny, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::smol::smollm3::{Config, ModelForCausalLM};
use serde_json::json;

#[test]
fn layers_that_do_not_turn_are_smollm3s() -> Result<()> {
    for fields in [json!({}), json!({ "no_rope_layers": null, "no_rope_layer_interval": 2 })] {
        let config = with(tiny::smollm3(), fields);
        let ours = Ours::new(config.clone())?;
        // Candle knows one end of texts at most, and does not look at it.
        let theirs = with(config, json!({ "eos_token_id": null }));
        let theirs: Config = serde_json::from_value(theirs)?;
        let mut model = ModelForCausalLM::new(&theirs, ours.weights()?)?;
        ours.compare_passes("SmolLM3", |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps("SmolLM3", |input, position| model.forward(input, position))?;
    }
    Ok(())
}
