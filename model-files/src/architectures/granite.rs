//! Granite: Llama with four numbers more. Embeddings and what each half of a block gives back are multiplied by one each, scores by
//! another than one over the root of a head's width, and logits are divided by the fourth (after μP, Yang et al. 2022, which
//! chooses such numbers so that what was tuned on a small model holds for a large one).
//!
//! None of them is multiplied into a matrix beforehand: the products would be rounded otherwise.

use super::fields::Fields;
use super::parts::{Divided, Scaled, Times};
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, Gated, Grouped, Model, Parts, Result};

/// What Granite has beyond Llama.
struct Granite {
    /// Factor on rows of the embedding table.
    embedding: f32,
    /// Factor on what a half of a block adds to the residual stream.
    residual: f32,
    /// Scores are dot products times this.
    scale: f32,
    /// What logits are divided by.
    divisor: f32,
}

/// What its config leaves out is 1, as in Hugging Face's `GraniteConfig`: the factor on scores, too.
///
/// # Errors
/// Whatever does not go together.
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    let factor = |field: &str| {
        let factor = fields.positive(field)?.unwrap_or(1.0) as f32;
        match factor.is_normal() {
            true => Ok(factor),
            false => Err(fields.refusal(field, "a number above 0 that 32 bits have room for")),
        }
    };
    let family = Granite {
        embedding: factor("embedding_multiplier")?,
        residual: factor("residual_multiplier")?,
        scale: factor("attention_multiplier")?,
        divisor: factor("logits_scaling")?,
    };
    Ok(Architecture { config: fields.as_llama()?, family: Box::new(family) })
}

impl Family for Granite {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let block = |parts: &Parts, index: usize| self.block(parts, index);
        let mut model =
            Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)?;
        // The head has the table as it is, also where it is the same one.
        model.embedding = Box::new(Scaled { table: model.embedding, factor: self.embedding });
        let crew = model.crew.clone();
        model.head = Box::new(Divided { linear: model.head, by: self.divisor, crew });
        Ok(model)
    }
}

impl Granite {
    fn block(&self, parts: &Parts, index: usize) -> Result<Block> {
        let (factor, crew) = (self.residual, parts.crew());
        let inner = parts.projection(Grouped::llama(parts, index))?;
        let projection = Box::new(Times { factor, crew: crew.clone(), inner });
        let inner = parts.feed_forward(&Gated::llama(parts.config, index))?;
        let feed_forward = Box::new(Times { factor, crew, inner });
        let block = parts.block_of(index, projection, feed_forward)?;
        Ok(Block { scale: self.scale, ..block })
    }
}
