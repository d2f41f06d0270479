//! What verification asks of a cache: room for a tree behind the text, and to keep one path of it.

use kv_cache::KvCache;
use naive_decode::{Model, Result};
use paged_cache::{PagedCache, Room};

/// Slots that a tree may take beyond the text. One that would take more is cut.
const TREE_ROOM: usize = 256;

// ANCHOR: seam
/// A cache that can keep some of the slots that it was last given.
pub trait TreeCache: KvCache {
    /// Of the slots from `start` on, keeps those in `kept`, which follow each other from `start` on; the
    /// others are rolled back.
    ///
    /// # Errors
    /// If the slots are not ascending and between `start` and the sequence's length, or there is no such
    /// sequence.
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()>;
}
// ANCHOR_END: seam

impl TreeCache for PagedCache {
    fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        PagedCache::keep(self, sequence, start, kept)
    }
}

/// A cache in which a text of so many tokens has room, or of all that the model can read if that is fewer, and a
/// draft tree behind it.
///
/// # Errors
/// If the model's first layer makes no keys and values, or there is no memory for so many.
pub fn with_room_for_trees(model: &Model, tokens: usize) -> Result<PagedCache> {
    let capacity = tokens.min(model.context()).saturating_add(TREE_ROOM);
    PagedCache::new(model, Room { capacity, ..Room::for_tokens(model, capacity)? })
}
