//! Qwen2 and 2.5: Llama with biases on queries, keys and values, and windows that are hardly ever
//! used.

use super::fields::Fields;
use super::steps::Biased;
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, Grouped, Model, Parts, Result};

/// Of each layer, how many tokens back a row sees.
struct Qwen2(Vec<Option<usize>>);

/// # Errors
/// Whatever does not go together.
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    let shape = fields.as_windowed()?;
    Ok(Architecture { config: shape.base, family: Box::new(Qwen2(shape.windows)) })
}

impl Family for Qwen2 {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let block = |parts: &Parts, index: usize| {
            let grouped = Grouped::with(index, Biased::read(parts, index)?);
            let block = parts.block(index, parts.projection(grouped)?)?;
            Ok(Block { window: self.0[index], ..block })
        };
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.0
    }
}
