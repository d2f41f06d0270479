//! The first tokens and the last: StreamingLLM (Xiao et al. 2023).

use super::{Evict, Held};
use naive_decode::{Error, Result};

/// Keeps the first tokens of a text as *attention sinks*, and beside them the most recent ones.
///
/// A softmax must put its weight somewhere. Where a query finds nothing worth reading, trained
/// models put it on the first tokens, which every query could always see; a window that has slid
/// past them takes that place away (Xiao et al. 2023, §3.1). Four sinks are the paper's choice
/// (§3.2).
///
/// With no sinks this is the plain window over which the paper tells its story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sinks {
    /// How many tokens from the start are never dropped.
    pub count: usize,
}

impl Sinks {
    /// The paper's four.
    pub const FOUR: Sinks = Sinks { count: 4 };
    /// None: the most recent tokens and nothing else.
    pub const NONE: Sinks = Sinks { count: 0 };
}

impl Evict for Sinks {
    fn check(&self, budget: usize) -> Result<()> {
        match budget > self.count {
            true => Ok(()),
            false => {
                let expected = format!("more than the {} sinks", self.count);
                Err(Error::invalid("budget of entries", budget, expected))
            }
        }
    }

    // ANCHOR: choose
    fn choose(&self, held: &Held) -> Option<Vec<usize>> {
        let drop = held.slots.len().checked_sub(held.budget).filter(|&drop| drop > 0)?;
        let sinks = held.slots.partition_point(|&slot| slot < self.count);
        Some((0..sinks).chain(sinks + drop..held.slots.len()).collect())
    }
    // ANCHOR_END: choose
}
