//! Fewer sweeps.

use super::{embedded, smollm2};
use flash_attention::fusion::{Graph, fuse, llama, merge_linears};

#[test]
fn sweeps_of_thirty_layers() {
    let graph = llama(&smollm2(), 0..30);
    let sweeps = |graph: &Graph| graph.nodes().len() - 1;
    assert_eq!(sweeps(&graph), 451);
    assert_eq!(sweeps(&fuse(&graph)), 241);
    // Stacking alone: two matrices fewer for queries, keys and values, one fewer for gate and up.
    assert_eq!(sweeps(&merge_linears(&graph)), 451 - 3 * 30);
}

/// Numbers that all operations together read and write for one row.
fn numbers(graph: &Graph) -> usize {
    let (read, written) = graph.numbers_per_row();
    read + written
}

#[test]
fn activations_of_the_embedded_model() {
    let graph = llama(&embedded(), 0..6);
    let (before, after) = (numbers(&graph), numbers(&fuse(&graph)));
    assert_eq!((before, after), (63_488, 51_968));
    let saved_percent = 100.0 * (before - after) as f64 / before as f64;
    assert_eq!(saved_percent.round(), 18.0);
    // In one token's time 19 MB of weights are read.
    let saved_bytes = (4 * (before - after)) as f64;
    assert_eq!((1000.0 * saved_bytes / 19_005_440.0).round(), 2.0);
}

/// The last rows of the page's table, and the fourth rule of its exercise.
#[test]
fn activations_of_thirty_layers_and_of_a_fourth_rule() {
    let graph = llama(&smollm2(), 0..30);
    assert_eq!((numbers(&graph), numbers(&fuse(&graph))), (709_632, 577_152));
    let graph = llama(&embedded(), 0..6);
    let block = (numbers(&fuse(&graph)) - 2 * 256) / 6;
    assert_eq!(block, 8_576);
    // What the stack writes and the gate reads; what the gate writes, the stack writes then.
    let wide = embedded().intermediate_size;
    assert_eq!(2 * wide + 2 * wide, 2_816);
}
