//! Which block holds which tokens of a sequence.

use crate::blocks::{BlockId, Blocks};

// ANCHOR: table
/// The blocks of one sequence in one group of layers, in order of its tokens.
///
/// Invariant: places that hold nothing any more come first, and only in groups with a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    blocks: Vec<Option<BlockId>>,
}
// ANCHOR_END: table

impl Table {
    /// A table of blocks that the caller holds a reference to each of; from now on the table does.
    pub(crate) fn of(blocks: Vec<Option<BlockId>>) -> Self {
        Table { blocks }
    }

    /// Places, those given back counted.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no token has a place.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block in a place; none if it has been given back or is not there yet.
    pub fn block(&self, place: usize) -> Option<BlockId> {
        self.blocks.get(place).copied().flatten()
    }

    /// Places at the beginning whose blocks have been given back.
    pub fn given_back(&self) -> usize {
        self.blocks.iter().take_while(|block| block.is_none()).count()
    }

    /// The blocks it holds, in order.
    pub fn held(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.blocks.iter().copied().flatten()
    }

    pub(crate) fn push(&mut self, block: BlockId) {
        self.blocks.push(Some(block));
    }

    /// Puts another block in a place, and gives the one that was there.
    pub(crate) fn replace(&mut self, place: usize, block: BlockId) -> Option<BlockId> {
        self.blocks[place].replace(block)
    }

    /// Gives back what lies past the first `places`.
    pub(crate) fn truncate(&mut self, places: usize, pool: &mut Blocks) {
        for block in self.blocks.drain(places.min(self.blocks.len())..).flatten() {
            pool.release(block);
        }
    }

    /// Gives back what lies before place `first`.
    pub(crate) fn give_back_before(&mut self, first: usize, pool: &mut Blocks) {
        for block in self.blocks.iter_mut().take(first).filter_map(Option::take) {
            pool.release(block);
        }
    }

    /// The same blocks for another sequence.
    pub(crate) fn share(&self, pool: &mut Blocks) -> Self {
        self.held().for_each(|block| pool.share(block));
        self.clone()
    }
}

/// A sequence's tables, one for each group of layers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    /// By group.
    pub groups: Vec<Table>,
}

impl Tables {
    /// All blocks of all groups.
    pub fn held(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.groups.iter().flat_map(Table::held)
    }
}
