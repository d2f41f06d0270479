//! Sequences: they are opened and closed, and begin with what others have.

use super::PagedCache;
use crate::blocks::BlockId;
use crate::table::{Table, Tables};
use kv_cache::KvCache;
use naive_decode::{Error, Result};

impl PagedCache {
    // ANCHOR: open
    /// A new sequence, empty: it holds no block until its first pass.
    pub fn open(&mut self) -> usize {
        let empty = Tables { groups: vec![Table::default(); self.layout.groups().len()] };
        self.open_with(empty, 0)
    }

    /// A new sequence that begins with what is in `tables`, whose references become its own.
    pub(crate) fn open_with(&mut self, tables: Tables, length: usize) -> usize {
        let sequence = self.tables.iter().position(Option::is_none).unwrap_or_else(|| {
            self.tables.push(None);
            self.lengths.add()
        });
        self.tables[sequence] = Some(tables);
        self.lengths.set(sequence, length);
        sequence
    }

    /// Ends a sequence: the blocks that nobody else holds are free.
    ///
    /// # Errors
    /// If there is no such sequence.
    pub fn close(&mut self, sequence: usize) -> Result<()> {
        self.reset(sequence)?;
        self.tables[sequence] = None;
        Ok(())
    }
    // ANCHOR_END: open

    // ANCHOR: fork
    /// A second sequence with the same tokens, in the same blocks. The first of the two to write into a
    /// block that both have gets a copy of it (copy on write).
    ///
    /// # Errors
    /// If there is no such sequence.
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        self.tables(sequence)?;
        self.drop_unused(sequence);
        let PagedCache { tables, blocks, .. } = self;
        let own = tables[sequence].as_ref().expect("it is open");
        let groups = own.groups.iter().map(|table| table.share(blocks)).collect();
        Ok(self.open_with(Tables { groups }, self.lengths.of(sequence)))
    }
    // ANCHOR_END: fork

    /// A new sequence whose first `tokens` tokens are in `blocks`, of which the caller holds a reference
    /// each; from now on the sequence does.
    ///
    /// # Errors
    /// If there are not as many blocks as the tokens need, or the layout has several groups, whose blocks
    /// differ. The references are then still the caller's.
    pub fn adopt(&mut self, blocks: &[BlockId], tokens: usize) -> Result<usize> {
        let groups = self.layout.groups().len();
        if groups != 1 {
            let expected = "1: layers with a window must keep what is shared (Behind::Kept)";
            return Err(Error::invalid("groups of layers", groups, expected));
        }
        self.check_length(tokens)?;
        if blocks.len() != self.layout.blocks_for(tokens) {
            let expected = format!("{}, for {tokens} tokens", self.layout.blocks_for(tokens));
            return Err(Error::invalid("blocks to begin with", blocks.len(), expected));
        }
        let table = Table::of(blocks.iter().copied().map(Some).collect());
        Ok(self.open_with(Tables { groups: vec![table] }, tokens))
    }
}
