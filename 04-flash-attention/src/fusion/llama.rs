//! The graph of Llama's blocks, one node for each operation that `model.rs` does.

use super::graph::{Graph, Op};
use naive_decode::Config;
use std::ops::Range;

/// Blocks of the given indices and the norm after the last of them; names are those of a checkpoint.
pub fn llama(config: &Config, blocks: Range<usize>) -> Graph {
    let Config { hidden_size: hidden, intermediate_size: wide, .. } = *config;
    let (q_width, kv_width) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut graph = Graph::new();
    let mut x = graph.push(Op::Input, &[], &[hidden]);
    for index in blocks {
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        let linear = |part: &str, width| Op::Linear(vec![(name(part), width)]);
        // ANCHOR: block
        let h = graph.push(Op::Norm(name("input_layernorm")), &[x], &[hidden]);
        let q = graph.push(linear("self_attn.q_proj", q_width), &[h], &[q_width]);
        let k = graph.push(linear("self_attn.k_proj", kv_width), &[h], &[kv_width]);
        let v = graph.push(linear("self_attn.v_proj", kv_width), &[h], &[kv_width]);
        let q = graph.push(Op::Rope, &[q], &[q_width]);
        let k = graph.push(Op::Rope, &[k], &[kv_width]);
        let answers = graph.push(Op::Attention { turns: false }, &[q, k, v], &[q_width]);
        let o = graph.push(linear("self_attn.o_proj", hidden), &[answers], &[hidden]);
        x = graph.push(Op::Add, &[x, o], &[hidden]);
        let h = graph.push(Op::Norm(name("post_attention_layernorm")), &[x], &[hidden]);
        let gate = graph.push(linear("mlp.gate_proj", wide), &[h], &[wide]);
        let up = graph.push(linear("mlp.up_proj", wide), &[h], &[wide]);
        let gated = graph.push(Op::SiluMul, &[gate, up], &[wide]);
        let down = graph.push(linear("mlp.down_proj", hidden), &[gated], &[hidden]);
        x = graph.push(Op::Add, &[x, down], &[hidden]);
        // ANCHOR_END: block
    }
    graph.push(Op::Norm("model.norm.weight".into()), &[x], &[hidden]);
    graph
}
