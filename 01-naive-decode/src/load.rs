//! From a checkpoint in Hugging Face's Llama layout to a [`Model`].

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::crew::{Crew, RayonCrew};
use crate::embedding::Embedding;
use crate::error::{Error, Result};
use crate::feed_forward::FeedForward;
use crate::kernels::Isa;
use crate::linear::{DenseLinear, Linear};
use crate::model::{Block, Model};
use crate::numerics::Element;
use crate::parts::{Gated, Grouped, Parts};
use crate::projection::Projection;
use crate::residual::{AddThenNorm, Residual};
use crate::rope::Rope;
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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

/// How the matrices of a checkpoint become [`Linear`]s.
///
/// A function of `(weights, outputs, inputs)`, with `weights` row-major `[outputs][inputs]`, is enough
/// of one.
pub trait Packing {
    /// A matrix whose weights somebody made: row-major `[outputs][inputs]`.
    ///
    /// # Errors
    /// If the weights are not so many, or cannot be stored.
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>>;

    /// A matrix that is made of what the checkpoint has. Who has packed it before, by its `name`, need
    /// not have it made again.
    ///
    /// # Errors
    /// Whatever `make` refuses, or as [`Packing::pack`].
    fn derived(
        &self,
        _name: &str,
        outputs: usize,
        inputs: usize,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.pack(make()?, outputs, inputs)
    }

    /// Rows of the matrix that the checkpoint calls `name`, all of which has `shape`. Who can take them as the file stores
    /// them need not have them made.
    ///
    /// # Errors
    /// As [`Packing::derived`].
    fn rows(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.derived(&rows_name(name, &rows), rows.len(), shape[1], make)
    }

    /// The matrix that the checkpoint calls `name`. Who can take it as the file stores it need not ask
    /// for its numbers.
    ///
    /// # Errors
    /// If it is missing or has another shape, or as [`Packing::pack`].
    fn matrix(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Box<dyn Linear>> {
        self.pack(tensors(name, &[outputs, inputs])?, outputs, inputs)
    }

    /// Matrices that the same rows meet, each with so many outputs, as few as can be: neighbours are one, their outputs one
    /// after another, unless some of them would then be kept otherwise than alone.
    ///
    /// # Errors
    /// As [`Packing::matrix`].
    fn stacked(
        &self,
        matrices: &[(String, usize)],
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Vec<Box<dyn Linear>>> {
        let mut weights = Vec::new();
        for (name, outputs) in matrices {
            weights.extend(tensors(name, &[*outputs, inputs])?);
        }
        let outputs = matrices.iter().map(|(_, outputs)| outputs).sum();
        Ok(vec![self.pack(weights, outputs, inputs)?])
    }

    /// The matrix that the checkpoint calls `name`, in f32, however others are kept: one that decides which others are met.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    fn unrounded(
        &self,
        parts: &Parts,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Box<dyn Linear>> {
        let weights = parts.tensor(name, &[outputs, inputs])?;
        Ok(Box::new(DenseLinear::new(&weights, outputs, inputs, parts.options.isa)?))
    }

    /// Grouped-query attention's maps.
    ///
    /// # Errors
    /// If a matrix is missing or has another shape.
    fn projection(&self, parts: &Parts, grouped: Grouped) -> Result<Box<dyn Projection>> {
        Ok(Box::new(parts.grouped(grouped)?))
    }

    /// A gated unit.
    ///
    /// # Errors
    /// As [`Packing::projection`].
    fn feed_forward(&self, parts: &Parts, gated: &Gated) -> Result<Box<dyn FeedForward>> {
        Ok(Box::new(parts.gated(gated)?))
    }

    /// Who does what no matrix does.
    fn crew(&self) -> Arc<dyn Crew> {
        Arc::new(RayonCrew)
    }

    /// How the blocks of a model add to the residual stream and read it.
    fn residual(&self, _parts: &Parts) -> Box<dyn Residual> {
        Box::new(AddThenNorm)
    }

    /// The table that the checkpoint calls `name`, `[vocab, hidden]`, as embedding and, if the two are
    /// tied, as head.
    ///
    /// # Errors
    /// As [`Packing::matrix`].
    fn embedding(
        &self,
        name: &str,
        shape: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let table = tensors(name, &shape)?;
        let head = match is_tied {
            true => Some(self.pack(table.clone(), shape[0], shape[1])?),
            false => None,
        };
        let table = Array2::from_shape_vec(shape, table).expect("the shape was checked");
        Ok((Box::new(table), head))
    }
}

/// What some rows of the matrix `name` are called.
pub fn rows_name(name: &str, rows: &Range<usize>) -> String {
    format!("{name}[{rows:?}]")
}

/// The table of embeddings, and the head if it is the same table.
pub type EmbeddingAndHead = (Box<dyn Embedding>, Option<Box<dyn Linear>>);

impl<F: Fn(Vec<f32>, usize, usize) -> Result<Box<dyn Linear>>> Packing for F {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        self(weights, outputs, inputs)
    }
}

/// See [`Packing`].
pub type Pack<'a> = &'a dyn Packing;

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
        Model::assemble(config, options, &random_tensors(seed), &dense(options.isa))
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
        Model::assemble_blocks(config, options, tensors, pack, &llama_block)
    }

    /// As [`Model::assemble`], for architectures whose blocks are not Llama's: `block` builds the one
    /// of each index.
    ///
    /// # Errors
    /// Whatever `tensors`, `pack` or `block` refuses.
    pub fn assemble_blocks(
        config: Config,
        options: LoadOptions,
        tensors: Tensors,
        pack: Pack,
        block: &dyn Fn(&Parts, usize) -> Result<Block>,
    ) -> Result<Self> {
        if let Some(scaling) = &config.rope_scaling {
            let expected = "none: take it out of the config and give the model its Rope (rung 02)";
            return Err(Error::invalid("rope_scaling", scaling, expected));
        }
        let hidden = config.hidden_size;
        let table = [config.vocab_size, hidden];
        let parts = Parts { config: &config, options, tensors, pack };
        let (embedding, tied) =
            pack.embedding("model.embed_tokens.weight", table, config.tied_head, tensors)?;
        let head = match tied {
            Some(head) => head,
            None => parts.matrix("lm_head.weight", config.vocab_size, hidden)?,
        };
        let context = options.context.unwrap_or(config.trained_context);
        Ok(Model {
            embedding,
            blocks: (0..config.layers).map(|index| block(&parts, index)).collect::<Result<_>>()?,
            residual: pack.residual(&parts),
            final_norm: parts.vector("model.norm.weight", hidden)?,
            head,
            rope: Rope::new(config.rope_theta, config.head_dim, context),
            kv_element: options.kv_element,
            isa: options.isa,
            crew: pack.crew(),
            config,
        })
    }
}

/// Llama's block.
fn llama_block(parts: &Parts, index: usize) -> Result<Block> {
    parts.block(index, parts.projection(Grouped::llama(parts, index))?)
}

/// Matrices as plain f32. A table that is both embedding and head is kept once.
pub fn dense(isa: Isa) -> impl Packing {
    Dense { isa }
}

struct Dense {
    isa: Isa,
}

impl Packing for Dense {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        Ok(Box::new(DenseLinear::new(&weights, outputs, inputs, self.isa)?))
    }

    fn embedding(
        &self,
        name: &str,
        [vocab, hidden]: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let table = tensors(name, &[vocab, hidden])?;
        if is_tied {
            let shared = Arc::new(DenseLinear::new(&table, vocab, hidden, self.isa)?);
            return Ok((Box::new(Arc::clone(&shared)), Some(Box::new(shared))));
        }
        let table = Array2::from_shape_vec((vocab, hidden), table).expect("the shape was checked");
        Ok((Box::new(table), None))
    }
}

/// Tensors drawn at random, whatever the name: the same for the same seed.
pub fn random_tensors(seed: u64) -> impl Fn(&str, &[usize]) -> Result<Vec<f32>> {
    move |name, shape| Ok(random_tensor(seed, name, shape))
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
