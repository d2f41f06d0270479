//! What a prefix cache does, whatever it looks like inside.

use crate::{Branch, Salt};
use naive_decode::{Error, Result};
use paged_cache::offload::Key;
use paged_cache::{BlockId, Blocks};

// ANCHOR: prefix
/// The beginning of a text whose keys and values are known already.
///
/// Whoever has it holds one reference to each of its blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix {
    /// How many tokens.
    pub tokens: usize,
    /// The blocks they lie in, in order: the beginning of a block table. The last one may hold another
    /// text's tokens behind these; who writes there must copy it first.
    pub blocks: Vec<BlockId>,
}
// ANCHOR_END: prefix

impl Prefix {
    /// Lets go of all of it.
    pub fn release(self, blocks: &mut Blocks) {
        for block in self.blocks {
            blocks.release(block);
        }
    }
}

/// A block that a cache is about to let go of.
#[derive(Debug, Clone, Copy)]
pub struct Evicted<'a> {
    /// Its name, which stands for the salt, for everything before the block and for what is in it.
    pub key: Key,
    /// The tokens in it.
    pub tokens: &'a [u32],
    /// The block, which still holds their keys and values.
    pub block: BlockId,
}

/// What a cache has been asked, and what it knew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lookups.
    pub queries: u64,
    /// Tokens of all the texts looked up.
    pub asked: u64,
    /// Tokens of them that were known.
    pub found: u64,
    /// Comparisons of one token with another that the lookups took.
    pub compared: u64,
    /// Blocks that it took in.
    pub kept: u64,
    /// Blocks that it let go of to make room.
    pub evicted: u64,
}

impl Statistics {
    /// Part of the tokens asked for that was known; 0 if none were asked for.
    pub fn hit_rate(&self) -> f64 {
        self.found as f64 / self.asked.max(1) as f64
    }
}

// ANCHOR: seam
/// Remembers which blocks hold the keys and values of which texts.
///
/// It never sees a key or a value: what it knows is tokens and blocks. For every block that it remembers
/// it holds one reference. There is no second count of who uses what: a block with more references than
/// the cache's own is in use, and stays.
pub trait PrefixCache: Send {
    /// Tokens in a block.
    fn block_tokens(&self) -> usize;

    /// The longest known beginning of `tokens`, of at most `most` tokens. The caller then holds a
    /// reference to each of its blocks.
    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix;

    /// The longest known beginning of a prompt, but never all of it.
    ///
    /// The logits after the last token are what the prompt is read for, and they are not cached. So the
    /// last token must be read, even where its keys and values are known.
    fn find(&mut self, salt: Salt, prompt: &[u32], blocks: &mut Blocks) -> Prefix {
        self.longest(salt, prompt, prompt.len().saturating_sub(1), blocks)
    }

    /// Remembers a text whose keys and values have been written: `tokens`, in the blocks of `table`.
    /// Returns how many blocks the cache took a reference to.
    ///
    /// Only blocks that are full of `tokens` are taken: one with room left is still being written. Of
    /// what is known already the cache keeps its own blocks, and the caller those of its own, until it exchanges them.
    fn keep(&mut self, salt: Salt, tokens: &[u32], table: &[BlockId], blocks: &mut Blocks)
    -> usize;

    /// Lets go of the `wanted` blocks that have gone unused longest, or of as many as nobody else holds.
    /// Each is shown to `evicted` while it still has its content. Returns how many became free.
    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize;

    /// The blocks of the longest known beginning of `tokens`, as far as whole blocks agree, without taking any
    /// or counting as a use: for those who have to decide first. A cache that cannot say promises nothing.
    fn known(&self, _salt: Salt, _tokens: &[u32]) -> Vec<BlockId> {
        Vec::new()
    }

    /// What it knows as a tree, for drawing; nothing if it is none.
    fn outline(&self) -> Box<dyn Iterator<Item = Branch<'_>> + '_> {
        Box::new(std::iter::empty())
    }

    /// Every block that it holds, once for each reference.
    fn held(&self) -> Vec<BlockId>;

    /// What it has been asked so far.
    fn statistics(&self) -> Statistics;

    /// Whether its invariants hold.
    ///
    /// # Errors
    /// Names the first that does not.
    fn check_integrity(&self, blocks: &Blocks) -> Result<()>;
}
// ANCHOR_END: seam

/// Whether a cache holds each block once, and none that is free.
pub(crate) fn check_held(held: &[BlockId], blocks: &Blocks) -> Result<()> {
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    for (i, &block) in sorted.iter().enumerate() {
        let what = || format!("block {} of the prefix cache", block.0);
        if block.index() >= blocks.count() {
            let expected = format!("one of the pool's {} blocks", blocks.count());
            return Err(Error::invalid(what(), "unknown", expected));
        }
        if blocks.references(block) == 0 {
            return Err(Error::invalid(what(), "free", "held by the cache at least"));
        }
        if sorted.get(i + 1) == Some(&block) {
            return Err(Error::invalid(what(), "known under two names", "under one"));
        }
    }
    Ok(())
}

/// A cache chosen while the program runs.
impl<P: PrefixCache + ?Sized> PrefixCache for Box<P> {
    fn block_tokens(&self) -> usize {
        (**self).block_tokens()
    }

    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        (**self).longest(salt, tokens, most, blocks)
    }

    fn find(&mut self, salt: Salt, prompt: &[u32], blocks: &mut Blocks) -> Prefix {
        (**self).find(salt, prompt, blocks)
    }

    fn keep(
        &mut self,
        salt: Salt,
        tokens: &[u32],
        table: &[BlockId],
        blocks: &mut Blocks,
    ) -> usize {
        (**self).keep(salt, tokens, table, blocks)
    }

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        (**self).evict(wanted, blocks, evicted)
    }

    fn known(&self, salt: Salt, tokens: &[u32]) -> Vec<BlockId> {
        (**self).known(salt, tokens)
    }

    fn outline(&self) -> Box<dyn Iterator<Item = Branch<'_>> + '_> {
        (**self).outline()
    }

    fn held(&self) -> Vec<BlockId> {
        (**self).held()
    }

    fn statistics(&self) -> Statistics {
        (**self).statistics()
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        (**self).check_integrity(blocks)
    }
}
