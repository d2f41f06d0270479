//! SmolLM3: Llama, but for some layers, usually every fourth, that turn neither queries nor keys. What such a layer looks at does
//! not depend on where it stands (NoPE, Kazemnejad et al. 2023; by turns with RoPE, Yang et al. 2025).

use super::fields::Fields;
use super::steps::{ANY_POSITION, OwnRope};
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, Grouped, Model, Parts, Result, Rope, Turn};
use serde_json::{Value, json};
use std::sync::Arc;

/// Every so-manieth layer does not turn, where a configuration does not say.
const INTERVAL: usize = 4;

/// What SmolLM3 has beyond Llama.
struct SmolLm3 {
    /// Of each layer, whether it turns queries and keys.
    turns: Vec<bool>,
    /// Of each layer, how many tokens back a row sees.
    windows: Vec<Option<usize>>,
}

/// # Errors
/// Whatever does not go together.
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    let turns = turns(fields)?;
    let shape = with_defaults(fields, &turns)?.as_windowed()?;
    let family = Box::new(SmolLm3 { turns, windows: shape.windows });
    Ok(Architecture { config: shape.base, family })
}

/// What Hugging Face's configuration has where a file leaves something out. Windows are for layers that do not turn, if they are
/// asked for and no layers are named.
fn with_defaults(fields: &Fields, turns: &[bool]) -> Result<Fields> {
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    let slides = fields.flag("use_sliding_window")?.unwrap_or(false);
    let mut whole =
        fields.clone().with("tie_word_embeddings", tied).with("use_sliding_window", slides);
    whole = whole.or_usual([("num_key_value_heads", json!(4))]);
    let newer = fields.value("rope_parameters").and_then(|parameters| parameters.get("rope_theta"));
    if fields.value("rope_theta").or(newer).is_none() {
        whole = whole.with("rope_theta", 2e6);
    }
    if fields.value("layer_types").is_none() {
        let has_window = slides && fields.value("sliding_window").is_some();
        let kind = |&turns: &bool| match has_window && !turns {
            true => "sliding_attention",
            false => "full_attention",
        };
        whole = whole.with("layer_types", turns.iter().map(kind).collect::<Vec<_>>());
    }
    Ok(whole)
}

/// Of each layer, whether it turns: 1 in the list, which is named after the others.
fn turns(fields: &Fields) -> Result<Vec<bool>> {
    const LIST: &str = "no_rope_layers";
    let layers = fields.layers()?;
    let Some(list) = fields.value(LIST) else {
        let interval = fields.count("no_rope_layer_interval")?.unwrap_or(INTERVAL);
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    let one = |number: &Value| match number.as_u64() {
        Some(0) => Some(false),
        Some(1) => Some(true),
        _ => None,
    };
    let turns = list.as_array().and_then(|list| list.iter().map(one).collect());
    // Longer where layers have been left out.
    let turns = turns.filter(|turns: &Vec<bool>| turns.len() >= layers);
    turns.map(|turns| turns[..layers].to_vec()).ok_or_else(|| {
        let expected =
            format!("{layers} numbers, 1 for a layer that turns and 0 for one that does not");
        fields.refusal(LIST, &expected)
    })
}

impl Family for SmolLm3 {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        // A turn by nothing: cosines of 1, sines of 0.
        let still = Rope::with_frequencies(vec![0.0; config.head_dim / 2], 1.0, ANY_POSITION);
        let still = Arc::new(still);
        let block = |parts: &Parts, index: usize| {
            let own = || OwnRope { step: Turn(parts.options.isa), rope: still.clone() };
            let grouped = match self.turns[index] {
                true => Grouped::llama(parts, index),
                false => Grouped::with(index, own()),
            };
            let block = parts.block(index, parts.projection(grouped)?)?;
            Ok(Block { window: self.windows[index], ..block })
        };
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }
}
