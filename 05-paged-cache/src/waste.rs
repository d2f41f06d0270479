//! What becomes of a memory that requests of different lengths share.
//!
//! A request is admitted when its length is not known yet. Whoever wants its keys and values in one
//! piece must set aside enough for the worst case, and then each slot of the memory, one slot for one token,
//! is one of these:
//!
//! - it holds a **token**;
//! - it is **reserved**: this request will use it later, and nobody may use it until then;
//! - it is lost to **internal fragmentation**: set aside, and the request will end before it needs it;
//! - it is lost to **external fragmentation**: not set aside, but in a gap too small for whoever waits;
//! - it is **free**: the next to ask may have it.
//!
//! These are the terms of Kwon et al., "Efficient Memory Management for Large Language Model Serving with
//! PagedAttention" (2023), section 3.1. Their figure 2 found tokens in 20 to 38 % of a memory
//! in one piece, and in 96 % of one in blocks. Here the same allocators serve the same trace, step by step:
//! one token for every running request, who comes first is served first. In blocks, a slot is reserved or lost only
//! in the last block of a request, 15 at worst where a block has 16; and where the memory is no multiple of a block,
//! what is left over counts as external.
//!
//! | File | Holds |
//! |---|---|
//! | `trace.rs` | requests with the published spread of lengths |
//! | `contiguous.rs` | one piece of memory for each request, as long as the worst case or less |
//! | `first_fit.rs`, `buddy.rs` | where in memory such a piece goes |
//! | `paged.rs` | blocks, taken as the request grows |
//! | `simulation.rs` | the steps, and the average over them |

mod buddy;
mod contiguous;
mod first_fit;
mod paged;
mod simulation;
mod trace;

pub use buddy::Buddy;
pub use contiguous::{Contiguous, Placement, SetAside};
pub use first_fit::FirstFit;
pub use paged::Paged;
pub use simulation::{Moment, Report, Simulation, simulate};
pub use trace::{ALPACA, Lengths, Request, SHAREGPT, Workload};

use std::ops::Range;

// ANCHOR: slots
/// What the slots of a memory are doing, counted at one moment. A slot is room for one token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots that hold a token.
    pub tokens: usize,
    /// Slots that the request which has them will use later.
    pub reserved: usize,
    /// Slots that the request which has them will never use.
    pub internal: usize,
    /// Slots that nobody has, in gaps too small for the request that waits.
    pub external: usize,
    /// Slots that the next to ask may have.
    pub free: usize,
}
// ANCHOR_END: slots

impl Slots {
    /// All of them: the memory.
    pub fn total(&self) -> usize {
        self.tokens + self.reserved + self.internal + self.external + self.free
    }

    /// Slots that neither hold a token nor can be given to anybody.
    pub fn wasted(&self) -> usize {
        self.reserved + self.internal + self.external
    }
}

// ANCHOR: allocator
/// A way to share a memory among requests, which it knows by number.
///
/// No slot is ever set aside for two requests.
pub trait Allocator {
    /// Slots in all.
    fn memory(&self) -> usize;
    /// Whether the request could grow to its full length if it had the memory to itself.
    fn could_hold(&self, request: &Request) -> bool;
    /// Sets slots aside for a request that has so many tokens and is about to get one more. False, and
    /// nothing is changed, if there is no room.
    fn admit(&mut self, id: usize, request: &Request, tokens: usize) -> bool;
    /// Sees to it that an admitted request has slots for this many tokens. False if there are no more.
    fn grow(&mut self, id: usize, tokens: usize) -> bool;
    /// Takes back all slots of a request.
    fn release(&mut self, id: usize);
    /// How many slots are set aside for a request.
    fn set_aside(&self, id: usize) -> usize;
    /// Which slots they are, in the order of its tokens.
    fn places(&self, id: usize) -> Vec<Range<usize>>;
    /// How many of the slots that nobody has are in gaps too small for the request that waits.
    fn in_gaps(&self, waiting: Option<&Request>) -> usize;
}
// ANCHOR_END: allocator
