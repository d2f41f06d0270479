//! KV events: what is known of earlier texts, told as it changes.
//!
//! A router in front of several engines sends a request where most of its beginning is known. So it has to know what each
//! engine knows. Whoever listens has all that is known first, and then every change, those of a step together. Who falls
//! behind is let go of: he cannot know any more what is known, and has to begin anew.
//!
//! Only texts that everybody may share are told of. What is kept under a salt is nobody else's business.

use super::Engine;
use naive_decode::Result;
use paged_cache::offload::Key;
use paged_cache::{BlockId, Blocks};
use prefix_radix::{BlockHash, Branch, Chain, Evicted, Prefix, PrefixCache, Salt, Statistics};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Steps whose changes a listener may leave unread.
const UNREAD: usize = 256;

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

/// What a listener has: all that is known, then the changes of a step at a time. It ends when he has fallen behind, or the
/// engine is gone.
pub type KvEvents = Receiver<Arc<[KvEvent]>>;

pub(super) type Listener = Sender<Arc<[KvEvent]>>;

/// Both ends for a listener.
pub(super) fn listener() -> (Listener, KvEvents) {
    channel(UNREAD)
}

/// What has changed since it was last told; none while nobody listens.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<Mutex<Option<Noted>>>);

#[derive(Default)]
struct Noted {
    /// Names of all blocks that listeners know of.
    told: HashSet<Key>,
    events: Vec<KvEvent>,
}

impl Noted {
    fn stored(&mut self, parent: Option<Key>, blocks: Vec<Key>, tokens: &[u32]) {
        self.told.extend(&blocks);
        self.events.push(KvEvent::Stored { parent, blocks, tokens: tokens.to_vec() });
    }

    /// What goes together is told together.
    fn removed(&mut self, block: Key) {
        if !self.told.remove(&block) {
            return;
        }
        match self.events.last_mut() {
            Some(KvEvent::Removed { blocks }) => blocks.push(block),
            _ => self.events.push(KvEvent::Removed { blocks: vec![block] }),
        }
    }
}

impl Changes {
    /// Only the engine's thread asks.
    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is to tell.
    fn take(&self) -> Vec<KvEvent> {
        self.noted().as_mut().map(|noted| std::mem::take(&mut noted.events)).unwrap_or_default()
    }
}

// ANCHOR: told
/// A prefix cache whose changes are noted.
pub(super) struct Told<P> {
    cache: P,
    chain: Chain,
    changes: Changes,
}

impl<P: PrefixCache> PrefixCache for Told<P> {
    fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        let kept = self.cache.keep(salt, tokens, table, blocks);
        if let Some(noted) = self.changes.noted().as_mut()
            && salt == Salt::NONE
            && kept > 0
        {
            // It takes the last blocks of a text, as it knows the others.
            let size = self.block_tokens();
            let whole = (tokens.len() / size).min(table.len());
            let mut names: Vec<Key> = self.chain.names(salt, tokens, size).take(whole).collect();
            let new = names.split_off(whole - kept);
            noted.stored(names.last().copied(), new, &tokens[(whole - kept) * size..whole * size]);
        }
        kept
    }

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        let mut noted = self.changes.noted();
        self.cache.evict(wanted, blocks, &mut |block| {
            evicted(block);
            if let Some(noted) = noted.as_mut() {
                noted.removed(block.key);
            }
        })
    }
    // ANCHOR_END: told

    fn block_tokens(&self) -> usize {
        self.cache.block_tokens()
    }

    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        self.cache.longest(salt, tokens, most, blocks)
    }

    fn find(&mut self, salt: Salt, prompt: &[u32], blocks: &mut Blocks) -> Prefix {
        self.cache.find(salt, prompt, blocks)
    }

    fn known(&self, salt: Salt, tokens: &[u32]) -> Vec<BlockId> {
        self.cache.known(salt, tokens)
    }

    fn outline(&self) -> Box<dyn Iterator<Item = Branch<'_>> + '_> {
        self.cache.outline()
    }

    fn held(&self) -> Vec<BlockId> {
        self.cache.held()
    }

    fn statistics(&self) -> Statistics {
        self.cache.statistics()
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        self.cache.check_integrity(blocks)
    }
}

impl<P> Told<P> {
    /// `chain` is what the cache names its blocks by.
    pub(super) fn new(cache: P, chain: Chain, changes: Changes) -> Self {
        Told { cache, chain, changes }
    }
}

impl Engine {
    /// Takes in those who have come to listen, and tells each what is known.
    pub(super) fn take_in_listeners(&mut self) {
        let new = self.inbox.listeners();
        if new.is_empty() {
            return;
        }
        // Who has listened before is not told of changes that the new ones find in what is known.
        self.tell_listeners();
        let mut all = Noted::default();
        let size = self.options.block;
        // The last names of the nodes above the one at hand.
        let mut above: Vec<Key> = Vec::new();
        for Branch { salt, depth, tokens, .. } in self.pool.prefixes().cache().outline() {
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
        let events = std::mem::take(&mut all.events);
        *self.changes.noted() = Some(all);
        let events: Arc<[KvEvent]> = events.into();
        for listener in new {
            // There is room in it, as nothing was sent before.
            if listener.try_send(events.clone()).is_ok() {
                self.listeners.push(listener);
            }
        }
    }

    /// Tells everyone what has changed.
    pub(super) fn tell_listeners(&mut self) {
        let events: Arc<[KvEvent]> = self.changes.take().into();
        let hears = |listener: &Listener| match events.is_empty() {
            true => !listener.is_closed(),
            false => listener.try_send(events.clone()).is_ok(),
        };
        self.listeners.retain(hears);
        if self.listeners.is_empty() {
            *self.changes.noted() = None;
        }
    }
}
