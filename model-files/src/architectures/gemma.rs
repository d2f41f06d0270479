//! Gemma 2 and 3 (text): embeddings scaled, norms before and after each half of a block, GELU for
//! the gate, and layers with windows between layers without.
//!
//! Gemma 2 bends scores and logits to stay within bounds. Gemma 3 norms queries and keys instead,
//! and turns them with a slower base in the layers that see everything.

mod read;

pub(super) use read::{read_2, read_3, read_text_of_3};

use super::parts::{Capped, Normed, Scaled};
use super::steps::{ANY_POSITION, OwnRope};
use super::{Family, Source, Writer};
use gqa_mla::hybrid::QkNorm;
use naive_decode::kernels::gelu_gate;
use naive_decode::{Block, Config, Gated, Grouped, Model, Parts, Result, Rope};
use std::sync::Arc;

/// What Gemma has beyond Llama.
struct Gemma {
    /// Of each layer, how many tokens back a row sees.
    windows: Vec<Option<usize>>,
    /// Scores are dot products times this.
    scale: f32,
    /// Bound of the scores.
    score_cap: Option<f32>,
    /// Bound of the logits.
    logit_cap: Option<f32>,
    /// What only Gemma 3 has: QK norm, and in layers with a window RoPE of this base.
    local_theta: Option<f64>,
    /// As [`Family::prefix`].
    prefix: &'static str,
}

impl Family for Gemma {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let Source { options, tensors, pack, written_by } = from;
        // A norm's weight is kept as what it differs from 1 by.
        let shifted = |name: &str, shape: &[usize]| {
            if written_by == Writer::LlamaCpp {
                return tensors(name, shape);
            }
            let mut values = tensors(name, shape)?;
            if name.ends_with("norm.weight") {
                values.iter_mut().for_each(|weight| *weight += 1.0);
            }
            Ok(values)
        };
        let local = self.local_theta.map(|theta| Rope::new(theta, config.head_dim, ANY_POSITION));
        let local = local.map(Arc::new);
        let block = |parts: &Parts, index: usize| self.block(parts, index, local.as_ref());
        let mut model = Model::assemble_blocks(config, options, &shifted, pack, &block)?;
        // The head has the table as it is, also where it is the same one.
        let factor = (model.config.hidden_size as f64).sqrt() as f32;
        model.embedding = Box::new(Scaled { table: model.embedding, factor });
        if let Some(cap) = self.logit_cap {
            model.head = Box::new(Capped { linear: model.head, cap, isa: model.isa });
        }
        Ok(model)
    }

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.windows
    }
}

impl Gemma {
    fn block(&self, parts: &Parts, index: usize, local: Option<&Arc<Rope>>) -> Result<Block> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norm = |part: &str| parts.vector(&name(part), parts.config.hidden_size);
        let epsilon = parts.config.rms_norm_eps;
        let (isa, crew) = (parts.options.isa, parts.crew());
        let inner = parts.projection(self.grouped(parts, index, local)?)?;
        let weight = norm("post_attention_layernorm.weight")?;
        let projection = Box::new(Normed { weight, epsilon, isa, crew: crew.clone(), inner });
        let gated = Gated { activation: gelu_gate, ..Gated::llama(parts.config, index) };
        let inner = parts.feed_forward(&gated)?;
        let weight = norm("post_feedforward_layernorm.weight")?;
        Ok(Block {
            attention_norm: Some(norm("input_layernorm.weight")?),
            projection,
            scale: self.scale,
            score_cap: self.score_cap,
            window: self.windows[index],
            feed_forward_norm: Some(norm("pre_feedforward_layernorm.weight")?),
            feed_forward: Box::new(Normed { weight, epsilon, isa, crew, inner }),
        })
    }

    /// The maps around attention, with QK norm or without.
    fn grouped(&self, parts: &Parts, index: usize, local: Option<&Arc<Rope>>) -> Result<Grouped> {
        if self.local_theta.is_none() {
            return Ok(Grouped::llama(parts, index));
        }
        let step = QkNorm::read(parts, index)?;
        Ok(match (self.windows[index], local) {
            (Some(_), Some(rope)) => Grouped::with(index, OwnRope { step, rope: rope.clone() }),
            _ => Grouped::with(index, step),
        })
    }
}
