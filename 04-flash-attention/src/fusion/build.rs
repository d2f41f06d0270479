//! A model whose blocks are as fused as their graphs.

use super::graph::{Graph, Op};
use super::{fuse, llama};
use naive_decode::kernels::silu_gate;
use naive_decode::{
    Block, Config, Error, FeedForward, Isa, KeysValues, KvSize, Linear, LoadOptions, Model, Pack,
    Parts, Projected, Projection, Result, Rope, Tensors,
};
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, s};

/// As [`Model::assemble`], with each block's matrices stacked as [`fuse`] finds that they can be.
///
/// # Errors
/// Whatever `tensors` or `pack` refuses.
pub fn assemble(
    config: Config,
    options: LoadOptions,
    tensors: Tensors,
    pack: Pack,
) -> Result<Model> {
    Model::assemble_blocks(config, options, tensors, pack, &block)
}

/// One of Llama's blocks, fused.
///
/// # Errors
/// If a tensor is missing or has another shape.
pub fn block(parts: &Parts, index: usize) -> Result<Block> {
    let config = parts.config;
    let graph = fuse(&llama(config, index..index + 1));
    let find = |first: &str| stack(&graph, parts, first);
    let projection = FusedProjection {
        qkv: find("self_attn.q_proj")?,
        o: find("self_attn.o_proj")?,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
    };
    let feed_forward = FusedSwiGlu {
        gate_up: find("mlp.gate_proj")?,
        down: find("mlp.down_proj")?,
        isa: parts.options.isa,
    };
    let norm = |part: &str| {
        parts.vector(&format!("model.layers.{index}.{part}.weight"), config.hidden_size)
    };
    Ok(Block {
        attention_norm: norm("input_layernorm")?,
        projection: Box::new(projection),
        scale: 1.0 / (config.head_dim as f32).sqrt(),
        score_cap: None,
        window: None,
        feed_forward_norm: norm("post_attention_layernorm")?,
        feed_forward: Box::new(feed_forward),
    })
}

/// The matrices of the graph's stack that begins with the one named, packed as one. A stack's outputs follow
/// each other as its matrices do.
fn stack(graph: &Graph, parts: &Parts, first: &str) -> Result<Box<dyn Linear>> {
    let node = graph.nodes().iter().find_map(|node| match &node.op {
        Op::Linear(matrices) if matrices[0].0.contains(first) => Some((node, matrices)),
        _ => None,
    });
    let Some((node, matrices)) = node else {
        return Err(Error::invalid(
            "matrices of a fused block",
            "none",
            format!("`{first}` first"),
        ));
    };
    let inputs = graph.width(node.inputs[0]);
    let mut stacked = Vec::new();
    for (name, width) in matrices {
        stacked.extend(parts.tensor(name, &[*width, inputs])?);
    }
    let outputs = matrices.iter().map(|(_, width)| width).sum();
    parts.pack(stacked, outputs, inputs)
}

/// [`naive_decode::GroupedProjection`] with one matrix for queries, keys and values. They are turned by RoPE as
/// they are taken out of its result.
pub struct FusedProjection {
    /// `hidden → (heads + 2 · kv_heads) · D`
    pub qkv: Box<dyn Linear>,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of one head, `D`.
    pub head_dim: usize,
}

impl Projection for FusedProjection {
    fn kv(&self) -> Option<KvSize> {
        let (heads, dim) = (self.kv_heads, self.head_dim);
        Some(KvSize { heads, key_dim: dim, value_dim: dim })
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let all = self.qkv.apply(x);
        let (rows, dim) = (all.nrows(), self.head_dim);
        let all = all.into_shape_with_order((rows, self.heads + 2 * self.kv_heads, dim));
        let all = all.expect("a whole number of heads");
        let (k_first, v_first) = (self.heads, self.heads + self.kv_heads);
        let q = turned(all.slice(s![.., ..k_first, ..]), positions, rope)?;
        let k = turned(all.slice(s![.., k_first..v_first, ..]), positions, rope)?;
        let v = all.slice(s![.., v_first.., ..]).as_standard_layout().into_owned();
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        let (rows, heads, dim) = attended.dim();
        let flat = attended.into_shape_with_order((rows, heads * dim)).expect("contiguous");
        self.o.apply(flat.view())
    }

    fn bytes(&self) -> usize {
        self.qkv.bytes() + self.o.bytes()
    }
}

/// A copy of some heads `[rows, heads, D]`, each row turned while it is copied.
fn turned(heads: ArrayView3<f32>, positions: &[usize], rope: &Rope) -> Result<Array3<f32>> {
    let mut copy = Array3::zeros(heads.dim());
    for ((mut to, from), &position) in copy.outer_iter_mut().zip(heads.outer_iter()).zip(positions)
    {
        to.assign(&from);
        rope.rotate(to.as_slice_mut().expect("fresh rows are contiguous"), position)?;
    }
    Ok(copy)
}

/// [`naive_decode::SwiGlu`] with one matrix for gate and up.
pub struct FusedSwiGlu {
    /// `hidden → 2 · intermediate`
    pub gate_up: Box<dyn Linear>,
    /// `intermediate → hidden`
    pub down: Box<dyn Linear>,
    /// Instruction set for the gate.
    pub isa: Isa,
}

impl FeedForward for FusedSwiGlu {
    // ANCHOR: gate_up
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut both = self.gate_up.apply(x);
        let wide = both.ncols() / 2;
        for mut row in both.rows_mut() {
            let row = row.as_slice_mut().expect("Linear gives contiguous rows");
            let (gate, up) = row.split_at_mut(wide);
            silu_gate(self.isa, gate, up);
        }
        self.down.apply(both.slice(s![.., ..wide]))
    }
    // ANCHOR_END: gate_up

    fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}
