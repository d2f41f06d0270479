//! The same bytes from sizes alone.
//!
//! Every query is taken to see every place. What a causal mask saves is left out, as it is in the papers.

use super::Bytes;
use crate::Tiling;
use naive_decode::SPLIT;
use naive_decode::numerics::LANES;

/// Sizes of attention over one key-value head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Rows times the query heads that share the key-value head.
    pub queries: usize,
    /// Places of the cache that are looked at.
    pub places: usize,
    /// Width of a key, `D`.
    pub key_dim: usize,
    /// Width of a value, `D_v`.
    pub value_dim: usize,
}

impl Sizes {
    /// One number for each pair of query and place.
    pub fn scores(self) -> usize {
        self.queries * self.places
    }

    fn asked(self) -> usize {
        self.queries * self.key_dim
    }

    fn kept(self) -> usize {
        self.places * (self.key_dim + self.value_dim)
    }

    /// Numbers in the answers, `S · D_v`: all that a fused kernel writes.
    pub fn answers(self) -> usize {
        self.queries * self.value_dim
    }

    fn splits(self) -> usize {
        self.places.div_ceil(SPLIT)
    }

    /// A result that is not normalised: maximum, sum and values.
    fn partial(self) -> usize {
        2 + self.value_dim
    }

    /// The same while weights are still summed in lanes.
    fn running(self) -> usize {
        1 + LANES + self.value_dim
    }

    /// Tiles of keys; none lies across the end of a split.
    fn key_tiles(self, tiling: Tiling) -> usize {
        let last = self.places % SPLIT;
        self.places / SPLIT * SPLIT.div_ceil(tiling.keys) + last.div_ceil(tiling.keys)
    }
}

fn bytes(read: usize, written: usize) -> Bytes {
    Bytes { read: read * size_of::<f32>(), written: written * size_of::<f32>() }
}

// ANCHOR: formulas
/// [`crate::standard`]: inputs once, scores and weights out and back in.
pub fn standard(s: Sizes) -> Bytes {
    bytes(s.asked() + s.kept() + 2 * s.scores(), 2 * s.scores() + s.answers())
}

/// [`crate::flash_v1`]: keys and values once; for each tile of them, all queries and what those carry on.
pub fn flash_v1(s: Sizes, tiling: Tiling) -> Bytes {
    let tiles = s.key_tiles(tiling);
    let steps = tiles * s.queries * s.running();
    let joins = s.splits() * s.queries * s.partial();
    let read = s.kept() + tiles * s.asked() + steps + joins + s.splits() * s.queries * s.running();
    bytes(read + s.queries * s.partial(), steps + joins + s.answers())
}

/// [`crate::flash_v2`]: queries once; for each tile of them, all keys and values. Nothing is written but the
/// answers.
pub fn flash_v2(s: Sizes, tiling: Tiling) -> Bytes {
    bytes(s.asked() + s.queries.div_ceil(tiling.queries) * s.kept(), s.answers())
}

/// [`crate::flash_decoding`]: keys and values once; the queries, and a partial result of each, per split.
pub fn flash_decoding(s: Sizes) -> Bytes {
    let partials = s.splits() * s.queries * s.partial();
    bytes(s.kept() + s.splits() * s.asked() + partials, partials + s.answers())
}
// ANCHOR_END: formulas
