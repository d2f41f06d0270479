//! The graph of Llama's blocks, one node for each operation that `model.rs` does.

use super::graph::{Graph, Op, Wire};
use naive_decode::{Config, Gated, Grouped};
use std::ops::Range;

/// Blocks of the given indices and the norm after the last of them; names are those of a checkpoint.
pub fn llama(config: &Config, blocks: Range<usize>) -> Graph {
    let hidden = config.hidden_size;
    let mut graph = Graph::new();
    let mut x = graph.push(Op::Input, &[], &[hidden]);
    for index in blocks {
        // ANCHOR: block
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let norm = |part: &str| Op::Norm(name(part) + ".weight");
        let h = graph.push(norm("input_layernorm"), &[x], &[hidden]);
        let o = add_attention(&mut graph, h, config, &name("self_attn"));
        x = graph.push(Op::Add, &[x, o], &[hidden]);
        let h = graph.push(norm("post_attention_layernorm"), &[x], &[hidden]);
        let down = add_feed_forward(&mut graph, h, &Gated::llama(config, index));
        x = graph.push(Op::Add, &[x, down], &[hidden]);
        // ANCHOR_END: block
    }
    graph.push(Op::Norm("model.norm.weight".into()), &[x], &[hidden]);
    graph
}

/// Attention and its matrices alone, whose names begin with `prefix`. In other families `Rope` stands for whatever is done to
/// queries and keys.
pub(super) fn attention(config: &Config, prefix: &str) -> Graph {
    let mut graph = Graph::new();
    let h = graph.push(Op::Input, &[], &[config.hidden_size]);
    add_attention(&mut graph, h, config, prefix);
    graph
}

/// A gated unit alone. `SiluMul` stands for its gate, whatever that does.
pub(super) fn feed_forward(hidden: usize, gated: &Gated) -> Graph {
    let mut graph = Graph::new();
    let h = graph.push(Op::Input, &[], &[hidden]);
    add_feed_forward(&mut graph, h, gated);
    graph
}

// ANCHOR: halves
fn add_attention(graph: &mut Graph, h: Wire, config: &Config, prefix: &str) -> Wire {
    let [q, k, v] = Grouped::matrices_at(prefix, config).map(|it| add_matrix(graph, h, it));
    let [q_width, kv_width] = [graph.width(q), graph.width(k)];
    let q = graph.push(Op::Rope, &[q], &[q_width]);
    let k = graph.push(Op::Rope, &[k], &[kv_width]);
    let answers = graph.push(Op::Attention { turns: false }, &[q, k, v], &[q_width]);
    let hidden = graph.width(h);
    add_matrix(graph, answers, (Grouped::output_at(prefix), hidden))
}

fn add_feed_forward(graph: &mut Graph, h: Wire, gated: &Gated) -> Wire {
    let [gate, up] = gated.matrices().map(|it| add_matrix(graph, h, it));
    let product = graph.push(Op::SiluMul, &[gate, up], &[gated.width]);
    let hidden = graph.width(h);
    add_matrix(graph, product, (gated.down(), hidden))
}

fn add_matrix(graph: &mut Graph, x: Wire, (name, width): (String, usize)) -> Wire {
    graph.push(Op::Linear(vec![(name, width)]), &[x], &[width])
}
// ANCHOR_END: halves
