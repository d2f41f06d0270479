//! Eviction: a cache that keeps the entries it expects to need, and drops the rest.
//!
//! Most of a query's attention goes to few tokens. Whoever could tell which, could forget the
//! others; what the published methods differ in is how they guess. Here a guess is an [`Evict`],
//! and one cache, [`EvictingCache`], carries it out.
//!
//! | File | Holds |
//! |---|---|
//! | `cache.rs` | the cache: sequences, rollback, integrity; `cache/pass.rs` a pass through it |
//! | `head.rs` | one key-value head's entries and its policy |
//! | `budget.rs` | how much may be kept |
//! | `sinks.rs` | the first tokens and the last (StreamingLLM); without the first, a plain window |
//! | `heavy_hitters.rs` | those that have been looked at most, and the last (H2O) |
//! | `snap_kv.rs` | those that the end of the prompt looks at (SnapKV) |
//! | `keyformer.rs` | as H2O, by a score that noise keeps from being sure of itself (Keyformer) |
//! | `random.rs` | any: what a method must beat |
//! | `noise.rs`, `rank.rs` | random numbers that belong to a place; the highest of some scores |
//! | `method.rs` | all of them by name, for tables |
//!
//! **Within a pass** every row sees what was held before it and the rows before it; nothing is
//! dropped until the pass is committed. So a prompt fed in one pass is read in full, and then
//! reduced; fed in chunks, its later chunks already see a reduced cache. In between, memory holds
//! the budget and one chunk ([`EvictingCache::peak_bytes`]). [`SnapKv`] alone chooses once, at the
//! prompt's end: it holds the whole prompt until then, and afterwards whatever comes.
//!
//! **The prompt** of a sequence is what is fed up to and including the first pass that wants
//! logits: whoever feeds more than one chunk wants none before the last.
//!
//! **Positions.** Keys are kept as they were rotated, at their token's position in the text, so
//! what is kept stays as far away as it was. (Keyformer compared both and found this the better,
//! Adnan et al. 2024.) StreamingLLM counts positions inside the cache instead (Xiao et al.
//! 2023, §3.2), so that no distance exceeds the cache's size however long the stream:
//! [`EvictingCache::with_positions_in_cache`].

mod budget;
mod cache;
mod head;
mod heavy_hitters;
mod keyformer;
mod method;
mod noise;
mod random;
mod rank;
mod sinks;
mod snap_kv;

pub use budget::Budget;
pub use cache::EvictingCache;
pub use heavy_hitters::HeavyHitters;
pub use keyformer::Keyformer;
pub use method::{Fork, Method, methods};
pub use random::Random;
pub use sinks::Sinks;
pub use snap_kv::SnapKv;

use naive_decode::Result;

// ANCHOR: evict
/// Chooses what one key-value head keeps.
///
/// Every head of every layer has a policy of its own, cloned from the one that the cache was given,
/// and so keeps entries of its own choice. What a policy remembers of an entry, it remembers by
/// *place*, the entry's number among those held; slots ascend with places.
pub trait Evict: Clone + Send + Sync {
    /// Whether this many entries are enough to work with.
    ///
    /// # Errors
    /// If they are not; says how many would be.
    fn check(&self, budget: usize) -> Result<()>;

    /// Whether it wants to be told how queries share out their attention.
    fn observes(&self) -> bool {
        false
    }

    /// One query has shared out its attention. Queries come in order, and so do the heads that
    /// share this key-value head.
    fn observe(&mut self, _query: &Observation) {}

    /// The places that stay, ascending; `None` if all do. Having dropped the others, it must be
    /// content: asked again, it gives `None`.
    fn choose(&self, held: &Held) -> Option<Vec<usize>>;

    /// All entries but those in `places` are gone, and the queries of tokens from `length` on have
    /// been taken back. What is remembered of the entries that stay moves to their new places.
    fn keep(&mut self, _places: &[usize], _length: usize) {}

    /// Bytes that it remembers.
    fn bytes(&self) -> usize {
        0
    }
}
// ANCHOR_END: evict

/// How one query shared out its attention over what a head holds.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Layer that asked.
    pub layer: usize,
    /// Query head.
    pub head: usize,
    /// Slot of the query's token.
    pub slot: usize,
    /// Tokens since the prompt's end, the query's own included; 0 within the prompt.
    pub since_prompt: usize,
    /// Places that it saw, ascending.
    pub places: &'a [usize],
    /// Its weight on each, 1 in all.
    pub weights: &'a [f32],
}

/// What a head holds when a pass has been committed.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// Layer.
    pub layer: usize,
    /// Key-value head.
    pub kv_head: usize,
    /// Slot of each place, ascending.
    pub slots: &'a [usize],
    /// Entries that it may keep.
    pub budget: usize,
    /// Where in the text the pass ended.
    pub phase: Phase,
}

/// Where in the text a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Inside the prompt: it wanted no logits, and none before it did.
    Prompt,
    /// At the prompt's end: the first that wanted logits.
    PromptEnd,
    /// After the prompt.
    Generation,
}
