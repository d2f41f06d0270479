//! A block in the table.

use super::{HashedBlocks, Policy};
use crate::Salt;
use paged_cache::BlockId;
use paged_cache::offload::Key;

/// What a block comes after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// Nothing: it is the first of a text kept under a salt.
    Salt(Salt),
    /// The entry with this name and number. Names are used again; numbers never are.
    Entry { key: Key, number: u64 },
}

/// What the table knows of a block.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Counts the entries made, so that no two ever had the same.
    pub(super) number: u64,
    pub(super) parent: Parent,
    pub(super) tokens: Box<[u32]>,
    pub(super) block: BlockId,
    /// Entries that have this one as their parent.
    pub(super) children: usize,
    /// When it was last part of a lookup or an insertion.
    pub(super) used: u64,
}

impl Entry {
    // ANCHOR: is
    /// Whether this is the block of `tokens` after `parent`, and not just one of that name.
    pub(super) fn is(&self, parent: Parent, tokens: &[u32]) -> bool {
        self.parent == parent && *self.tokens == *tokens
    }
    // ANCHOR_END: is

    pub(super) fn as_parent(&self, key: Key) -> Parent {
        Parent::Entry { key, number: self.number }
    }

    pub(super) fn may_go(&self, policy: Policy) -> bool {
        match policy {
            Policy::LeafFirst => self.children == 0,
            Policy::Lru => true,
        }
    }
}

impl<H> HashedBlocks<H> {
    /// The parent of an entry, if it is still there.
    fn parent(&mut self, parent: Parent) -> Option<(Key, &mut Entry)> {
        let Parent::Entry { key, number } = parent else { return None };
        let entry = self.entries.get_mut(&key).filter(|entry| entry.number == number)?;
        Some((key, entry))
    }

    /// Whether what it comes after is gone, so that no lookup can arrive at it.
    pub(super) fn is_orphan(&self, entry: &Entry) -> bool {
        match entry.parent {
            Parent::Salt(_) => false,
            Parent::Entry { key, number } => {
                self.entries.get(&key).is_none_or(|entry| entry.number != number)
            }
        }
    }

    pub(super) fn insert(&mut self, key: Key, parent: Parent, tokens: &[u32], block: BlockId) {
        let policy = self.policy;
        if let Some((key, above)) = self.parent(parent) {
            let (could, used) = (above.may_go(policy), above.used);
            above.children += 1;
            if could && !above.may_go(policy) {
                self.waiting.remove(used, key);
            }
        }
        self.now += 1;
        self.made += 1;
        let (number, used, tokens) = (self.made, self.now, tokens.into());
        self.entries.insert(key, Entry { number, parent, tokens, block, children: 0, used });
        self.waiting.insert(used, key);
    }

    /// Takes an entry that may go out of the table and the queue. Its parent then has a child less.
    pub(super) fn remove(&mut self, key: Key) -> Entry {
        let policy = self.policy;
        let entry = self.entries.remove(&key).expect("an entry that is there");
        self.waiting.remove(entry.used, key);
        if let Some((key, above)) = self.parent(entry.parent) {
            let (could, used) = (above.may_go(policy), above.used);
            above.children -= 1;
            if !could && above.may_go(policy) {
                self.waiting.insert(used, key);
            }
        }
        entry
    }
}
