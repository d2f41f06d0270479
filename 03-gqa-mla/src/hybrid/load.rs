//! From files, or from nothing, to a model whose layers are not all alike.

use super::{HeadNorm, HybridConfig, QkNorm, Sharing};
use naive_decode::{
    Block, Checkpoint, Config, Grouped, LoadOptions, Model, Pack, Parts, Projection, Result,
    Tensors, dense, random_tensors,
};

/// Loads a model whose files are part of the program, its tensors named as Hugging Face names Qwen3's or Mistral's;
/// `name` is what errors call it. A layer that shares has no `k_proj`, `v_proj` and `k_norm`.
///
/// # Errors
/// Whatever is missing, malformed or contradictory, by file and tensor.
pub fn embedded(
    name: &str,
    config: &[u8],
    weights: &'static [u8],
    options: LoadOptions,
) -> Result<Model> {
    let config = HybridConfig::from_json(&format!("{name}/config.json"), config)?;
    let checkpoint = Checkpoint::embedded(&format!("{name}/model.safetensors"), weights)?;
    load(config, &checkpoint, options)
}

fn load(config: HybridConfig, checkpoint: &Checkpoint, options: LoadOptions) -> Result<Model> {
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    assemble(config, options, &tensors, &dense(options.isa))
}

/// A model with weights drawn at random, as [`Model::random`].
///
/// # Errors
/// If the configuration contradicts itself, or asks for a stretched RoPE.
pub fn random(config: HybridConfig, seed: u64, options: LoadOptions) -> Result<Model> {
    assemble(config, options, &random_tensors(seed), &dense(options.isa))
}

/// Puts a model together from tensors, each matrix stored as `pack` decides.
///
/// # Errors
/// If the configuration contradicts itself, or whatever `tensors` or `pack` refuses.
pub fn assemble(
    config: HybridConfig,
    options: LoadOptions,
    tensors: Tensors,
    pack: Pack,
) -> Result<Model> {
    config.check("config")?;
    let base = config.base.clone();
    Model::assemble_blocks(base, options, tensors, pack, &|parts, index| {
        let projection = projection(&config, parts, index)?;
        Ok(Block { window: config.windows[index], ..parts.block(index, projection)? })
    })
}

/// The maps around attention of one layer.
///
/// # Errors
/// If a tensor is missing or has another shape than `config` implies.
pub fn projection(
    config: &HybridConfig,
    parts: &Parts,
    index: usize,
) -> Result<Box<dyn Projection>> {
    let Config { hidden_size: hidden, heads, head_dim, .. } = *parts.config;
    let name = |part: &str| format!("model.layers.{index}.self_attn.{part}.weight");
    if config.shares[index].is_some() {
        return Ok(Box::new(Sharing {
            q: parts.matrix(&name("q_proj"), heads * head_dim, hidden)?,
            norm: HeadNorm::read(parts, &name("q_norm"))?,
            o: parts.matrix(&name("o_proj"), hidden, heads * head_dim)?,
            crew: parts.crew(),
        }));
    }
    let grouped = match config.qk_norm {
        true => Grouped::with(index, QkNorm::read(parts, index)?),
        false => Grouped::llama(parts, index),
    };
    parts.projection(grouped)
}
