//! What becomes known and what goes, for those who keep a picture of it elsewhere, such as a router in front of several servers.
//!
//! Only texts that everybody may share are told of. What is kept under a salt is nobody else's business.

use super::Tiered;
use crate::{BlockHash, Branch, PrefixCache, Salt};
use paged_cache::offload::Key;
use std::collections::HashSet;

// ANCHOR: event
/// A change to what is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks that are known from now on, each after the one before it.
    Stored {
        /// The block before the first; none at a text's beginning.
        parent: Option<Key>,
        /// Their names. A name stands for the whole text up to the block's end.
        blocks: Vec<Key>,
        /// Their tokens, one block's after the other's.
        tokens: Vec<u32>,
    },
    /// Blocks that have left the pool.
    Removed {
        /// Their names.
        blocks: Vec<Key>,
    },
}
// ANCHOR_END: event

/// What has changed since it was last told.
#[derive(Default)]
pub(super) struct Changes {
    /// Names of all blocks that were told of and have not gone.
    told: HashSet<Key>,
    events: Vec<KvEvent>,
}

impl Changes {
    fn take(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn stored(&mut self, parent: Option<Key>, blocks: Vec<Key>, tokens: &[u32]) {
        self.told.extend(&blocks);
        self.events.push(KvEvent::Stored { parent, blocks, tokens: tokens.to_vec() });
    }

    /// What goes together is told together.
    pub(super) fn removed(&mut self, block: Key) {
        if !self.told.remove(&block) {
            return;
        }
        match self.events.last_mut() {
            Some(KvEvent::Removed { blocks }) => blocks.push(block),
            _ => self.events.push(KvEvent::Removed { blocks: vec![block] }),
        }
    }
}

impl<P: PrefixCache> Tiered<P> {
    /// Gives all that the pool knows, as [`PrefixCache::outline`] has it, and notes from now on what changes. A cache that has no
    /// outline gives nothing here, and later names parents that nobody was told of.
    pub fn begin_noting(&mut self) -> Vec<KvEvent> {
        let mut all = Changes::default();
        let size = self.cache.block_tokens();
        // The last names of the nodes above the one at hand.
        let mut above: Vec<Key> = Vec::new();
        for Branch { salt, depth, tokens, .. } in self.cache.outline() {
            if salt != Salt::NONE {
                continue;
            }
            above.truncate(depth);
            let parent = above.last().copied();
            let mut name = parent.unwrap_or_else(|| self.chain.root(salt));
            let names = tokens.chunks_exact(size).map(|tokens| {
                name = self.chain.next(name, tokens);
                name
            });
            let names: Vec<Key> = names.collect();
            above.push(name);
            all.stored(parent, names, tokens);
        }
        self.changes.insert(all).take()
    }

    /// What has changed since this was last asked; nothing while it is not noted.
    pub fn take_changes(&mut self) -> Vec<KvEvent> {
        self.changes.as_mut().map(Changes::take).unwrap_or_default()
    }

    /// Nobody wants to know any more.
    pub fn stop_noting(&mut self) {
        self.changes = None;
    }
}
