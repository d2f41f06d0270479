//! What the blocks of an architecture are put together from.

use crate::config::Config;
use crate::crew::Crew;
use crate::error::Result;
use crate::feed_forward::{FeedForward, Gate, GatedUnit};
use crate::heads::{HeadStep, Turn};
use crate::kernels::silu_gate;
use crate::linear::Linear;
use crate::load::{LoadOptions, Pack, Tensors};
use crate::model::Block;
use crate::projection::{GroupedProjection, Projection};
use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Where a checkpoint has grouped-query attention's matrices, and what stands between them and attention.
pub struct Grouped {
    /// What their names begin with: `model.layers.3.self_attn`.
    pub prefix: String,
    /// What is done to queries, keys and values.
    pub step: Box<dyn HeadStep>,
    /// What follows the prefix in the name under which all three are one matrix, if they are: `qkv_proj`.
    pub joined_as: Option<&'static str>,
}

impl Grouped {
    /// Llama's, of block `index`: `q_proj`, `k_proj`, `v_proj` and `o_proj`, and RoPE.
    pub fn llama(parts: &Parts, index: usize) -> Self {
        Grouped::with(index, Turn(parts.options.isa))
    }

    /// Llama's matrices of block `index`, and another step.
    pub fn with(index: usize, step: impl HeadStep + 'static) -> Self {
        let prefix = format!("model.layers.{index}.self_attn");
        Grouped { prefix, step: Box::new(step), joined_as: None }
    }

    /// Names and outputs of the three that the same rows meet.
    pub fn matrices(&self, config: &Config) -> [(String, usize); 3] {
        Grouped::matrices_at(&self.prefix, config)
    }

    /// The same, of any block.
    pub fn matrices_at(prefix: &str, config: &Config) -> [(String, usize); 3] {
        let Config { heads, kv_heads, head_dim, .. } = *config;
        [("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)]
            .map(|(part, heads)| (format!("{prefix}.{part}.weight"), heads * head_dim))
    }

    /// The name of the way back.
    pub fn output(&self) -> String {
        Grouped::output_at(&self.prefix)
    }

    /// The same, of any block.
    pub fn output_at(prefix: &str) -> String {
        format!("{prefix}.o_proj.weight")
    }

    /// The name under which the three are one, if they are.
    pub fn joined(&self) -> Option<String> {
        self.joined_as.map(|part| format!("{}.{part}.weight", self.prefix))
    }
}

/// Where a checkpoint has a gated unit's matrices, and what its gate does.
pub struct Gated {
    /// What their names begin with: `model.layers.3.mlp`.
    pub prefix: String,
    /// How wide it is inside.
    pub width: usize,
    /// What the gate does.
    pub activation: Gate,
    /// What follows the prefix in the name under which gate and up are one matrix, if they are: `gate_up_proj`.
    pub joined_as: Option<&'static str>,
}

impl Gated {
    /// Llama's, of block `index`.
    pub fn llama(config: &Config, index: usize) -> Self {
        Gated::silu(format!("model.layers.{index}.mlp"), config.intermediate_size)
    }

    /// SwiGLU: `gate_proj`, `up_proj` and `down_proj`, `width` wide inside.
    pub fn silu(prefix: String, width: usize) -> Self {
        Gated { prefix, width, activation: silu_gate, joined_as: None }
    }

    /// Names and outputs of the two that the same rows meet.
    pub fn matrices(&self) -> [(String, usize); 2] {
        ["gate_proj", "up_proj"].map(|part| (format!("{}.{part}.weight", self.prefix), self.width))
    }

    /// The name under which the two are one, if they are.
    pub fn joined(&self) -> Option<String> {
        self.joined_as.map(|part| format!("{}.{part}.weight", self.prefix))
    }

    /// The name of the way back.
    pub fn down(&self) -> String {
        format!("{}.down_proj.weight", self.prefix)
    }
}

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

    /// Matrices that the same rows meet, as few as can be; see [`Packing::stacked`](crate::Packing::stacked).
    ///
    /// # Errors
    /// If one is missing or has another shape.
    pub fn stacked(
        &self,
        matrices: &[(String, usize)],
        inputs: usize,
    ) -> Result<Vec<Box<dyn Linear>>> {
        self.pack.stacked(matrices, inputs, self.tensors)
    }

    /// A matrix that is kept in f32, however others are.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn unrounded(&self, name: &str, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        self.pack.unrounded(self, name, outputs, inputs)
    }

    /// Who does what no matrix does.
    pub fn crew(&self) -> Arc<dyn Crew> {
        self.pack.crew()
    }

    /// Grouped-query attention's maps, as whoever packs puts them together.
    ///
    /// # Errors
    /// If a matrix is missing or has another shape.
    pub fn projection(&self, grouped: Grouped) -> Result<Box<dyn Projection>> {
        self.pack.projection(self, grouped)
    }

    /// A gated unit, as whoever packs puts it together.
    ///
    /// # Errors
    /// If a matrix is missing or has another shape.
    pub fn feed_forward(&self, gated: &Gated) -> Result<Box<dyn FeedForward>> {
        self.pack.feed_forward(self, gated)
    }

    /// Grouped-query attention's maps, matrix by matrix.
    ///
    /// # Errors
    /// If one of the matrices is missing or has another shape.
    pub fn grouped(&self, grouped: Grouped) -> Result<GroupedProjection> {
        let Config { hidden_size: hidden, heads, head_dim, .. } = *self.config;
        let [q, k, v] = self.apart(&grouped.matrices(self.config), grouped.joined(), hidden)?;
        let o = self.matrix(&grouped.output(), hidden, heads * head_dim)?;
        Ok(GroupedProjection { q, k, v, o, head_dim, step: grouped.step })
    }

    /// A gated unit, matrix by matrix.
    ///
    /// # Errors
    /// If one of the matrices is missing or has another shape.
    pub fn gated(&self, gated: &Gated) -> Result<GatedUnit> {
        let hidden = self.config.hidden_size;
        let [gate, up] = self.apart(&gated.matrices(), gated.joined(), hidden)?;
        let down = self.matrix(&gated.down(), hidden, gated.width)?;
        Ok(GatedUnit { gate, up, down, activation: gated.activation, isa: self.options.isa })
    }

    /// Matrices by name, each with so many outputs: alone, or as rows of the one that holds them all, one below the other.
    fn apart<const N: usize>(
        &self,
        matrices: &[(String, usize); N],
        joined: Option<String>,
        inputs: usize,
    ) -> Result<[Box<dyn Linear>; N]> {
        let mut made = Vec::with_capacity(N);
        match joined {
            None => {
                for (name, outputs) in matrices {
                    made.push(self.matrix(name, *outputs, inputs)?);
                }
            }
            Some(name) => {
                let shape = [matrices.iter().map(|(_, outputs)| outputs).sum(), inputs];
                let all = self.when_asked(&name, &shape);
                let mut next = 0;
                for (_, outputs) in matrices {
                    let (start, end) = (next, next + outputs);
                    next = end;
                    // Not before the shape is known to be the file's: a config alone may have sizes without end.
                    let make = || Ok(all()?[start * inputs..end * inputs].to_vec());
                    made.push(self.rows(&name, shape, start..end, &make)?);
                }
            }
        }
        Ok(made.try_into().ok().expect("one for each name"))
    }

    /// Block `index` with the projection given, and all else as Llama has it.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape.
    pub fn block(&self, index: usize, projection: Box<dyn Projection>) -> Result<Block> {
        self.block_of(index, projection, self.feed_forward(&Gated::llama(self.config, index))?)
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
            attention_norm: Some(norm("input_layernorm.weight")?),
            projection,
            scale: 1.0 / (self.config.head_dim as f32).sqrt(),
            score_cap: None,
            window: None,
            feed_forward_norm: Some(norm("post_attention_layernorm.weight")?),
            feed_forward,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::load::dense;

    #[test]
    fn rows_beyond_all_counting_are_refused_by_their_shape() {
        let config = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 8,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 8}"#;
        let config = Config::from_json("config.json", config.as_bytes()).unwrap();
        let wide = Config { hidden_size: 1 << 24, heads: 1 << 44, kv_heads: 1 << 44, ..config };
        let options = LoadOptions::default();
        let tensors =
            |name: &str, shape: &[usize]| Err(Error::invalid(name, format!("{shape:?}"), "[6, 2]"));
        let pack = dense(options.isa);
        let parts = Parts { config: &wide, options, tensors: &tensors, pack: &pack };
        let grouped = Grouped { joined_as: Some("qkv_proj"), ..Grouped::llama(&parts, 0) };
        let said = parts.grouped(grouped).err().unwrap().to_string();
        assert!(said.contains("self_attn.qkv_proj") && said.contains("16777216]"), "{said}");
    }
}
