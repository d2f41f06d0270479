//! Everything that must hold of the table.
//!
//! 1. An entry stands under the hash of its parent's name and its tokens.
//! 2. It has as many children as entries name it as their parent.
//! 3. Numbers and times of last use differ, and none lies ahead.
//! 4. What may go is in the queue by its last use, and nothing else is.
//! 5. If only leaves may go, every parent is there.
//! 6. No block is held twice, and none is free.

use super::entry::{Entry, Parent};
use super::{HashedBlocks, Policy};
use crate::cache::check_held;
use crate::{BlockHash, PrefixCache};
use naive_decode::{Error, Result};
use paged_cache::Blocks;
use paged_cache::offload::Key;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

impl<H: BlockHash> HashedBlocks<H> {
    pub(super) fn check(&self, blocks: &Blocks) -> Result<()> {
        let mut children: HashMap<(Key, u64), usize> = HashMap::new();
        for entry in self.entries.values() {
            if let Parent::Entry { key, number } = entry.parent {
                *children.entry((key, number)).or_default() += 1;
            }
        }
        for (&key, entry) in &self.entries {
            self.check_entry(key, entry)?;
            let found = children.get(&(key, entry.number)).copied().unwrap_or_default();
            expect("children of an entry", entry.children, found)?;
        }
        let different = |number: fn(&Entry) -> u64| {
            self.entries.values().map(number).collect::<HashSet<_>>().len()
        };
        expect("different numbers", different(|entry| entry.number), self.entries.len())?;
        expect("different times", different(|entry| entry.used), self.entries.len())?;
        let may_go = self.entries.values().filter(|entry| entry.may_go(self.policy)).count();
        expect("entries in the queue", self.waiting.len(), may_go)?;
        check_held(&self.held(), blocks)
    }

    fn check_entry(&self, key: Key, entry: &Entry) -> Result<()> {
        let parent = match entry.parent {
            Parent::Salt(salt) => self.hash.root(salt),
            Parent::Entry { key, .. } => key,
        };
        expect("the name of a block", key, self.hash.next(parent, &entry.tokens))?;
        expect("tokens in a block", entry.tokens.len(), self.block_tokens)?;
        let ahead = entry.used > self.now || entry.number > self.made;
        expect("whether an entry is from the future", ahead, false)?;
        let waits = self.waiting.contains(entry.used, key);
        expect("whether an entry is in the queue", waits, entry.may_go(self.policy))?;
        let lost = self.policy == Policy::LeafFirst && self.is_orphan(entry);
        expect("whether a parent is gone", lost, false)
    }
}

fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = format!("the hashed blocks: {what}");
    Err(Error::invalid(what, format!("{found:?}"), format!("{expected:?}")))
}
