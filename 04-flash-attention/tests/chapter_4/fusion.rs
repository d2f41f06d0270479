//! Fewer sweeps.

use super::{embedded, smollm2};
use flash_attention::fusion::{Graph, fuse, llama, merge_linears};
use naive_decode::Config;
use naive_decode::roofline::{MatrixShape, Shape};

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

#[test]
fn what_a_prompt_is_spared_whose_last_row_is_read() {
    let percent = |config: &Config| {
        let shape = Shape::from(config);
        let matrices = shape.block_matrices();
        let weights = |of: &[MatrixShape]| of.iter().map(MatrixShape::parameters).sum::<u64>();
        // Of 512 rows all but one; output, gate, up and down of one block.
        let (spared, all) = (511 * weights(&matrices[3..]), 512 * weights(&matrices));
        100.0 * spared as f64 / (all * shape.layers as u64) as f64
    };
    assert_eq!(format!("{:.1}", percent(&smollm2())), "2.8");
    assert_eq!(percent(&embedded()).round(), 14.0);
}
