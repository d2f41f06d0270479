//! Letting go of what has gone unused longest.

use super::HashedBlocks;
use crate::{BlockHash, Evicted};
use paged_cache::Blocks;
use paged_cache::offload::Key;

impl<H: BlockHash> HashedBlocks<H> {
    /// Frees blocks that may go, the longest unused first, until `wanted` are free or the rest is in use.
    ///
    /// O(log n) for each block, and for each that is in use and has to be passed over.
    pub(super) fn shrink(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        let mut freed = 0;
        let mut in_use = None;
        while freed < wanted {
            let Some((used, key)) = self.waiting.after(in_use) else { break };
            let entry = &self.entries[&key];
            if blocks.references(entry.block) > 1 {
                in_use = Some((used, key));
                continue;
            }
            evicted(Evicted { key, tokens: &entry.tokens, block: entry.block });
            self.forget(key, blocks);
            freed += 1;
        }
        freed
    }

    /// Takes an entry out of the table and lets go of its block.
    pub(super) fn forget(&mut self, key: Key, blocks: &mut Blocks) {
        let entry = self.remove(key);
        blocks.release(entry.block);
    }
}
