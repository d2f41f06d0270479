//! Blocks found by a hash of everything up to their end (vLLM's automatic prefix caching).
//!
//! No tree: a table from names to blocks. A lookup names the prompt's blocks one after the other, each from
//! the name before, and stops at the first that is not in the table. So it finds whole blocks only, and
//! simple code does it. This is also what providers do behind "prompt caching" in their APIs.
//!
//! **A name is not proof.** Two texts with the same name, found by chance or by an attacker who knows a weak
//! hash (CVE-2025-25183), would be answered from each other's cache. So on a hit the tokens are compared
//! too, and so is the parent: it must be the very entry that was found just before. Compared that way from
//! the first block on, a hit is the same text whatever the hash does.
//!
//! | File | Holds |
//! |---|---|
//! | `entry.rs` | a block in the table, and which may go |
//! | `evict.rs` | letting go |
//! | `integrity.rs` | everything that must hold of the table |

mod entry;
mod evict;
mod integrity;

use crate::queue::Queue;
use crate::{BlockHash, Chain, Evicted, Prefix, PrefixCache, Salt, Statistics};
use entry::{Entry, Parent};
use naive_decode::Result;
use paged_cache::offload::Key;
use paged_cache::{BlockId, Blocks, check_block_tokens};
use std::collections::HashMap;

// ANCHOR: policy
/// Which blocks may be let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Of those that no cached block comes after, the one that has gone unused longest.
    LeafFirst,
    /// Any; the one that has gone unused longest. A text is used from its beginning, so its first block goes
    /// first, and those behind it are of no use to anybody from then on.
    Lru,
}
// ANCHOR_END: policy

// ANCHOR: hashed
/// Blocks by name.
///
/// Invariants: see `hashed/integrity.rs`.
pub struct HashedBlocks<H = Chain> {
    block_tokens: usize,
    hash: H,
    policy: Policy,
    entries: HashMap<Key, Entry>,
    /// The entries that may go, by their last use.
    waiting: Queue<Key>,
    /// Uses of blocks so far: the only time there is.
    now: u64,
    /// Entries made so far.
    made: u64,
    statistics: Statistics,
}
// ANCHOR_END: hashed

impl<H: BlockHash> HashedBlocks<H> {
    /// An empty table over blocks of this many tokens.
    ///
    /// # Errors
    /// If the number of tokens is not a power of two from 1 to 256.
    pub fn new(block_tokens: usize, hash: H, policy: Policy) -> Result<Self> {
        check_block_tokens(block_tokens)?;
        Ok(HashedBlocks {
            block_tokens,
            hash,
            policy,
            entries: HashMap::new(),
            waiting: Queue::new(),
            now: 0,
            made: 0,
            statistics: Statistics::default(),
        })
    }

    /// The entry is used now.
    fn touch(&mut self, key: Key) {
        self.now += 1;
        let entry = self.entries.get_mut(&key).expect("an entry that was just found");
        let before = std::mem::replace(&mut entry.used, self.now);
        if entry.may_go(self.policy) {
            self.waiting.touch(before, self.now, key);
        }
    }
}

impl<H: BlockHash> PrefixCache for HashedBlocks<H> {
    fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    // ANCHOR: longest
    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        self.statistics.queries += 1;
        self.statistics.asked += tokens.len() as u64;
        let most = most.min(tokens.len());
        let mut found = Vec::new();
        let (mut key, mut parent) = (self.hash.root(salt), Parent::Salt(salt));
        for tokens in tokens.chunks_exact(self.block_tokens).take(most.div_ceil(self.block_tokens))
        {
            key = self.hash.next(key, tokens);
            let Some(entry) = self.entries.get(&key) else { break };
            self.statistics.compared += tokens.len() as u64;
            if !entry.is(parent, tokens) {
                break;
            }
            parent = entry.as_parent(key);
            found.push(entry.block);
            blocks.share(entry.block);
            self.touch(key);
        }
        // The last block may be found whole where not all of it may be given.
        let tokens = most.min(found.len() * self.block_tokens);
        self.statistics.found += tokens as u64;
        Prefix { tokens, blocks: found }
    }
    // ANCHOR_END: longest

    // ANCHOR: keep
    fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        let mut kept = 0;
        let (mut key, mut parent) = (self.hash.root(salt), Parent::Salt(salt));
        for (tokens, &block) in tokens.chunks_exact(self.block_tokens).zip(table) {
            key = self.hash.next(key, tokens);
            match self.entries.get(&key) {
                Some(entry) if entry.is(parent, tokens) => self.touch(key),
                // Another text with the same name: it was here first, and this one is not remembered.
                Some(entry) if !self.is_orphan(entry) => break,
                found => {
                    // What an evicted block left behind can never be found again.
                    if found.is_some() {
                        self.forget(key, blocks);
                    }
                    self.insert(key, parent, tokens, block);
                    blocks.share(block);
                    kept += 1;
                }
            }
            parent = self.entries[&key].as_parent(key);
        }
        self.statistics.kept += kept as u64;
        kept
    }
    // ANCHOR_END: keep

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        let freed = self.shrink(wanted, blocks, evicted);
        self.statistics.evicted += freed as u64;
        freed
    }

    fn known(&self, salt: Salt, tokens: &[u32]) -> Vec<BlockId> {
        let (mut key, mut parent) = (self.hash.root(salt), Parent::Salt(salt));
        let blocks = tokens.chunks_exact(self.block_tokens).map_while(|tokens| {
            key = self.hash.next(key, tokens);
            let entry = self.entries.get(&key).filter(|entry| entry.is(parent, tokens))?;
            parent = entry.as_parent(key);
            Some(entry.block)
        });
        blocks.collect()
    }

    fn held(&self) -> Vec<BlockId> {
        self.entries.values().map(|entry| entry.block).collect()
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        self.check(blocks)
    }
}
