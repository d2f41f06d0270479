//! Phi-3: matrices that are several in one, and heads of which RoPE turns a part.
//!
//! Not compared: windows, which candle's Phi-3 does not have (Mistral's are the same), and
//! longrope, whose factors candle multiplies frequencies by where Microsoft's and Hugging Face's
//! code divides.

use crate::checkpoint as tiny;
use crate::compare::Ours;
use anyhow::Result;
use candle_transformers::models::phi3::{Config, Model};

#[test]
fn fused_matrices_and_partly_turned_heads_are_phi3s() -> Result<()> {
    for (name, config) in [("Phi-3", tiny::phi3()), ("Phi-3, half turned", tiny::phi3_partly())] {
        let ours = Ours::new(config.clone())?;
        let mut theirs = config;
        // Theirs knows one end.
        theirs["eos_token_id"] = 0.into();
        let theirs: Config = serde_json::from_value(theirs)?;
        let mut model = Model::new(&theirs, ours.weights()?)?;
        ours.compare_passes(name, |input| {
            model.clear_kv_cache();
            model.forward(input, 0)
        })?;
        model.clear_kv_cache();
        ours.compare_steps(name, |input, position| model.forward(input, position))?;
    }
    Ok(())
}
