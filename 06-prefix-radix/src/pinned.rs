//! Prompts kept by a handle until they are let go: explicit prompt caching, as APIs offer it.
//!
//! Automatic caching may forget a prompt at any moment. Somebody who will ask a thousand questions about one
//! book wants to know that it is kept, and pays for that. They pin the book and get a handle; the handle
//! gives the text again, and a lookup of that text finds its blocks.
//!
//! Keeping is simple: a pin holds references of its own, and a block with more references than the cache's
//! is never evicted. There is no clock in here. When a pin ends is a number that the caller compares with.

use crate::{Branch, Evicted, Prefix, PrefixCache, Salt, Statistics};
use naive_decode::{Error, Result};
use paged_cache::{BlockId, Blocks};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pinned prompt, by number. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// How long a prompt stays pinned; until it is released, if nothing is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lease {
    /// How often it may be opened.
    pub uses: Option<u64>,
    /// The last moment at which it may, on the caller's clock.
    pub until: Option<u64>,
}

impl Lease {
    fn over(&self, now: u64) -> bool {
        self.uses == Some(0) || self.until.is_some_and(|until| until < now)
    }
}

struct Pin {
    salt: Salt,
    tokens: Arc<[u32]>,
    /// The blocks that `tokens` fill, a reference to each.
    blocks: Vec<BlockId>,
    lease: Lease,
}

/// A prefix cache with prompts that it must not forget.
pub struct Pinned<P> {
    cache: P,
    pins: BTreeMap<Handle, Pin>,
    next: u64,
}

impl<P: PrefixCache> Pinned<P> {
    /// Nothing pinned yet.
    pub fn new(cache: P) -> Self {
        Pinned { cache, pins: BTreeMap::new(), next: 0 }
    }

    /// What it pins in.
    pub fn cache(&self) -> &P {
        &self.cache
    }

    // ANCHOR: pin
    /// Pins a prompt that the cache knows, as far as it fills whole blocks.
    ///
    /// # Errors
    /// If not all of these blocks are known, or there are none. Read the prompt and keep it, then pin.
    pub fn pin(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        lease: Lease,
        blocks: &mut Blocks,
    ) -> Result<Handle> {
        let whole = tokens.len() / self.block_tokens() * self.block_tokens();
        let prefix = self.cache.longest(salt, tokens, whole, blocks);
        if prefix.tokens < whole || whole == 0 {
            let found = format!("known for {} tokens", prefix.tokens);
            let expected = format!("known for {whole}, and at least {}", self.block_tokens());
            prefix.release(blocks);
            return Err(Error::invalid("the prompt to pin", found, expected));
        }
        let handle = Handle(self.next);
        self.next += 1;
        self.pins.insert(handle, Pin { salt, tokens: tokens.into(), blocks: prefix.blocks, lease });
        Ok(handle)
    }

    /// The text of a pinned prompt, for the caller to go on from. A lookup of it finds all that was pinned.
    ///
    /// None for a handle that has ended by `now`, that never was, or that belongs to another salt: whoever
    /// asks cannot tell which.
    pub fn open(&mut self, salt: Salt, handle: Handle, now: u64) -> Option<Arc<[u32]>> {
        let pin = self.pins.get_mut(&handle)?;
        if pin.salt != salt || pin.lease.over(now) {
            return None;
        }
        if let Some(uses) = &mut pin.lease.uses {
            *uses -= 1;
        }
        Some(Arc::clone(&pin.tokens))
    }

    /// Unpins a prompt, and says whether it was pinned. From then on it may be evicted.
    pub fn release(&mut self, handle: Handle, blocks: &mut Blocks) -> bool {
        let Some(pin) = self.pins.remove(&handle) else { return false };
        for block in pin.blocks {
            blocks.release(block);
        }
        true
    }

    /// Unpins what has been opened as often as it may, or has ended by `now`. Returns how many.
    ///
    /// A pin that ends keeps its blocks until this is called, so what was opened can be looked up.
    pub fn expire(&mut self, now: u64, blocks: &mut Blocks) -> usize {
        let over = self.pins.iter().filter(|(_, pin)| pin.lease.over(now));
        let over: Vec<Handle> = over.map(|(&handle, _)| handle).collect();
        for &handle in &over {
            self.release(handle, blocks);
        }
        over.len()
    }
    // ANCHOR_END: pin
}

impl<P: PrefixCache> PrefixCache for Pinned<P> {
    fn block_tokens(&self) -> usize {
        self.cache.block_tokens()
    }

    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        self.cache.longest(salt, tokens, most, blocks)
    }

    fn find(&mut self, salt: Salt, prompt: &[u32], blocks: &mut Blocks) -> Prefix {
        self.cache.find(salt, prompt, blocks)
    }

    fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        self.cache.keep(salt, tokens, table, blocks)
    }

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        self.cache.evict(wanted, blocks, evicted)
    }

    fn known(&self, salt: Salt, tokens: &[u32]) -> Vec<BlockId> {
        self.cache.known(salt, tokens)
    }

    fn outline(&self) -> Box<dyn Iterator<Item = Branch<'_>> + '_> {
        self.cache.outline()
    }

    fn held(&self) -> Vec<BlockId> {
        let pinned = self.pins.values().flat_map(|pin| &pin.blocks);
        self.cache.held().into_iter().chain(pinned.copied()).collect()
    }

    fn statistics(&self) -> Statistics {
        self.cache.statistics()
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        let cached = self.cache.held();
        for (handle, pin) in &self.pins {
            if let Some(block) = pin.blocks.iter().find(|block| !cached.contains(block)) {
                let what = format!("block {} of prompt {}", block.0, handle.0);
                return Err(Error::invalid(what, "not in the cache", "there while it is pinned"));
            }
        }
        self.cache.check_integrity(blocks)
    }
}
