//! How a cache keeps what it keeps, and what each row therefore sees.

use super::codec::Codec;

/// Codecs, and what stays in full precision. Codecs must be made for the widths of the cache's keys and
/// values.
pub struct Scheme {
    /// Codes of keys.
    pub keys: Box<dyn Codec>,
    /// Codes of values.
    pub values: Box<dyn Codec>,
    /// What is not coded yet.
    pub recent: Recent,
}

/// Tokens that stay in full precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recent {
    /// So many latest keys are never seen as codes, besides those that do not fill a tile yet.
    pub keys: usize,
    /// The same for values.
    pub values: usize,
    /// Where any rows are kept in full precision: by how many tokens a sequence can always be rolled
    /// back from the longest it has been. A code cannot be undone, so their rows have to be kept that much longer.
    pub rollback: usize,
}

impl Recent {
    /// Everything is coded when it is written, and a row sees its own key and value as their codes.
    pub const NONE: Recent = Recent { keys: 0, values: 0, rollback: 0 };
}

/// How many of a sequence's first tokens a row sees as codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coded {
    pub(super) keys: usize,
    pub(super) values: usize,
}

impl Coded {
    /// From here on, keys or values are wanted in full precision.
    pub(super) fn first_uncoded(self) -> usize {
        self.keys.min(self.values)
    }
}

impl Scheme {
    // ANCHOR: coded
    /// What the `n`th row of a sequence sees as codes: whole tiles before the recent tokens. It depends
    /// on `n` alone, so it does not matter in which chunks the rows came.
    pub(super) fn coded(&self, n: usize) -> Coded {
        let tiles =
            |codec: &dyn Codec, recent| n.saturating_sub(recent) / codec.tokens() * codec.tokens();
        Coded {
            keys: tiles(&*self.keys, self.recent.keys),
            values: tiles(&*self.values, self.recent.values),
        }
    }
    // ANCHOR_END: coded

    /// Rows in full precision that a sequence has to have at hand; none if all are coded at once.
    pub(super) fn rows_waiting(&self) -> usize {
        let Recent { keys, values, rollback } = self.recent;
        // Before a new row, so many may not be coded yet.
        match (keys + self.keys.tokens()).max(values + self.values.tokens()) - 1 {
            0 => 0,
            rows => rows.saturating_add(rollback),
        }
    }
}
