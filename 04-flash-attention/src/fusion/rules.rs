//! The rules. None knows what a query or a gate is: each looks at who reads what.

use super::graph::{Graph, Node, Op, Wire};
use std::collections::HashMap;

/// All rules, one after another.
pub fn fuse(graph: &Graph) -> Graph {
    fuse_rope(&fuse_add_norm(&merge_linears(graph)))
}

/// A graph under construction, and where the old one's results are in it.
#[derive(Default)]
struct Rewrite {
    graph: Graph,
    moved: HashMap<Wire, Wire>,
}

impl Rewrite {
    /// Appends a node that reads the old graph's results, and hands over the old results it stands for.
    fn push(&mut self, node: Node, stands_for: impl IntoIterator<Item = Wire>) {
        let inputs: Vec<Wire> = node.inputs.iter().map(|wire| self.moved[wire]).collect();
        let first = self.graph.push(node.op, &inputs, &node.widths);
        for (part, old) in stands_for.into_iter().enumerate() {
            self.moved.insert(old, Wire { part, ..first });
        }
    }
}

fn results(index: usize, node: &Node) -> impl Iterator<Item = Wire> + use<> {
    (0..node.widths.len()).map(move |part| Wire { node: index, part })
}

// ANCHOR: merge
/// Matrices that read the same rows become one, stacked: the rows are read once. In a block that is queries,
/// keys and values, and gate and up.
pub fn merge_linears(graph: &Graph) -> Graph {
    let mut new = Rewrite::default();
    for (index, node) in graph.nodes().iter().enumerate() {
        if new.moved.contains_key(&Wire { node: index, part: 0 }) {
            continue; // became part of an earlier one
        }
        let is_sibling = |other: &&(usize, &Node)| {
            matches!(other.1.op, Op::Linear(_)) && other.1.inputs == node.inputs
        };
        let Op::Linear(_) = node.op else {
            new.push(node.clone(), results(index, node));
            continue;
        };
        let nodes = graph.nodes().iter().enumerate();
        let siblings: Vec<(usize, &Node)> = nodes.filter(|other| is_sibling(&other)).collect();
        let matrices = siblings.iter().flat_map(|(_, sibling)| match &sibling.op {
            Op::Linear(matrices) => matrices.clone(),
            _ => Vec::new(),
        });
        let widths = siblings.iter().flat_map(|(_, sibling)| sibling.widths.clone()).collect();
        let op = Op::Linear(matrices.collect());
        let merged = Node { op, inputs: node.inputs.clone(), widths };
        new.push(merged, siblings.iter().flat_map(|(index, sibling)| results(*index, sibling)));
    }
    new.graph
}
// ANCHOR_END: merge

/// A sum that a norm reads is normed while it is there. The sum itself is still a result: it goes on as the
/// residual stream.
pub fn fuse_add_norm(graph: &Graph) -> Graph {
    let norm_of = |sum: Wire| {
        let reader = |&reader: &usize| match &graph.nodes()[reader].op {
            Op::Norm(weight) => Some((reader, weight.clone())),
            _ => None,
        };
        graph.readers(sum).iter().find_map(reader)
    };
    let mut new = Rewrite::default();
    for (index, node) in graph.nodes().iter().enumerate() {
        let own = Wire { node: index, part: 0 };
        if new.moved.contains_key(&own) {
            continue; // a norm that became part of its sum
        }
        match (&node.op, norm_of(own)) {
            (Op::Add, Some((norm, weight))) => {
                let (op, inputs) = (Op::AddNorm(weight), node.inputs.clone());
                let widths = vec![node.widths[0], node.widths[0]];
                new.push(Node { op, inputs, widths }, [own, Wire { node: norm, part: 0 }]);
            }
            _ => new.push(node.clone(), results(index, node)),
        }
    }
    new.graph
}

/// Queries and keys that only attention reads are turned on their way into it.
pub fn fuse_rope(graph: &Graph) -> Graph {
    // The attention that is all that reads a rotation, if it is.
    let attention_of = |rope: usize| match graph.readers(Wire { node: rope, part: 0 })[..] {
        // One that turns already would turn them twice.
        [reader] if graph.nodes()[reader].op == (Op::Attention { turns: false }) => Some(reader),
        _ => None,
    };
    let is_rope = |wire: &Wire| graph.nodes()[wire.node].op == Op::Rope;
    // Attention turns both or neither, and nothing else.
    let takes_over = |attention: usize| {
        let (turned, others) = graph.nodes()[attention].inputs.split_at(2);
        let is_its = |wire: &Wire| is_rope(wire) && attention_of(wire.node) == Some(attention);
        turned.iter().all(is_its) && !others.iter().any(is_its)
    };
    let mut new = Rewrite::default();
    for (index, node) in graph.nodes().iter().enumerate() {
        match node.op {
            Op::Rope if attention_of(index).is_some_and(takes_over) => {}
            Op::Attention { turns: false } if takes_over(index) => {
                let before = |(place, wire): (usize, &Wire)| match place < 2 {
                    true => graph.nodes()[wire.node].inputs[0],
                    false => *wire,
                };
                let inputs = node.inputs.iter().enumerate().map(before).collect();
                let op = Op::Attention { turns: true };
                new.push(Node { op, inputs, ..node.clone() }, results(index, node));
            }
            _ => new.push(node.clone(), results(index, node)),
        }
    }
    new.graph
}
