//! A run of whole blocks.

use paged_cache::BlockId;
use paged_cache::offload::Key;

/// What the tree knows of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) block: BlockId,
    /// Its name: the text up to its end.
    pub(super) key: Key,
    /// When it was last part of a lookup or an insertion.
    pub(super) used: u64,
}

/// Blocks that follow one another without a branch.
///
/// Invariants: as many tokens as fill the blocks; the times of last use do not rise.
#[derive(Debug, Clone, Default)]
pub(super) struct Edge {
    pub(super) tokens: Vec<u32>,
    pub(super) slots: Vec<Slot>,
}

impl Edge {
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.slots.iter().map(|slot| slot.block)
    }

    /// The last block's last use; 0 for the empty edge of a root.
    pub(super) fn end_used(&self) -> u64 {
        self.slots.last().map_or(0, |slot| slot.used)
    }

    pub(super) fn extend(&mut self, end: Edge) {
        self.tokens.extend(end.tokens);
        self.slots.extend(end.slots);
    }

    /// Keeps the blocks from the `at`th on, and returns those before.
    pub(super) fn split_front(&mut self, at: usize) -> Edge {
        let tokens = self.tokens.len() / self.slots.len() * at;
        let back = Edge { tokens: self.tokens.split_off(tokens), slots: self.slots.split_off(at) };
        let mut front = std::mem::replace(self, back);
        front.tokens.shrink_to_fit();
        front.slots.shrink_to_fit();
        front
    }

    /// Drops the last block.
    pub(super) fn pop(&mut self, block_tokens: usize) {
        self.tokens.truncate(self.tokens.len() - block_tokens);
        self.slots.pop();
    }
}
