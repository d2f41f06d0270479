//! The faults of this rung. A table is a list of numbers, and every one of them is trusted: what goes wrong
//! here gives a request somebody else's past, fluently.
//!
//! | File | Fault |
//! |---|---|
//! | `dangling_block.rs` | a block is freed while a table still points at it, and given to another request |
//! | `shared_write.rs` | a fork writes into a block that its twin reads too |
//! | `dropped_at_edge.rs` | a preempted request comes back without the token at a block's edge |
//! | `torn_block.rs` | a block comes back from a tier half written, and nobody looks |
//!
//! `scene.rs` holds what they have in common: a decoder of one sequence in a pool, beside which other things
//! happen.

mod dangling_block;
mod dropped_at_edge;
mod scene;
mod shared_write;
mod torn_block;

pub use dangling_block::DANGLING_BLOCK;
pub use dropped_at_edge::DROPPED_AT_EDGE;
pub use shared_write::SHARED_WRITE;
pub use torn_block::TORN_BLOCK;

use naive_decode::break_it::BreakIt;

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![DANGLING_BLOCK, SHARED_WRITE, DROPPED_AT_EDGE, TORN_BLOCK]
}
