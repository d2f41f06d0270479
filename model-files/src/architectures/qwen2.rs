//! Qwen2 and 2.5: Llama with biases on queries, keys and values, and windows that are hardly ever
//! used.

use super::fields::Fields;
use super::parts::Biased;
use super::{Architecture, Family, Source};
use naive_decode::{Block, Config, GroupedProjection, Model, Parts, Result};

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
        let block = |parts: &Parts, index: usize| self.block(parts, index);
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.0
    }
}

impl Qwen2 {
    fn block(&self, parts: &Parts, index: usize) -> Result<Block> {
        let Config { hidden_size: hidden, heads, kv_heads, head_dim, .. } = *parts.config;
        let name = |part: &str| format!("model.layers.{index}.self_attn.{part}");
        let biased =
            |part: &str, heads: usize| Biased::read(parts, &name(part), heads * head_dim, hidden);
        let projection = GroupedProjection {
            q: biased("q_proj", heads)?,
            k: biased("k_proj", kv_heads)?,
            v: biased("v_proj", kv_heads)?,
            o: parts.matrix(&name("o_proj.weight"), hidden, heads * head_dim)?,
            head_dim,
        };
        Ok(Block { window: self.0[index], ..parts.block(index, Box::new(projection))? })
    }
}
