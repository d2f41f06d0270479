//! What the blocks of an architecture are put together from.

use crate::config::Config;
use crate::error::Result;
use crate::feed_forward::{FeedForward, SwiGlu};
use crate::linear::Linear;
use crate::load::{LoadOptions, Pack, Tensors};
use crate::model::Block;
use crate::projection::{GroupedProjection, Projection};
use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

/// What blocks are put together from.
pub struct Parts<'a> {
    /// The model's shape.
    pub config: &'a Config,
    /// Choices that the checkpoint leaves open.
    pub options: LoadOptions,
    pub(crate) tensors: Tensors<'a>,
    pub(crate) pack: Pack<'a>,
}

impl Parts<'_> {
    /// A matrix, packed.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        self.pack.matrix(name, outputs, inputs, self.tensors)
    }

    /// A matrix that is cut out of, or made of, one that the checkpoint has. Whoever has packed it
    /// before knows it by `name`, which no other matrix of the model has, and does not call `make`.
    ///
    /// # Errors
    /// If the numbers are not `outputs · inputs`, or whatever `make` refuses.
    pub fn derived(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.pack.derived(name, outputs, inputs, make)
    }

    /// Rows of the matrix that the checkpoint calls `name`, all of which has `shape`, made of what `make` gives if it has to
    /// be.
    ///
    /// # Errors
    /// As [`Packing::rows`](crate::Packing::rows).
    pub fn rows(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.pack.rows(name, shape, rows, make)
    }

    /// A matrix that somebody made.
    ///
    /// # Errors
    /// If the numbers are not `outputs · inputs`.
    pub fn pack(
        &self,
        weights: Vec<f32>,
        outputs: usize,
        inputs: usize,
    ) -> Result<Box<dyn Linear>> {
        self.pack.pack(weights, outputs, inputs)
    }

    /// A tensor as it stands, row-major.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        (self.tensors)(name, shape)
    }

    /// A tensor that several matrices are cut out of: read when the first of them asks for it.
    pub fn when_asked<'s>(
        &'s self,
        name: &'s str,
        shape: &'s [usize],
    ) -> impl Fn() -> Result<Rc<Vec<f32>>> + 's {
        let read = OnceCell::new();
        move || match read.get() {
            Some(values) => Ok(Rc::clone(values)),
            None => {
                let values = Rc::new(self.tensor(name, shape)?);
                Ok(Rc::clone(read.get_or_init(|| values)))
            }
        }
    }

    /// A norm's weight.
    ///
    /// # Errors
    /// If it is missing or has another width.
    pub fn vector(&self, name: &str, width: usize) -> Result<Vec<f32>> {
        (self.tensors)(name, &[width])
    }

    /// Matrices that the same rows meet, as one; see [`Packing::stacked`](crate::Packing::stacked).
    ///
    /// # Errors
    /// If one is missing or has another shape.
    pub fn stacked(
        &self,
        matrices: &[(String, usize)],
        inputs: usize,
    ) -> Result<Option<Box<dyn Linear>>> {
        self.pack.stacked(matrices, inputs, self.tensors)
    }

    /// Llama's maps around attention: `q_proj`, `k_proj`, `v_proj` and `o_proj` of block `index`.
    ///
    /// # Errors
    /// If one of the four is missing or has another shape.
    pub fn grouped(&self, index: usize) -> Result<GroupedProjection> {
        let Config { hidden_size: hidden, heads, kv_heads, head_dim, .. } = *self.config;
        let matrix = |part: &str, outputs: usize, inputs: usize| {
            self.matrix(&format!("model.layers.{index}.self_attn.{part}.weight"), outputs, inputs)
        };
        Ok(GroupedProjection {
            q: matrix("q_proj", heads * head_dim, hidden)?,
            k: matrix("k_proj", kv_heads * head_dim, hidden)?,
            v: matrix("v_proj", kv_heads * head_dim, hidden)?,
            o: matrix("o_proj", hidden, heads * head_dim)?,
            head_dim,
        })
    }

    /// The feed-forward `{prefix}.gate_proj`, `up_proj` and `down_proj`, `width` wide inside.
    ///
    /// # Errors
    /// If one of the three is missing or has another shape.
    pub fn swiglu(&self, prefix: &str, width: usize) -> Result<SwiGlu> {
        let hidden = self.config.hidden_size;
        Ok(SwiGlu {
            gate: self.matrix(&format!("{prefix}.gate_proj.weight"), width, hidden)?,
            up: self.matrix(&format!("{prefix}.up_proj.weight"), width, hidden)?,
            down: self.matrix(&format!("{prefix}.down_proj.weight"), hidden, width)?,
            isa: self.options.isa,
        })
    }

    /// Block `index` with the projection given, and all else as Llama has it.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn block(&self, index: usize, projection: Box<dyn Projection>) -> Result<Block> {
        self.block_of(index, projection, self.pack.feed_forward(self, index)?)
    }

    /// Block `index` of the halves given, with Llama's norms before them, and scores scaled as Llama's.
    ///
    /// # Errors
    /// If a norm is missing or has another width.
    pub fn block_of(
        &self,
        index: usize,
        projection: Box<dyn Projection>,
        feed_forward: Box<dyn FeedForward>,
    ) -> Result<Block> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norm = |part: &str| self.vector(&name(part), self.config.hidden_size);
        Ok(Block {
            attention_norm: norm("input_layernorm.weight")?,
            projection,
            scale: 1.0 / (self.config.head_dim as f32).sqrt(),
            score_cap: None,
            window: None,
            feed_forward_norm: norm("post_attention_layernorm.weight")?,
            feed_forward,
        })
    }
}
