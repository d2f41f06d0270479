//! Fewer sweeps over memory: operations that read what another has just written become one.
//!
//! A compiler for models looks at the graph of operations and joins neighbours. Here is how little that needs: a
//! graph of one block, three rules, and a count of the bytes before and after. The model that serves is built by
//! what the rules find, and gives the same bits: a fused operation does the same sums in the same order.
//!
//! | File | Holds |
//! |---|---|
//! | `graph.rs` | operations, and who reads whose results |
//! | `llama.rs` | the graph of Llama's blocks |
//! | `rules.rs` | the rules, and what they find |
//! | `run.rs` | a graph run operation by operation, bytes counted |
//! | `build.rs` | a model whose blocks are as fused as their graphs |

mod build;
mod graph;
mod llama;
mod rules;
mod run;

pub use build::{Fused, FusedAddNorm, FusedProjection, FusedUnit};
pub use graph::{Graph, Node, Op, Wire};
pub use llama::llama;
pub use rules::{fuse, fuse_add_norm, fuse_rope, merge_linears};
pub use run::{Counted, Program};
