//! A model whose blocks are as fused as their graphs.

use super::fuse;
use super::graph::{Graph, Op};
use super::llama::{attention, feed_forward, llama};
use crate::threads::{Disjoint, Pool, PoolCrew};
use naive_decode::kernels::add_norm;
use naive_decode::{
    AddThenNorm, Crew, EmbeddingAndHead, FeedForward, Gate, Gated, GatedUnit, Grouped, HeadStep,
    Isa, KeysValues, KvSize, Linear, Pack, Packing, Parts, Projected, Projection, Residual, Result,
    Rope, Tensors, heads_to_hidden,
};
use ndarray::{Array2, Array3, ArrayView2, s};
use std::ops::Range;
use std::sync::Arc;

/// Rows that a thread takes through a feed-forward together: few enough that what lies between its matrices stays in a
/// core's own cache, enough that weights are not read all too often.
const ROWS_TOGETHER: usize = 96;

/// Packs as `pack` does, and stacks the matrices of a block's halves as [`fuse`] finds that they can be, in all families that have
/// Llama's halves but for what is done to heads, and what the gate does.
///
/// Neighbours that `pack` would not keep alike stay apart.
pub struct Fused<'a> {
    pack: Pack<'a>,
    pool: Arc<Pool>,
}

impl<'a> Fused<'a> {
    /// A pool's threads share out the rows of long passes.
    pub fn new(pack: Pack<'a>, pool: &Arc<Pool>) -> Self {
        Fused { pack, pool: pool.clone() }
    }
}

impl Packing for Fused<'_> {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        self.pack.pack(weights, outputs, inputs)
    }

    fn derived(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.pack.derived(name, outputs, inputs, make)
    }

    fn rows(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        self.pack.rows(name, shape, rows, make)
    }

    fn matrix(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Box<dyn Linear>> {
        self.pack.matrix(name, outputs, inputs, tensors)
    }

    fn stacked(
        &self,
        matrices: &[(String, usize)],
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Vec<Box<dyn Linear>>> {
        self.pack.stacked(matrices, inputs, tensors)
    }

    fn embedding(
        &self,
        name: &str,
        shape: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        self.pack.embedding(name, shape, is_tied, tensors)
    }

    fn unrounded(
        &self,
        parts: &Parts,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Box<dyn Linear>> {
        self.pack.unrounded(parts, name, outputs, inputs)
    }

    fn crew(&self) -> Arc<dyn Crew> {
        Arc::new(PoolCrew(self.pool.clone()))
    }

    fn projection(&self, parts: &Parts, grouped: Grouped) -> Result<Box<dyn Projection>> {
        let graph = fuse(&attention(parts.config, &grouped.prefix));
        Ok(Box::new(FusedProjection {
            qkv: stack(&graph, parts, &grouped.matrices(parts.config)[0].0, grouped.joined())?,
            o: alone(&graph, parts, &grouped.output())?,
            heads: parts.config.heads,
            kv_heads: parts.config.kv_heads,
            head_dim: parts.config.head_dim,
            step: grouped.step,
            pool: self.pool.clone(),
        }))
    }

    fn residual(&self, parts: &Parts) -> Box<dyn Residual> {
        let graph = fuse(&llama(parts.config, 0..1));
        match graph.nodes().iter().any(|node| matches!(node.op, Op::AddNorm(_))) {
            true => Box::new(FusedAddNorm { isa: parts.options.isa, pool: self.pool.clone() }),
            false => self.pack.residual(parts),
        }
    }

    fn feed_forward(&self, parts: &Parts, gated: &Gated) -> Result<Box<dyn FeedForward>> {
        let graph = fuse(&feed_forward(parts.config.hidden_size, gated));
        let (mut made, activation) =
            (stack(&graph, parts, &gated.matrices()[0].0, gated.joined())?, gated.activation);
        let (down, isa) = (alone(&graph, parts, &gated.down())?, parts.options.isa);
        let last = made.pop().expect("gate and up are one matrix, or two");
        Ok(match made.pop() {
            None => Box::new(FusedUnit {
                gate_up: last,
                down,
                activation,
                isa,
                pool: self.pool.clone(),
            }),
            Some(gate) => Box::new(GatedUnit { gate, up: last, down, activation, isa }),
        })
    }
}

/// The matrices of the graph's stack that begins with the one named, and how wide the rows are that they meet.
fn matrices<'g>(graph: &'g Graph, first: &str) -> (&'g [(String, usize)], usize) {
    let stack = graph.nodes().iter().find_map(|node| match &node.op {
        Op::Linear(matrices) if matrices[0].0 == first => {
            Some((&**matrices, graph.width(node.inputs[0])))
        }
        _ => None,
    });
    stack.expect("the rules keep the first matrix of a stack first")
}

/// A stack as few matrices as can be: one if the checkpoint has it so.
fn stack(
    graph: &Graph,
    parts: &Parts,
    first: &str,
    joined: Option<String>,
) -> Result<Vec<Box<dyn Linear>>> {
    let (matrices, inputs) = matrices(graph, first);
    match joined {
        None => parts.stacked(matrices, inputs),
        Some(name) => {
            let outputs = matrices.iter().map(|(_, outputs)| outputs).sum();
            Ok(vec![parts.matrix(&name, outputs, inputs)?])
        }
    }
}

/// A matrix that no rule has stacked with another.
fn alone(graph: &Graph, parts: &Parts, name: &str) -> Result<Box<dyn Linear>> {
    match matrices(graph, name) {
        ([(name, outputs)], inputs) => parts.matrix(name, *outputs, inputs),
        (stack, _) => unreachable!("{stack:?} meet different rows"),
    }
}

/// [`naive_decode::GroupedProjection`] with one matrix for queries, keys and values, or two where some are kept in another
/// format than others. What is done to them is done as they are taken out of its result: they are turned by RoPE, and normed or
/// added to before in some families.
pub struct FusedProjection {
    /// `hidden → (heads + 2 · kv_heads) · D`, together
    pub qkv: Vec<Box<dyn Linear>>,
    /// `heads · D → hidden`
    pub o: Box<dyn Linear>,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    /// Width of one head, `D`.
    pub head_dim: usize,
    /// What is done to queries, keys and values before attention.
    pub step: Box<dyn HeadStep>,
    /// Shares out the rows of long passes.
    pub pool: Arc<Pool>,
}

impl Projection for FusedProjection {
    fn kv(&self) -> Option<KvSize> {
        let (heads, dim) = (self.kv_heads, self.head_dim);
        Some(KvSize { heads, key_dim: dim, value_dim: dim })
    }

    fn project(&self, x: ArrayView2<f32>, positions: &[usize], rope: &Rope) -> Result<Projected> {
        let rope = self.step.own_rope().unwrap_or(rope);
        rope.check(positions)?;
        let made = Vec::from_iter(self.qkv.iter().map(|matrix| matrix.apply(x)));
        let (rows, dim) = (x.nrows(), self.head_dim);
        let counts = [self.heads, self.kv_heads, self.kv_heads];
        let widths = counts.map(|heads| heads * dim);
        // Each row is taken apart, and turned while it is near.
        let parts = self.pool.make_rows(rows, widths, ROWS_TOGETHER, &|mine, growing| {
            for row in mine {
                let mut rest: &[f32] = &[];
                let mut made = made.iter();
                let mut widths = widths.iter();
                let qkv = growing.each_mut().map(|growing| {
                    if rest.is_empty() {
                        let next = made.next().expect("a number for each place");
                        rest = next.row(row).to_slice().expect("Linear gives contiguous rows");
                    }
                    let (own, after) = rest.split_at(*widths.next().expect("three"));
                    rest = after;
                    growing.add(own)
                });
                let done = self.step.row(qkv, positions[row], rope);
                done.expect("checked");
            }
        });
        let mut counts = counts.into_iter();
        let [q, k, v] = parts.map(|part| {
            let heads = counts.next().expect("as many as there are parts");
            Array3::from_shape_vec((rows, heads, dim), part).expect("a number for each place")
        });
        Ok(Projected { q, kv: Some(KeysValues { k, v }) })
    }

    fn has_own_rope(&self) -> bool {
        self.step.own_rope().is_some()
    }

    fn output(&self, attended: Array3<f32>) -> Array2<f32> {
        heads_to_hidden(&*self.o, attended)
    }

    fn bytes(&self) -> usize {
        let qkv: usize = self.qkv.iter().map(|matrix| matrix.bytes()).sum();
        qkv + self.o.bytes() + self.step.bytes()
    }
}

/// [`naive_decode::AddThenNorm`] row by row: a row is normed while its sum is near. Tells the model to leave rows behind that
/// nobody reads.
pub struct FusedAddNorm {
    /// Instruction set for sums and norms.
    pub isa: Isa,
    /// Shares out the rows of long passes.
    pub pool: Arc<Pool>,
}

impl Residual for FusedAddNorm {
    // ANCHOR: add_norm
    fn add_norm(
        &self,
        x: &mut Array2<f32>,
        made: Option<Array2<f32>>,
        weight: Option<&[f32]>,
        epsilon: f32,
    ) -> Array2<f32> {
        let Some(mut made) = made else {
            return AddThenNorm.add_norm(x, None, weight, epsilon);
        };
        let (width, contiguous) = (x.ncols(), "rows of a model are contiguous");
        let stream = Disjoint::new(x.as_slice_mut().expect(contiguous));
        // What was made is taken by its sum, normed.
        let normed = made.as_slice_mut().expect(contiguous);
        let rows = |mine: Range<usize>, normed: &mut [f32]| {
            // SAFETY: every row is handed out once.
            let x = unsafe { stream.part(mine.start * width..mine.end * width) };
            for (x, row) in x.chunks_exact_mut(width).zip(normed.chunks_exact_mut(width)) {
                add_norm(self.isa, x, row, weight, epsilon);
            }
        };
        self.pool.run_rows(normed, width, ROWS_TOGETHER, &rows);
        made
    }
    // ANCHOR_END: add_norm

    fn leaves_unread(&self) -> bool {
        true
    }
}

/// [`naive_decode::GatedUnit`] with one matrix for gate and up.
pub struct FusedUnit {
    /// `hidden → 2 · intermediate`
    pub gate_up: Box<dyn Linear>,
    /// `intermediate → hidden`
    pub down: Box<dyn Linear>,
    /// What the gate does.
    pub activation: Gate,
    /// Instruction set for it.
    pub isa: Isa,
    /// Shares out the rows of long passes.
    pub pool: Arc<Pool>,
}

impl FusedUnit {
    // ANCHOR: gate_up
    fn of_rows(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let gated = self.gate_up.apply_joined(x, &|gate, up| (self.activation)(self.isa, gate, up));
        self.down.apply(gated.view())
    }
    // ANCHOR_END: gate_up
}

impl FeedForward for FusedUnit {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let (rows, width) = (x.nrows(), self.down.outputs());
        if !self.pool.shares_rows(rows, self.gate_up.bytes()) {
            return self.of_rows(x);
        }
        // A thread takes its rows through both matrices. In a region of the pool, matrices are multiplied by the thread
        // that asks.
        let [out] = self.pool.make_rows(rows, [width], ROWS_TOGETHER, &|mine, [out]| {
            let y = self.of_rows(x.slice(s![mine, ..]));
            out.add(y.as_slice().expect("Linear gives contiguous rows"));
        });
        Array2::from_shape_vec((rows, width), out).expect("Linear gives a number for each output")
    }

    fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }
}
