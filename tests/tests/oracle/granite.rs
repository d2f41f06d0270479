//! Granite: embeddings, halves of blocks and scores times a number each, and logits divided by one.
//!
//! What candle calls Granite has none of these numbers: it is Llama under another name. Its Granite 4 has them, and where all layers
//! are attention's it is the same model, but that gate and up are one matrix under another name, and the head is always tied.

use crate::checkpoint::{self as tiny, Checkpoint, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::granitemoehybrid::{
    GraniteMoeHybrid, GraniteMoeHybridCache, GraniteMoeHybridConfig,
};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The checkpoint's weights as Granite 4 has them.
fn weights(config: &Value) -> Result<VarBuilder<'static>> {
    let mut tensors = HashMap::new();
    for (name, (shape, values)) in Checkpoint::random(config.clone()).tensors {
        tensors.insert(name, Tensor::from_vec(values, shape, &Device::Cpu)?);
    }
    for layer in 0..config["num_hidden_layers"].as_u64().unwrap() {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let [gate, up, down] = ["gate_proj", "up_proj", "down_proj"]
            .map(|part| tensors.remove(&name(&format!("mlp.{part}"))).expect(part));
        tensors.insert(name("shared_mlp.input_linear"), Tensor::cat(&[gate, up], 0)?);
        tensors.insert(name("shared_mlp.output_linear"), down);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu))
}

#[test]
fn factors_are_granites() -> Result<()> {
    let one = ["embedding_multiplier", "residual_multiplier", "attention_multiplier"];
    let alone = one.map(|field| json!({ field: 1.0 }));
    for fields in [json!({}), json!({ "logits_scaling": 1.0 })].into_iter().chain(alone) {
        let config = with(tiny::granite(), fields);
        let ours = Ours::new(config.clone())?;
        // Candle knows one end of texts at most, and does not look at it.
        let theirs = with(config.clone(), json!({ "eos_token_id": null }));
        let theirs: GraniteMoeHybridConfig = serde_json::from_value(theirs)?;
        let theirs = theirs.into_config(false);
        let model = GraniteMoeHybrid::load(weights(&config)?, &theirs)?;
        let cache = || GraniteMoeHybridCache::new(true, DType::F32, &theirs, &Device::Cpu);
        ours.compare_passes("Granite", |input| model.forward(input, 0, &mut cache()?))?;
        let mut cache = cache()?;
        ours.compare_steps("Granite", |input, at| model.forward(input, at, &mut cache))?;
    }
    Ok(())
}
