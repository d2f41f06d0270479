//! From a checkpoint in Hugging Face's Llama layout to a [`Model`].

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::feed_forward::SwiGlu;
use crate::kernels::Isa;
use crate::linear::{DenseLinear, Linear};
use crate::model::{Block, Model};
use crate::numerics::Element;
use crate::projection::GroupedProjection;
use crate::rope::Rope;
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::path::Path;

/// Choices that a checkpoint leaves open.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// Longest sequence to accept, in tokens; the trained context if not said.
    pub context: Option<usize>,
    /// Type that keys and values are rounded to.
    pub kv_element: Element,
    /// Instruction set to run on.
    pub isa: Isa,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { context: None, kv_element: Element::F32, isa: Isa::best() }
    }
}

/// Where tensors come from: a name in Hugging Face's Llama layout and the shape that the
/// configuration implies → its values, row-major.
pub type Tensors<'a> = &'a dyn Fn(&str, &[usize]) -> Result<Vec<f32>>;

/// How a matrix read from a checkpoint becomes a [`Linear`]: `(weights, outputs, inputs)`, with
/// `weights` row-major `[outputs][inputs]`.
pub type Pack<'a> = &'a dyn Fn(Vec<f32>, usize, usize) -> Result<Box<dyn Linear>>;

impl Model {
    /// Loads a model directory: `config.json` and `model.safetensors`.
    ///
    /// # Errors
    /// Whatever is missing, malformed or contradictory, by file and tensor.
    pub fn open(directory: &Path, options: LoadOptions) -> Result<Self> {
        let path = directory.join("config.json");
        let json =
            std::fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let config = Config::from_json(&path.display().to_string(), &json)?;
        let checkpoint = Checkpoint::open(&directory.join("model.safetensors"))?;
        Model::load(config, &checkpoint, options)
    }

    /// Loads a model whose files are part of the program; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn embedded(
        name: &str,
        config: &[u8],
        weights: &'static [u8],
        options: LoadOptions,
    ) -> Result<Self> {
        let config = Config::from_json(&format!("{name}/config.json"), config)?;
        let checkpoint = Checkpoint::embedded(&format!("{name}/model.safetensors"), weights)?;
        Model::load(config, &checkpoint, options)
    }

    /// Loads a checkpoint with plain f32 weights.
    ///
    /// # Errors
    /// If a tensor is missing or does not have the shape that `config` implies.
    pub fn load(config: Config, checkpoint: &Checkpoint, options: LoadOptions) -> Result<Self> {
        Model::assemble(
            config,
            options,
            &|name, shape| checkpoint.tensor(name, shape),
            &dense(options.isa),
        )
    }

    /// A model of any shape with weights drawn at random: speaks gibberish, but the same gibberish
    /// on every rung. For tests of shapes that no embedded model has.
    ///
    /// # Errors
    /// If `config` asks for a stretched RoPE.
    pub fn random(config: Config, seed: u64, options: LoadOptions) -> Result<Self> {
        Model::assemble(
            config,
            options,
            &|name, shape| Ok(random_tensor(seed, name, shape)),
            &dense(options.isa),
        )
    }

    /// Puts a model together from tensors, each matrix stored as `pack` decides.
    ///
    /// # Errors
    /// Whatever `tensors` or `pack` refuses.
    pub fn assemble(
        config: Config,
        options: LoadOptions,
        tensors: Tensors,
        pack: Pack,
    ) -> Result<Self> {
        if let Some(scaling) = &config.rope_scaling {
            let expected = "none: take it out of the config and give the model its Rope (rung 02)";
            return Err(Error::invalid("rope_scaling", scaling, expected));
        }
        let matrix = |name: &str, outputs: usize, inputs: usize| {
            pack(tensors(name, &[outputs, inputs])?, outputs, inputs)
        };
        let (hidden, feed) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let block = |index: usize| -> Result<Block> {
            let name = |part: &str| format!("model.layers.{index}.{part}.weight");
            let norm = |part: &str| tensors(&name(part), &[hidden]);
            Ok(Block {
                attention_norm: norm("input_layernorm")?,
                projection: Box::new(GroupedProjection {
                    q: matrix(&name("self_attn.q_proj"), queries, hidden)?,
                    k: matrix(&name("self_attn.k_proj"), keys, hidden)?,
                    v: matrix(&name("self_attn.v_proj"), keys, hidden)?,
                    o: matrix(&name("self_attn.o_proj"), hidden, queries)?,
                    head_dim: config.head_dim,
                }),
                scale: 1.0 / (config.head_dim as f32).sqrt(),
                window: None,
                feed_forward_norm: norm("post_attention_layernorm")?,
                feed_forward: Box::new(SwiGlu {
                    gate: matrix(&name("mlp.gate_proj"), feed, hidden)?,
                    up: matrix(&name("mlp.up_proj"), feed, hidden)?,
                    down: matrix(&name("mlp.down_proj"), hidden, feed)?,
                    isa: options.isa,
                }),
            })
        };
        let table = [config.vocab_size, hidden];
        let embedding = tensors("model.embed_tokens.weight", &table)?;
        let head = match config.tied_head {
            true => pack(embedding.clone(), config.vocab_size, hidden)?,
            false => matrix("lm_head.weight", config.vocab_size, hidden)?,
        };
        let context = options.context.unwrap_or(config.trained_context);
        Ok(Model {
            embedding: Array2::from_shape_vec(table, embedding).expect("the shape was checked"),
            blocks: (0..config.layers).map(block).collect::<Result<_>>()?,
            final_norm: tensors("model.norm.weight", &[hidden])?,
            head,
            rope: Rope::new(config.rope_theta, config.head_dim, context),
            kv_element: options.kv_element,
            isa: options.isa,
            config,
        })
    }
}

fn dense(isa: Isa) -> impl Fn(Vec<f32>, usize, usize) -> Result<Box<dyn Linear>> {
    move |weights, outputs, inputs| Ok(Box::new(DenseLinear::new(&weights, outputs, inputs, isa)?))
}

/// Values that depend on seed and name alone: norms near 1, matrices with rows of unit size.
fn random_tensor(seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    for (i, byte) in name.bytes().enumerate() {
        key[8 + i % 24] ^= byte.rotate_left((i / 24) as u32);
    }
    let mut generator = ChaCha8Rng::from_seed(key);
    let (centre, spread) = match shape {
        [_] => (1.0, 0.2),
        [.., inputs] => (0.0, (3.0 / *inputs as f32).sqrt()),
        [] => (0.0, 1.0),
    };
    let unit = |bits: u32| (bits >> 8) as f32 / (1 << 23) as f32 - 1.0; // [-1, 1)
    let count = shape.iter().product();
    (0..count).map(|_| centre + spread * unit(generator.next_u32())).collect()
}
