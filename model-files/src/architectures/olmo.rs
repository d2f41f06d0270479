//! OLMo 2 and 3: a half of a block reads the residual stream as it is, and what it gives back is normed before it is added. Queries
//! and keys are normed, too, all heads of a row at once (OLMo 2, OLMo Team 2024).
//!
//! OLMo 3 has windows in three of four layers. What stretches RoPE is for the layers that see everything; the others turn as the
//! model was trained at first.

use super::fields::Fields;
use super::parts::Normed;
use super::steps::{ANY_POSITION, NormedWhole, OwnRope};
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, Gated, Grouped, Model, Parts, Result, Rope};
use std::sync::Arc;

/// Of so many layers of OLMo 3, the last sees everything.
const PATTERN: usize = 4;

/// What OLMo has beyond Llama.
struct Olmo {
    /// Of each layer, how many tokens back a row sees.
    windows: Vec<Option<usize>>,
    /// Base of RoPE in layers with a window.
    local_theta: f64,
}

/// OLMo 2.
///
/// # Errors
/// Whatever does not go together.
pub(super) fn read_2(fields: &Fields) -> Result<Architecture> {
    let config = fields.as_llama()?;
    let family = Olmo { windows: vec![None; config.layers], local_theta: config.rope_theta };
    Ok(Architecture { config, family: Box::new(family) })
}

/// OLMo 3. Which layers have a window is as in Hugging Face's `Olmo3Config` where a config does not say.
///
/// # Errors
/// Whatever does not go together.
pub(super) fn read_3(fields: &Fields) -> Result<Architecture> {
    let pattern = fields.count("sliding_window_pattern")?.unwrap_or(PATTERN);
    let rest = fields.clone().without(&["use_sliding_window"]).or_window_but_every(pattern)?;
    let (rest, local) = rest.rope_by_kind()?;
    let shape = rest.as_windowed()?;
    let local_theta = local.unwrap_or(shape.base.rope_theta);
    let family = Box::new(Olmo { windows: shape.windows, local_theta });
    Ok(Architecture { config: shape.base, family })
}

impl Family for Olmo {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let local = Arc::new(Rope::new(self.local_theta, config.head_dim, ANY_POSITION));
        let block = |parts: &Parts, index: usize| self.block(parts, index, &local);
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }
}

impl Olmo {
    fn block(&self, parts: &Parts, index: usize, local: &Arc<Rope>) -> Result<Block> {
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        let norm = |part: &str| parts.vector(&name(part), parts.config.hidden_size);
        let epsilon = parts.config.rms_norm_eps;
        let (isa, crew) = (parts.options.isa, parts.crew());
        let step = NormedWhole::read(parts, index)?;
        let grouped = match self.windows[index] {
            None => Grouped::with(index, step),
            Some(_) => Grouped::with(index, OwnRope { step, rope: local.clone() }),
        };
        let inner = parts.projection(grouped)?;
        let weight = norm("post_attention_layernorm")?;
        let projection = Box::new(Normed { weight, epsilon, isa, crew: crew.clone(), inner });
        let inner = parts.feed_forward(&Gated::llama(parts.config, index))?;
        let weight = norm("post_feedforward_layernorm")?;
        Ok(Block {
            attention_norm: None,
            projection,
            scale: 1.0 / (parts.config.head_dim as f32).sqrt(),
            score_cap: None,
            window: self.windows[index],
            feed_forward_norm: None,
            feed_forward: Box::new(Normed { weight, epsilon, isa, crew, inner }),
        })
    }
}
