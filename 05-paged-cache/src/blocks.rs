//! Which blocks are free, and how many hold each of the others.
//!
//! Nothing here knows what a block contains. A block is a number; whoever keeps that number in a table
//! holds a *reference*, and the last one to let go gives the block back.

use naive_decode::{Error, Result};

/// A block of the pool, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

impl BlockId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

// ANCHOR: blocks
/// The pool's blocks: a stack of those that are free, a count of references for each.
///
/// Taking and giving back are both one step, however many blocks there are.
///
/// Invariant: a block is on the stack, once, if and only if its count is zero.
#[derive(Debug, Clone)]
pub struct Blocks {
    free: Vec<BlockId>,
    references: Vec<u32>,
}
// ANCHOR_END: blocks

impl Blocks {
    /// So many blocks, all free.
    ///
    /// # Panics
    /// If there are more than a block's number can name.
    pub fn new(count: usize) -> Self {
        let count = u32::try_from(count).expect("fewer than 2^32 blocks");
        // The stack gives the lowest number first, which makes tables easy to read.
        Blocks {
            free: (0..count).rev().map(BlockId).collect(),
            references: vec![0; count as usize],
        }
    }

    /// Blocks in all.
    pub fn count(&self) -> usize {
        self.references.len()
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Blocks that somebody holds.
    pub fn used(&self) -> usize {
        self.count() - self.free()
    }

    /// How many hold a block; 0 if it is free.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn references(&self, block: BlockId) -> u32 {
        self.references[block.index()]
    }

    // ANCHOR: take
    /// Takes a free block; the caller holds its only reference. None if there is none.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.references[block.index()] = 1;
        Some(block)
    }

    /// Takes one more reference to a block that somebody holds.
    ///
    /// # Panics
    /// If the block is free: what it contains may be overwritten at any moment. If more hold it than can be counted, 2^32 - 1.
    pub fn share(&mut self, block: BlockId) {
        let references = &mut self.references[block.index()];
        assert!(*references > 0, "{block:?} is free and cannot be shared");
        *references = references.checked_add(1).expect("fewer than 2^32 hold a block");
    }

    /// Lets go of one reference, and says whether it was the last: the block is then free.
    ///
    /// # Panics
    /// If the block is free already.
    pub fn release(&mut self, block: BlockId) -> bool {
        let references = &mut self.references[block.index()];
        assert!(*references > 0, "{block:?} is free already");
        *references -= 1;
        let last = *references == 0;
        if last {
            self.free.push(block);
        }
        last
    }
    // ANCHOR_END: take

    // ANCHOR: integrity
    /// Whether the invariant holds, and every count is what `held` says: the blocks in all tables, caches
    /// and hands that the caller knows of, a block once for each reference.
    ///
    /// # Errors
    /// Names the first block for which it does not.
    pub fn check_integrity(&self, held: impl IntoIterator<Item = BlockId>) -> Result<()> {
        let mut on_stack = vec![0u32; self.count()];
        for block in &self.free {
            on_stack[block.index()] += 1;
        }
        let mut found = vec![0u32; self.count()];
        for block in held {
            let Some(found) = found.get_mut(block.index()) else {
                let expected = format!("below {}, the number of blocks", self.count());
                return Err(Error::invalid("a block in a table", block.0, expected));
            };
            *found += 1;
        }
        for (block, &references) in self.references.iter().enumerate() {
            let (what, expected) = (|| format!("block {block}"), u32::from(references == 0));
            if on_stack[block] != expected {
                let found = format!("{} times among the free", on_stack[block]);
                let expected = format!("{expected} times, with {references} references");
                return Err(Error::invalid(what(), found, expected));
            }
            if found[block] != references {
                let found = format!("in {} places", found[block]);
                let expected = format!("in as many as its {references} references");
                return Err(Error::invalid(what(), found, expected));
            }
        }
        Ok(())
    }
    // ANCHOR_END: integrity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_when_the_last_reference_is_gone() {
        let mut blocks = Blocks::new(2);
        let a = blocks.take().unwrap();
        blocks.share(a);
        assert!(!blocks.release(a));
        assert_eq!((blocks.free(), blocks.used(), blocks.references(a)), (1, 1, 1));
        blocks.check_integrity([a]).unwrap();
        assert!(blocks.release(a));
        blocks.check_integrity([]).unwrap();
        let (a, b) = (blocks.take().unwrap(), blocks.take().unwrap());
        assert_ne!(a, b);
        assert_eq!(blocks.take(), None);
    }

    #[test]
    fn a_table_that_says_otherwise_is_noticed() {
        let mut blocks = Blocks::new(3);
        let a = blocks.take().unwrap();
        let says = |held: &[BlockId]| {
            blocks.check_integrity(held.iter().copied()).unwrap_err().to_string()
        };
        assert_eq!(says(&[]), "block 0 is in 0 places, expected in as many as its 1 references");
        assert_eq!(
            says(&[a, a]),
            "block 0 is in 2 places, expected in as many as its 1 references"
        );
        assert!(says(&[a, BlockId(7)]).contains("below 3"));
        blocks.free.push(a);
        let said = blocks.check_integrity([a]).unwrap_err().to_string();
        assert_eq!(said, "block 0 is 1 times among the free, expected 0 times, with 1 references");
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn a_block_is_given_back_once() {
        let mut blocks = Blocks::new(1);
        let block = blocks.take().unwrap();
        blocks.release(block);
        blocks.release(block);
    }

    #[test]
    #[should_panic(expected = "fewer than 2^32")]
    fn more_references_than_can_be_counted_do_not_free_a_block() {
        let mut blocks = Blocks::new(1);
        let block = blocks.take().unwrap();
        blocks.references[block.index()] = u32::MAX;
        blocks.share(block);
    }

    #[test]
    #[should_panic(expected = "cannot be shared")]
    fn a_free_block_is_not_shared() {
        Blocks::new(1).share(BlockId(0));
    }
}
