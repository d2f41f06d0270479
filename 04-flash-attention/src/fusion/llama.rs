//! The graph of Llama's blocks, one node for each operation that `model.rs` does.

use super::graph::{Graph, Op, Wire};
use naive_decode::Config;
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
        let down = add_feed_forward(&mut graph, h, config.intermediate_size, &name("mlp"));
        x = graph.push(Op::Add, &[x, down], &[hidden]);
        // ANCHOR_END: block
    }
    graph.push(Op::Norm("model.norm.weight".into()), &[x], &[hidden]);
    graph
}

/// Attention and its matrices alone, which many families have; their names begin with `prefix`.
pub(super) fn attention(config: &Config, prefix: &str) -> Graph {
    let mut graph = Graph::new();
    let h = graph.push(Op::Input, &[], &[config.hidden_size]);
    add_attention(&mut graph, h, config, prefix);
    graph
}

/// A gated unit alone, `wide` inside.
pub(super) fn feed_forward(hidden: usize, wide: usize, prefix: &str) -> Graph {
    let mut graph = Graph::new();
    let h = graph.push(Op::Input, &[], &[hidden]);
    add_feed_forward(&mut graph, h, wide, prefix);
    graph
}

// ANCHOR: halves
fn add_attention(graph: &mut Graph, h: Wire, config: &Config, prefix: &str) -> Wire {
    let [q_width, kv_width] = [config.heads, config.kv_heads].map(|heads| heads * config.head_dim);
    let linear = |part: &str, width| Op::Linear(vec![(format!("{prefix}.{part}.weight"), width)]);
    let q = graph.push(linear("q_proj", q_width), &[h], &[q_width]);
    let k = graph.push(linear("k_proj", kv_width), &[h], &[kv_width]);
    let v = graph.push(linear("v_proj", kv_width), &[h], &[kv_width]);
    let q = graph.push(Op::Rope, &[q], &[q_width]);
    let k = graph.push(Op::Rope, &[k], &[kv_width]);
    let answers = graph.push(Op::Attention { turns: false }, &[q, k, v], &[q_width]);
    let hidden = graph.width(h);
    graph.push(linear("o_proj", hidden), &[answers], &[hidden])
}

fn add_feed_forward(graph: &mut Graph, h: Wire, wide: usize, prefix: &str) -> Wire {
    let linear = |part: &str, width| Op::Linear(vec![(format!("{prefix}.{part}.weight"), width)]);
    let gate = graph.push(linear("gate_proj", wide), &[h], &[wide]);
    let up = graph.push(linear("up_proj", wide), &[h], &[wide]);
    let gated = graph.push(Op::SiluMul, &[gate, up], &[wide]);
    let hidden = graph.width(h);
    graph.push(linear("down_proj", hidden), &[gated], &[hidden])
}
// ANCHOR_END: halves
