//! Who holds which block, counted from the tables of those inside.
//!
//! The pool may have tens of thousands of blocks, and the prefix cache may know all of them. The next decision needs
//! three numbers of them before every pass. All three follow from what those inside hold, which is little.

use super::Engine;
use super::member::Member;
use naive_decode::{Error, Result};
use paged_cache::{BlockId, Blocks, PagedCache, Tables};

/// How many of the requests inside have each block in their tables.
pub(super) struct Holders {
    /// By block; nobody for all that are in neither of the lists.
    uses: Vec<Uses>,
    /// The blocks that somebody holds, each once.
    held: Vec<BlockId>,
    /// The blocks that somebody who waits begins with.
    awaited: Vec<BlockId>,
}

/// Who uses a block.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// Requests inside that have it in their tables.
    holders: u32,
    /// Whether one that waits begins with it.
    is_awaited: bool,
}

impl Holders {
    /// Of a pool of this many blocks: nobody yet.
    pub(super) fn new(blocks: usize) -> Self {
        let (held, awaited) = (Vec::new(), Vec::new());
        Holders { uses: vec![Uses::default(); blocks], held, awaited }
    }

    /// Forgets everybody. Takes as long as there are blocks that somebody held.
    pub(super) fn clear(&mut self) {
        for block in self.held.drain(..).chain(self.awaited.drain(..)) {
            self.uses[block.index()] = Uses::default();
        }
    }

    /// One more has these tables.
    pub(super) fn add(&mut self, tables: &Tables) {
        for block in tables.held() {
            let holders = &mut self.uses[block.index()].holders;
            *holders += 1;
            if *holders == 1 {
                self.held.push(block);
            }
        }
    }

    /// One that waits begins with this.
    pub(super) fn note_awaited(&mut self, block: BlockId) {
        self.uses[block.index()].is_awaited = true;
        self.awaited.push(block);
    }

    /// How many have a block.
    pub(super) fn of(&self, block: BlockId) -> u32 {
        self.uses[block.index()].holders
    }

    /// Whether others than one of those who have it may have a block, now or after the next decision.
    pub(super) fn is_common(&self, block: BlockId) -> bool {
        let Uses { holders, is_awaited } = self.uses[block.index()];
        holders > 1 || is_awaited
    }

    /// How many blocks somebody has. The others that are not free are the prefix cache's alone.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// How many of these somebody else has too, or the prefix cache.
    pub(super) fn shared(&self, blocks: &Blocks) -> usize {
        self.held.iter().filter(|block| blocks.references(**block) > 1).count()
    }
}

impl Engine {
    /// Counts anew who holds what.
    pub(super) fn count_holders(&mut self) {
        self.holders.clear();
        count(&mut self.holders, &self.members, self.pool.pool());
    }

    /// Whether what follows from the tables is what the prefix cache says.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn check_holders(&self) -> Result<()> {
        let blocks = self.pool.pool().blocks();
        let mut holders = Holders::new(blocks.count());
        count(&mut holders, &self.members, self.pool.pool());
        let known = self.pool.prefixes().cache().held().into_iter();
        let alone = known.filter(|block| blocks.references(*block) == 1).count();
        let counted = blocks.used() - holders.held();
        match counted == alone {
            true => Ok(()),
            false => {
                let what = "blocks that the prefix cache has alone";
                Err(Error::invalid(what, counted, format!("{alone}, as it says itself")))
            }
        }
    }
}

/// Adds the tables of all who are inside.
fn count(holders: &mut Holders, members: &[Member], pool: &PagedCache) {
    let sessions = members.iter().filter_map(Member::session);
    // One without tables is a broken invariant, which the next step stumbles over.
    sessions.filter_map(|s| pool.tables(s.sequence()).ok()).for_each(|tables| holders.add(tables));
}
