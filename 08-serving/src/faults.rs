//! The faults of this rung. Every logit may be right, and the answer wrong: it is another's, or it comes too late, or
//! its dice were thrown twice.
//!
//! | File | Fault |
//! |---|---|
//! | `slot_handed_on.rs` | a request gets a finished one's place with what was in it |
//! | `blocks_kept.rs` | a client has gone, and its request goes on |
//! | `lost_sampler.rs` | a request that had to wait begins its random numbers again |
//! | `split_character.rs` | each event is made of its own token's bytes |
//! | `split_stop.rs` | a stop string is looked for in each event by itself |
//!
//! `scene.rs` holds what two of them have in common: an engine stepped by hand; `pieces.rs` the same for the last
//! two: an answer's text, piece by piece.

mod blocks_kept;
mod lost_sampler;
mod pieces;
mod scene;
mod slot_handed_on;
mod split_character;
mod split_stop;

pub use blocks_kept::BLOCKS_KEPT;
pub use lost_sampler::LOST_SAMPLER;
pub use slot_handed_on::SLOT_HANDED_ON;
pub use split_character::SPLIT_CHARACTER;
pub use split_stop::SPLIT_STOP;

use naive_decode::break_it::BreakIt;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![SLOT_HANDED_ON, BLOCKS_KEPT, LOST_SAMPLER, SPLIT_CHARACTER, SPLIT_STOP]
}
