//! What is evicted goes to slower tiers, and comes back when it is asked for.
//!
//! The pool is the fastest memory, and the smallest. A block that has to leave it is offered to every tier
//! first, such as host memory and a file, under its name. A lookup that comes to the end of what is in the
//! pool goes on by name in the tiers, fastest first, and brings back block after block until one is nowhere.
//!
//! A [`Tiered`] has the verbs of a [`PrefixCache`] and is none: copying blocks takes the pool's memory, which
//! the caches in memory never touch.
//!
//! **Names must do.** In the pool tokens are compared; a tier knows only names, so names here are always
//! BLAKE3's ([`Chain`]), over the salt, the whole text and what else the content depends on.
//!
//! **Nothing is relied on.** A tier that has lost a block, finds it damaged or cannot be read has not got it,
//! and the tokens are read again. What fails is counted, and the last error is there to be shown.
//!
//! **Nobody waits for a disk** who has something else to do: a tier that reads aside ([`Tier::reads_aside`]) is asked beforehand
//! ([`Tiered::read_aside`]), and a lookup finds of it what has come by then.
//!
//! **A restart** loses the pool and keeps the file. Whoever ends in peace calls [`Tiered::put_away`] before, which
//! puts what is not in use into the file, as far as there is room. Whoever may be killed at any moment
//! calls [`Tiered::save`] now and then, for a text that is done.

mod changes;
mod shelf;

pub use changes::KvEvent;
pub use shelf::{Aside, TierStatistics};

use crate::{Chain, Prefix, PrefixCache, Salt};
use changes::Changes;
use naive_decode::Error;
use paged_cache::offload::{Backlog, BlockBytes, Key, Tier};
use paged_cache::{BlockId, Blocks};
use shelf::Shelf;
use std::collections::HashMap;
use std::time::Instant;

/// How far a text is saved. Names hang on all names before them, so a long text that is saved a few blocks at a time must not
/// make them anew each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavePoint {
    /// Names of the blocks that have not been seen to: a text's end is seen to first.
    pub names: Vec<Key>,
}

/// A prefix cache over a pool, and tiers below it. With no tiers it is the cache alone.
///
/// The cache must name its blocks by the same [`Chain`].
pub struct Tiered<P> {
    cache: P,
    chain: Chain,
    tiers: Shelf,
    /// None while nobody wants to know.
    changes: Option<Changes>,
}

impl<P: PrefixCache> Tiered<P> {
    /// Tiers from the fastest to the slowest.
    pub fn new(cache: P, chain: Chain, tiers: Vec<Box<dyn Tier>>) -> Self {
        Tiered { cache, chain, tiers: Shelf::new(tiers), changes: None }
    }

    /// What is in the pool.
    pub fn cache(&self) -> &P {
        &self.cache
    }

    /// The same, to be changed; blocks that it evicts by itself go to no tier, and nothing of it is noted.
    pub fn cache_mut(&mut self) -> &mut P {
        &mut self.cache
    }

    /// What has gone to the tiers and come back, by tier.
    pub fn tier_statistics(&self) -> Vec<TierStatistics> {
        self.tiers.statistics()
    }

    /// What a tier last failed with.
    pub fn last_failure(&self) -> Option<&Error> {
        self.tiers.last_failure()
    }

    /// The names of a text's blocks.
    pub fn names(&self, salt: Salt, text: &[u32]) -> Vec<Key> {
        self.chain.names(salt, text, self.cache.block_tokens()).collect()
    }

    /// Begins to read those blocks of a prompt that neither the pool nor a tier has at hand, `most` at most, and comes back at
    /// once, with the number of tokens before the first of them; none if there are none. `names` are the prompt's. What
    /// [`Tiered::take_read`] gives of it is for [`Tiered::bring`].
    ///
    /// What the pool has of the prompt was used then: it is to be there when the rest comes.
    pub fn read_aside(
        &mut self,
        salt: Salt,
        prompt: &[u32],
        names: &[Key],
        most: usize,
        blocks: &mut Blocks,
    ) -> Option<(Aside, usize)> {
        self.cache.find(salt, prompt, blocks).release(blocks);
        let known = self.cache.known(salt, prompt).len();
        let behind = &names[known..];
        let reach = behind.iter().position(|&name| !self.tiers.contains(name));
        let behind = &behind[..reach.unwrap_or(behind.len())];
        self.tiers.touch(behind.iter().rev().copied());
        let (aside, place) = self.tiers.read_aside(behind, most)?;
        Some((aside, (known + place) * self.cache.block_tokens()))
    }

    /// The blocks that have been read so far.
    pub fn take_read(&mut self, aside: Aside) -> HashMap<Key, Vec<u8>> {
        self.tiers.take_read(aside)
    }

    /// Whether a lookup brings back nothing from one of the tiers by itself, as that would be to wait for a disk.
    pub fn reads_aside(&self) -> bool {
        self.tiers.reads_aside()
    }

    /// Since when a tier has waited for its disk to send one block.
    pub fn waits_since(&self) -> Option<Instant> {
        self.tiers.waits_since()
    }

    /// Whether something of a prompt, whose blocks have these names, is in a tier that is read aside and nowhere nearer.
    pub fn is_aside(&self, salt: Salt, prompt: &[u32], names: &[Key]) -> bool {
        let next = names.get(self.at_hand(salt, prompt, names));
        next.is_some_and(|&name| self.tiers.contains(name))
    }

    /// Blocks of a prompt's beginning that are in the pool or in a tier that has them at hand. `names` are the prompt's.
    pub fn at_hand(&self, salt: Salt, prompt: &[u32], names: &[Key]) -> usize {
        let known = self.cache.known(salt, prompt).len();
        let here = names.iter().skip(known).take_while(|&&name| self.tiers.has_at_hand(name));
        known + here.count()
    }

    /// Blocks by name that somebody has computed elsewhere. The next lookup may have them as it has those of tiers; they
    /// take the place of any that were brought before. Whoever brings them has made sure of what they are.
    pub fn bring(&mut self, brought: HashMap<Key, Vec<u8>>) {
        self.tiers.bring(brought);
    }

    // ANCHOR: find
    /// The longest known beginning of a prompt, but never all of it; as [`PrefixCache::find`]. Blocks that
    /// only a tier knows are brought back into the pool. For that, others may be evicted.
    pub fn find(
        &mut self,
        salt: Salt,
        prompt: &[u32],
        blocks: &mut Blocks,
        memory: &mut dyn BlockBytes,
    ) -> Prefix {
        let mut prefix = self.cache.find(salt, prompt, blocks);
        let size = self.cache.block_tokens();
        let most = prompt.len().saturating_sub(1);
        if self.tiers.has_nothing() || prefix.tokens == most {
            return prefix;
        }
        let known = prefix.tokens / size;
        // A block that agrees in part stays as it is if no tier has the right one.
        let partial = prefix.blocks.split_off(known);
        let names = self.chain.names(salt, prompt, size).skip(known);
        let names: Vec<Key> = names.take_while(|&name| self.tiers.has_at_hand(name)).collect();
        // What has to go for these must not push out of a tier what is about to be read there.
        self.tiers.touch(names.iter().rev().copied());
        for key in names {
            let Some(bytes) = self.tiers.get(key, memory.block_bytes()) else { break };
            let Some(block) = self.take(blocks, memory) else { break };
            if let Err(error) = memory.copy_in(block, &bytes) {
                self.tiers.note(error);
                blocks.release(block);
                break;
            }
            prefix.blocks.push(block);
        }
        if prefix.blocks.len() == known {
            prefix.blocks.extend(partial);
            return prefix;
        }
        Prefix { tokens: 0, blocks: partial }.release(blocks);
        let whole = prefix.blocks.len() * size;
        self.touch(salt, &prompt[..whole]);
        self.keep(salt, &prompt[..whole], &prefix.blocks, blocks);
        prefix.tokens = whole.min(most);
        let unused = prefix.blocks.split_off(prefix.tokens.div_ceil(size));
        Prefix { tokens: 0, blocks: unused }.release(blocks);
        prefix
    }
    // ANCHOR_END: find

    /// Blocks of a text's beginning that are in the pool or, as far as is known by name, in a tier.
    pub fn within_reach(&self, salt: Salt, text: &[u32]) -> usize {
        let known = self.cache.known(salt, text).len();
        if self.tiers.is_empty() {
            return known;
        }
        let names = self.chain.names(salt, text, self.cache.block_tokens());
        names.enumerate().take_while(|&(i, name)| i < known || self.tiers.contains(name)).count()
    }

    // ANCHOR: keep
    /// As [`PrefixCache::keep`].
    pub fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        let kept = self.cache.keep(salt, tokens, table, blocks);
        if let Some(changes) = &mut self.changes
            && salt == Salt::NONE
            && kept > 0
        {
            // It takes the last blocks of a text, as it knows the others.
            let size = self.cache.block_tokens();
            let whole = (tokens.len() / size).min(table.len());
            let mut names: Vec<Key> = self.chain.names(salt, tokens, size).take(whole).collect();
            let new = names.split_off(whole - kept);
            let new_tokens = &tokens[(whole - kept) * size..whole * size];
            changes.stored(names.last().copied(), new, new_tokens);
        }
        kept
    }
    // ANCHOR_END: keep

    // ANCHOR: evict
    /// As [`PrefixCache::evict`], but what goes has been offered to every tier before it is free.
    pub fn evict(&mut self, wanted: usize, blocks: &mut Blocks, memory: &dyn BlockBytes) -> usize {
        let (tiers, changes) = (&mut self.tiers, &mut self.changes);
        self.cache.evict(wanted, blocks, &mut |evicted| {
            tiers.put(evicted.key, |bytes| memory.copy_out(evicted.block, bytes));
            if let Some(changes) = changes {
                changes.removed(evicted.key);
            }
        })
    }
    // ANCHOR_END: evict

    /// For the end: lets go of so many blocks or more, which are in the tiers that outlive the process then. What these have
    /// no room for, the longest unused, is not put there first. Gives how many blocks went.
    pub fn put_away(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        memory: &dyn BlockBytes,
    ) -> usize {
        // What somebody else holds stays, and takes up no room there.
        let held = self.cache.held();
        let may_go = held.iter().filter(|&&block| blocks.references(block) == 1).count();
        let mut too_many = may_go.saturating_sub(self.tiers.most_that_outlive());
        let (tiers, changes) = (&mut self.tiers, &mut self.changes);
        self.cache.evict(wanted.max(too_many), blocks, &mut |evicted| {
            match too_many {
                0 => _ = tiers.save(evicted.key, |bytes| memory.copy_out(evicted.block, bytes)),
                _ => too_many -= 1,
            }
            if let Some(changes) = changes {
                changes.removed(evicted.key);
            }
        })
    }

    /// Whether there are tiers at all.
    pub fn has_tiers(&self) -> bool {
        !self.tiers.is_empty()
    }

    /// Whether a tier is still there after the process has ended.
    pub fn outlives_process(&self) -> bool {
        self.tiers.outlives_process()
    }

    /// Has tiers forget what they were given and could not write: [`Tiered::last_failure`] says why.
    pub fn settle(&mut self) {
        self.tiers.settle();
    }

    /// Lets go of all tiers. What they had yet to write is written, or has failed, when this returns.
    pub fn close_tiers(&mut self) {
        self.tiers = Shelf::new(Vec::new());
    }

    /// What the tiers that outlive the process have yet to write.
    pub fn backlog(&self) -> Backlog {
        self.tiers.backlog()
    }

    // ANCHOR: save
    /// Copies what the pool has of a text to the tiers that outlive the process, and leaves it in the pool: the
    /// blocks from `from` back, or from the last, until `most` have been copied or a tier is behind with its writing. Those
    /// that are there already cost nothing. Gives where to go on from; none if the text is done.
    ///
    /// The end goes first, as when a text is evicted: a tier lets go of what was put there first, and nothing goes on
    /// without the beginning.
    pub fn save(
        &mut self,
        salt: Salt,
        text: &[u32],
        from: Option<SavePoint>,
        most: usize,
        memory: &dyn BlockBytes,
    ) -> Option<SavePoint> {
        let known = self.cache.known(salt, text);
        let mut names = match from {
            Some(point) => point.names,
            None => self.touch(salt, text),
        };
        // What the pool has no more went to the tiers when it left, but for those that were behind.
        names.truncate(known.len());
        let mut copied = 0;
        while let Some(&name) = names.last() {
            if copied == most || self.backlog() == Backlog::Full {
                return Some(SavePoint { names });
            }
            let block = known[names.len() - 1];
            copied += usize::from(self.tiers.save(name, |bytes| memory.copy_out(block, bytes)));
            names.pop();
        }
        None
    }
    // ANCHOR_END: save

    /// Notes in the tiers that a text was used, its end first: what is let go of first is to be an end, as nothing goes on
    /// without the beginning. Gives the names of its blocks.
    fn touch(&mut self, salt: Salt, text: &[u32]) -> Vec<Key> {
        if self.tiers.is_empty() {
            return Vec::new();
        }
        let names: Vec<Key> = self.chain.names(salt, text, self.cache.block_tokens()).collect();
        self.tiers.touch(names.iter().rev().copied());
        names
    }

    /// A block to bring something back to.
    fn take(&mut self, blocks: &mut Blocks, memory: &dyn BlockBytes) -> Option<BlockId> {
        if blocks.free() == 0 {
            self.evict(1, blocks, memory);
        }
        blocks.take()
    }
}
