//! Blocks of one size, taken one by one as a request grows.

use super::{Allocator, Request};
use crate::{BlockId, Blocks};
use naive_decode::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Gives a request as many blocks as its tokens fill, wherever they are.
#[derive(Debug, Clone)]
pub struct Paged {
    memory: usize,
    block_size: usize,
    blocks: Blocks,
    tables: HashMap<usize, Vec<BlockId>>,
}

impl Paged {
    /// An empty memory of this many slots, in blocks of this many.
    ///
    /// # Errors
    /// If a block has no slots.
    ///
    /// # Panics
    /// As [`Blocks::new`].
    pub fn new(memory: usize, block_size: usize) -> Result<Self> {
        if block_size == 0 {
            return Err(Error::invalid("block size", 0, "at least 1"));
        }
        let blocks = Blocks::new(memory / block_size);
        Ok(Paged { memory, block_size, blocks, tables: HashMap::new() })
    }
}

impl Allocator for Paged {
    fn memory(&self) -> usize {
        self.memory
    }

    fn could_hold(&self, request: &Request) -> bool {
        request.length().div_ceil(self.block_size) <= self.blocks.count()
    }

    fn admit(&mut self, id: usize, _request: &Request, tokens: usize) -> bool {
        // With the token that is about to come: else it might have to leave in the step in which it came.
        let needed = (tokens + 1).div_ceil(self.block_size);
        let fits = needed <= self.blocks.free();
        if fits {
            self.tables.insert(id, Vec::new());
            self.grow(id, tokens);
        }
        fits
    }

    fn grow(&mut self, id: usize, tokens: usize) -> bool {
        let table = self.tables.get_mut(&id).expect("an admitted request");
        while table.len() * self.block_size < tokens {
            let Some(block) = self.blocks.take() else { return false };
            table.push(block);
        }
        true
    }

    fn release(&mut self, id: usize) {
        for block in self.tables.remove(&id).expect("an admitted request") {
            self.blocks.release(block);
        }
    }

    fn set_aside(&self, id: usize) -> usize {
        self.tables[&id].len() * self.block_size
    }

    fn places(&self, id: usize) -> Vec<Range<usize>> {
        let start = |block: &BlockId| block.index() * self.block_size;
        self.tables[&id].iter().map(|block| start(block)..start(block) + self.block_size).collect()
    }

    /// What is left of the memory where it is no multiple of a block.
    fn in_gaps(&self, _waiting: Option<&Request>) -> usize {
        self.memory % self.block_size
    }
}
