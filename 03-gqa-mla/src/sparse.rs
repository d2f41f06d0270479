//! Structured sparse reading in the manner of Native Sparse Attention (NSA, Yuan et al. 2025).
//!
//! Everything is kept, but a query reads little of it. The past is cut into blocks, and each query
//! reads
//!
//! * of every block, one entry that stands for it: the mean of its keys and the mean of its values
//!   (*compressed*, §3.3.1);
//! * the few blocks whose stand-ins it likes best, in full, instead of their stand-ins (*selected*,
//!   §3.3.2), the same ones for all heads that share a key-value head, so that a block is fetched
//!   once for the group; the first block is always among them;
//! * the most recent tokens (*window*, §3.3.3).
//!
//! The method saves reading, which is time, and no memory: the stand-ins come on top. This cache shows what
//! that does to answers, and counts what queries have to read ([`EntriesRead`]). It is no faster itself: each
//! pass lays out all entries once.
//!
//! **What this lacks.** NSA is a way to train. It learns the map from a block to its stand-in, and
//! gates that weigh three separate attentions. A model that was not trained so has neither. Here
//! the map is the mean, taken over rotated keys, in which whatever turns fast cancels out; and one
//! softmax runs over all that is read, in which a stand-in for `b` entries counts `b` times (`ln b`
//! on its score, after that has been scaled and capped). Were the keys of a block all alike, that
//! would be full attention exactly. With every block selected it is full attention, bit for bit: a
//! block that is read has no stand-in.

mod blocks;
mod cache;
mod select;

pub use cache::{EntriesRead, SparseCache};

use naive_decode::{Error, Result};

/// What a query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Tokens in a block.
    pub block: usize,
    /// Blocks that are read in full, the first one included.
    pub selected: usize,
    /// Most recent tokens that are read in any case, the query's own included.
    pub window: usize,
}

impl Pattern {
    /// The pattern with blocks of `block` tokens that reads about `entries` entries of a text of
    /// `length`: all stand-ins, a quarter of what is left as window, the rest as selected blocks;
    /// everything if `entries` is no less than `length`.
    ///
    /// # Errors
    /// Blocks of nothing, or if that is too few even for one block and a window as long.
    pub fn reading(entries: usize, length: usize, block: usize) -> Result<Self> {
        if block == 0 {
            return Err(Error::invalid("tokens in a block", 0, "at least 1"));
        }
        let blocks = length / block;
        if entries >= length {
            // A text shorter than a block is all window.
            return Ok(Pattern { block, selected: blocks.max(1), window: block });
        }
        let left = entries.saturating_sub(blocks);
        if left < 2 * block {
            let expected = format!(
                "at least {}: {blocks} stand-ins, a block and a window",
                blocks + 2 * block
            );
            return Err(Error::invalid("entries to read", entries, expected));
        }
        let window = (left / 4).max(block);
        Ok(Pattern { block, selected: (left - window) / block, window })
    }

    /// # Errors
    /// If any of the three is nothing.
    fn check(self) -> Result<Self> {
        for (what, found) in [
            ("tokens in a block", self.block),
            ("selected blocks", self.selected),
            ("window", self.window),
        ] {
            if found == 0 {
                return Err(Error::invalid(what, 0, "at least 1"));
            }
        }
        Ok(self)
    }
}
