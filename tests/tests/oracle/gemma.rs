//! Gemma 2 and 3: norms on both sides, GELU, embeddings scaled, caps, windows, two bases of RoPE.
//!
//! Three things candle does otherwise are kept out of the comparison.
//!
//! * Its Gemma 2 has the window in every layer, and only in passes over many rows. So it is
//!   compared without a window, and with one in all layers. Which layers have one by default,
//!   `model-files/tests/files/architectures` checks.
//! * In such passes a row sees one token more than `sliding_window` says, as in its Mistral. It is
//!   told one less there.
//! * Its Gemma 3 cannot take many rows in layers that see everything (values that are not
//!   contiguous). It decodes token by token, and its windows are then as wide as they say.

use crate::checkpoint::{self as tiny, with};
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::{gemma2, gemma3};
use serde_json::{Value, json};

fn candles_gemma2(config: &Value, ours: &Ours) -> Result<gemma2::Model> {
    let config: gemma2::Config = serde_json::from_value(config.clone())?;
    Ok(gemma2::Model::new(false, &config, ours.weights()?)?)
}

#[test]
fn norms_gates_and_caps_are_gemma2s() -> Result<()> {
    for caps in [json!(null), json!(2.0)] {
        let fields = json!({ "sliding_window": null, "attn_logit_softcapping": caps,
            "final_logit_softcapping": caps });
        let config = with(tiny::gemma2(), fields);
        let ours = Ours::new(config.clone())?;
        let name = format!("Gemma 2, caps {caps}");
        let mut model = candles_gemma2(&config, &ours)?;
        ours.compare_passes(&name, |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps(&name, |input, position| model.forward(input, position))?;
    }
    Ok(())
}

#[test]
fn a_window_is_gemma2s() -> Result<()> {
    let types = json!({ "layer_types": vec!["sliding_attention"; 3] });
    let config = with(tiny::gemma2(), types);
    let ours = Ours::new(config.clone())?;
    let mut model = candles_gemma2(&with(config, json!({ "sliding_window": 8 })), &ours)?;
    ours.compare_passes("Gemma 2, windows", |input| {
        model.clear_kv_cache();
        model.forward(input, 0)
    })
}

#[test]
fn windows_and_bases_are_gemma3s() -> Result<()> {
    let config = tiny::gemma3();
    let ours = Ours::new(config.clone())?;
    let theirs: gemma3::Config = serde_json::from_value(config)?;
    let mut model = gemma3::Model::new(false, &theirs, ours.weights()?)?;
    ours.compare_steps("Gemma 3", |input, position| model.forward(input, position))
}
