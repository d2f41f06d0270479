//! A graph run operation by operation, with every result in slow memory.

use super::graph::{Graph, Node, Op, Wire};
use crate::traffic::{Bytes, Traffic};
use crate::{attend_heads, standard};
use naive_decode::kernels::{add_norm, silu_gate};
use naive_decode::numerics::rms_norm;
use naive_decode::{
    Config, DenseLinear, Error, Isa, LayerSpec, Linear, Result, Rope, Span, Tensors, Want,
};
use ndarray::{Array2, Array3, s};
use std::collections::HashMap;

/// Sweeps over memory of one run, and the activations they moved. Weights are left out: they are read once in
/// either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Operations, each one sweep.
    pub sweeps: usize,
    /// Bytes of activations.
    pub bytes: Bytes,
}

/// A graph with its weights.
pub struct Program {
    graph: Graph,
    /// By the first name of a stack.
    linears: HashMap<String, DenseLinear>,
    norms: HashMap<String, Vec<f32>>,
    config: Config,
    rope: Rope,
    isa: Isa,
}

/// Results in slow memory. A result is read by name of its wire, and paid for.
struct Results {
    rows: Vec<Vec<Array2<f32>>>,
    bytes: Bytes,
}

impl Results {
    fn read(&mut self, wire: Wire) -> Array2<f32> {
        let rows = self.rows[wire.node][wire.part].clone();
        self.bytes.read += rows.len() * size_of::<f32>();
        rows
    }

    fn write(&mut self, results: Vec<Array2<f32>>) {
        self.bytes.written +=
            results.iter().map(|rows| rows.len() * size_of::<f32>()).sum::<usize>();
        self.rows.push(results);
    }
}

impl Program {
    /// Reads the weights that a graph names.
    ///
    /// # Errors
    /// If one is missing or has another shape, or the graph does not begin with its input.
    pub fn new(graph: Graph, config: &Config, tensors: Tensors, isa: Isa) -> Result<Self> {
        if !graph.nodes().first().is_some_and(|first| matches!(first.op, Op::Input)) {
            let found = format!("{} operations", graph.nodes().len());
            return Err(Error::invalid("a graph to run", found, "its input first"));
        }
        if let Some(at) = graph.nodes()[1..].iter().position(|node| node.op == Op::Input) {
            let found = format!("an input as operation {}", at + 1);
            return Err(Error::invalid("a graph to run", found, "one input, and that first"));
        }
        let (mut linears, mut norms) = (HashMap::new(), HashMap::new());
        for node in graph.nodes() {
            match &node.op {
                Op::Linear(matrices) => {
                    let inputs = graph.width(node.inputs[0]);
                    let (mut stacked, mut outputs) = (Vec::new(), 0);
                    for (name, width) in matrices {
                        stacked.extend(tensors(name, &[*width, inputs])?);
                        outputs += width;
                    }
                    let linear = DenseLinear::new(&stacked, outputs, inputs, isa)?;
                    linears.insert(matrices[0].0.clone(), linear);
                }
                Op::Norm(weight) | Op::AddNorm(weight) => {
                    norms.insert(weight.clone(), tensors(weight, &[config.hidden_size])?);
                }
                _ => {}
            }
        }
        let rope = Rope::new(config.rope_theta, config.head_dim, config.trained_context);
        Ok(Program { graph, linears, norms, config: config.clone(), rope, isa })
    }

    /// Runs rows of one text from its first token on, `x [rows, hidden]`; the last operation's last result.
    ///
    /// # Errors
    /// If there are more rows than positions.
    pub fn run(&self, x: Array2<f32>) -> Result<(Array2<f32>, Counted)> {
        let nodes = self.graph.nodes();
        let mut results = Results { rows: vec![vec![x]], bytes: Bytes { read: 0, written: 0 } };
        for node in &nodes[1..] {
            let inputs: Vec<_> = node.inputs.iter().map(|&wire| results.read(wire)).collect();
            results.write(self.apply(node, inputs)?);
        }
        let last = results.rows.pop().and_then(|mut parts| parts.pop());
        let counted = Counted { sweeps: nodes.len() - 1, bytes: results.bytes };
        Ok((last.expect("a graph has operations"), counted))
    }

    fn apply(&self, node: &Node, mut inputs: Vec<Array2<f32>>) -> Result<Vec<Array2<f32>>> {
        let one = |rows: Array2<f32>| Ok(vec![rows]);
        match &node.op {
            Op::Input => unreachable!("the one input comes first, and is not run"),
            Op::Norm(weight) => one(self.norm(&inputs[0], weight)),
            Op::Linear(matrices) => {
                let all = self.linears[&matrices[0].0].apply(inputs[0].view());
                let mut first = 0;
                let part = |width: &usize| {
                    first += width;
                    all.slice(s![.., first - width..first]).as_standard_layout().into_owned()
                };
                Ok(node.widths.iter().map(part).collect())
            }
            Op::Rope => one(self.turned(inputs.swap_remove(0))?),
            Op::Attention { turns } => {
                let v = inputs.swap_remove(2);
                let k = inputs.swap_remove(1);
                let q = inputs.swap_remove(0);
                let (q, k) = match turns {
                    true => (self.turned(q)?, self.turned(k)?),
                    false => (q, k),
                };
                one(self.attention(q, k, v))
            }
            Op::Add => one(&inputs[0] + &inputs[1]),
            Op::SiluMul => {
                let mut gate = inputs.swap_remove(0);
                let contiguous = "results are contiguous";
                let up = inputs[0].as_slice().expect(contiguous);
                silu_gate(self.isa, gate.as_slice_mut().expect(contiguous), up);
                one(gate)
            }
            Op::AddNorm(weight) => Ok(self.add_norm(&inputs[0], &inputs[1], weight).to_vec()),
        }
    }

    fn norm(&self, x: &Array2<f32>, weight: &str) -> Array2<f32> {
        let rows = x.as_slice().expect("results are contiguous");
        let normed = rms_norm(rows, &self.norms[weight], self.config.rms_norm_eps);
        Array2::from_shape_vec(x.dim(), normed).expect("a norm keeps the shape")
    }

    /// Row by row: summed, and normed while the row is in fast memory.
    fn add_norm(&self, x: &Array2<f32>, y: &Array2<f32>, weight: &str) -> [Array2<f32>; 2] {
        // What is added becomes the norm.
        let (mut sum, mut normed) = (x.clone(), y.clone());
        let (weight, epsilon) = (&self.norms[weight], self.config.rms_norm_eps);
        for (mut sum, mut normed) in sum.rows_mut().into_iter().zip(normed.rows_mut()) {
            let contiguous = "results are contiguous";
            let sum = sum.as_slice_mut().expect(contiguous);
            let normed = normed.as_slice_mut().expect(contiguous);
            add_norm(self.isa, sum, normed, Some(weight), epsilon);
        }
        [sum, normed]
    }

    fn turned(&self, mut rows: Array2<f32>) -> Result<Array2<f32>> {
        for (position, mut row) in rows.rows_mut().into_iter().enumerate() {
            self.rope.rotate(row.as_slice_mut().expect("results are contiguous"), position)?;
        }
        Ok(rows)
    }

    fn attention(&self, q: Array2<f32>, k: Array2<f32>, v: Array2<f32>) -> Array2<f32> {
        let (rows, width, dim) = (q.nrows(), q.ncols(), self.config.head_dim);
        let heads = |x: Array2<f32>| -> Array3<f32> {
            let shape = (rows, x.ncols() / dim, dim);
            x.into_shape_with_order(shape).expect("a whole number of heads")
        };
        let (q, k, v) = (heads(q), heads(k), heads(v));
        let scale = 1.0 / (dim as f32).sqrt();
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale, score_cap: None };
        let span = Span::new(0, 0, &vec![0; rows], Want::All);
        let qkv = (q.view(), k.view(), v.view());
        let answers = attend_heads(&standard, self.isa, layer, &span, qkv, &Traffic::new());
        answers.into_shape_with_order((rows, width)).expect("as wide as the queries")
    }
}
