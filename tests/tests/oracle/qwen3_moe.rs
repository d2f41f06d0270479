//! Qwen3's mixtures of experts: which experts a row meets, and what each weighs.

use crate::checkpoint::{self as tiny, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::qwen3_moe::{Config, ModelForCausalLM};
use serde_json::json;

#[test]
fn experts_are_qwen3s() -> Result<()> {
    for normed in [true, false] {
        let config = with(tiny::qwen3_moe(), json!({ "norm_topk_prob": normed }));
        let ours = Ours::new(config.clone())?;
        let unused = json!({ "use_sliding_window": false, "max_window_layers": 3 });
        let theirs: Config = serde_json::from_value(with(config, unused))?;
        let mut model = ModelForCausalLM::new(&theirs, ours.weights()?)?;
        ours.compare_passes("Qwen3 MoE", |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps("Qwen3 MoE", |input, position| model.forward(input, position))?;
    }
    Ok(())
}
