//! The faults of this rung. A hit that should not have been one is the quietest fault of all: nothing is
//! computed wrongly, nothing is corrupt, and the request goes on from a text that is not its own.
//!
//! | File | Fault |
//! |---|---|
//! | `whole_prompt_hit.rs` | all of a prompt is found, and no row is left to give its logits |
//! | `still_filling.rs` | a hit on blocks that another request has not written yet |
//! | `weak_hash.rs` | one prompt is answered from another's cache, because their hashes are equal |
//! | `evicted_live.rs` | a prefix in use is evicted, because nobody counted that it is |
//! | `preempted_hit.rs` | a request that had to wait finds its own blocks, and reads on in the wrong place |
//! | `moved_text.rs` | a known stretch of text is used at another position |
//!
//! `scene.rs` holds what they have in common: a decoder of one request over a pool in which others were before.
//! `trusting.rs` is a cache of blocks that believes what a hash says.

mod evicted_live;
mod moved_text;
mod preempted_hit;
mod scene;
mod still_filling;
mod trusting;
mod weak_hash;
mod whole_prompt_hit;

pub use evicted_live::EVICTED_LIVE;
pub use moved_text::MOVED_TEXT;
pub use preempted_hit::PREEMPTED_HIT;
pub use still_filling::STILL_FILLING;
pub use weak_hash::WEAK_HASH;
pub use whole_prompt_hit::WHOLE_PROMPT_HIT;

use naive_decode::break_it::BreakIt;

/// Tokens that these break-its generate.
const TOKENS: usize = 80;

/// Tokens of a block.
const BLOCK: usize = 16;

/// Every fault of this rung.
pub fn all() -> Vec<BreakIt> {
    vec![WHOLE_PROMPT_HIT, STILL_FILLING, WEAK_HASH, EVICTED_LIVE, PREEMPTED_HIT, MOVED_TEXT]
}
