//! The cache that remembers nothing: how prefix caching is turned off.

use crate::{Evicted, Prefix, PrefixCache, Salt, Statistics};
use naive_decode::Result;
use paged_cache::{BlockId, Blocks};

/// Finds nothing, keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nothing {
    block_tokens: usize,
    statistics: Statistics,
}

impl Nothing {
    /// For blocks of this many tokens.
    pub fn new(block_tokens: usize) -> Self {
        Nothing { block_tokens, statistics: Statistics::default() }
    }
}

impl PrefixCache for Nothing {
    fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    fn longest(&mut self, _: Salt, tokens: &[u32], _: usize, _: &mut Blocks) -> Prefix {
        self.statistics.queries += 1;
        self.statistics.asked += tokens.len() as u64;
        Prefix::default()
    }

    fn keep(&mut self, _: Salt, _: &[u32], _: &[BlockId], _: &mut Blocks) -> usize {
        0
    }

    fn evict(&mut self, _: usize, _: &mut Blocks, _: &mut dyn FnMut(Evicted)) -> usize {
        0
    }

    fn held(&self) -> Vec<BlockId> {
        Vec::new()
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn check_integrity(&self, _: &Blocks) -> Result<()> {
        Ok(())
    }
}
