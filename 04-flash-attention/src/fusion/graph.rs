//! Operations, and who reads whose results.

/// What a node does to its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Rows from outside: the residual stream.
    Input,
    /// RMSNorm with the weight of this name.
    Norm(String),
    /// A matrix, or several that read the same rows, stacked: names and output widths. One result each.
    Linear(Vec<(String, usize)>),
    /// Turns each head by its row's position.
    Rope,
    /// Queries, keys and values to answers. If it turns, RoPE is done to queries and keys on the way in.
    Attention {
        /// Whether RoPE is part of it.
        turns: bool,
    },
    /// The sum of two.
    Add,
    /// `silu(first) · second`.
    SiluMul,
    /// The sum of two, and the norm of that sum with the weight of this name: two results.
    AddNorm(String),
}

/// One result of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wire {
    /// The node.
    pub node: usize,
    /// Which of its results.
    pub part: usize,
}

/// One operation: a sweep over what it reads and what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<Wire>,
    /// Numbers in one row of each result.
    pub widths: Vec<usize>,
}

/// Operations in an order in which they can run.
///
/// Invariant: a node reads results of earlier nodes only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    nodes: Vec<Node>,
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl Graph {
    /// No operations.
    pub fn new() -> Self {
        Graph { nodes: Vec::new() }
    }

    /// Appends a node; its first result.
    ///
    /// # Panics
    /// If it reads what no earlier node gives.
    pub fn push(&mut self, op: Op, inputs: &[Wire], widths: &[usize]) -> Wire {
        let there = |wire: &Wire| {
            self.nodes.get(wire.node).is_some_and(|node| wire.part < node.widths.len())
        };
        assert!(inputs.iter().all(there), "{op:?} reads what is not there: {inputs:?}");
        self.nodes.push(Node { op, inputs: inputs.to_vec(), widths: widths.to_vec() });
        Wire { node: self.nodes.len() - 1, part: 0 }
    }

    /// The operations, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Numbers in one row of a result.
    pub fn width(&self, wire: Wire) -> usize {
        self.nodes[wire.node].widths[wire.part]
    }

    /// Nodes that read a result.
    pub fn readers(&self, wire: Wire) -> Vec<usize> {
        let reads = |&node: &usize| self.nodes[node].inputs.contains(&wire);
        (0..self.nodes.len()).filter(reads).collect()
    }

    /// Numbers that all operations together read and write for one row.
    pub fn numbers_per_row(&self) -> (usize, usize) {
        let read = self.nodes.iter().flat_map(|node| &node.inputs).map(|&wire| self.width(wire));
        // Input rows are there before anything runs.
        let written = self.nodes.iter().filter(|node| node.op != Op::Input);
        (read.sum(), written.flat_map(|node| &node.widths).sum())
    }
}
