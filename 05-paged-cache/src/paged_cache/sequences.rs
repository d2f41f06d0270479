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
    /// differ; [`Error::Capacity`] if a sequence may not be so long. The references are then still the caller's.
    pub fn adopt(&mut self, blocks: &[BlockId], tokens: usize) -> Result<usize> {
        self.check_shareable()?;
        self.check_length(tokens)?;
        if blocks.len() != self.layout.blocks_for(tokens) {
            let expected = format!("{}, for {tokens} tokens", self.layout.blocks_for(tokens));
            return Err(Error::invalid("blocks to begin with", blocks.len(), expected));
        }
        let table = Table::of(blocks.iter().copied().map(Some).collect());
        Ok(self.open_with(Tables { groups: vec![table] }, tokens))
    }

    // ANCHOR: exchange
    /// Puts `same` in the place of a sequence's first blocks, which have been found to hold the same: one of each is enough.
    /// The sequence has references of its own to them from now on, and none to those that it had.
    ///
    /// # Errors
    /// If there is no such sequence, its tokens are in fewer blocks, or the layout is none to share blocks of (see
    /// [`PagedCache::adopt`]).
    ///
    /// # Panics
    /// If one of `same` is free, or none of the pool's.
    pub fn exchange(&mut self, sequence: usize, same: &[BlockId]) -> Result<()> {
        self.check_shareable()?;
        self.tables(sequence)?;
        // Places past them are of a pass that was not committed: the next one writes there, and copies nothing.
        let held = self.layout.blocks_for(self.lengths.of(sequence));
        if same.len() > held {
            let what = format!("blocks for the beginning of sequence {sequence}");
            return Err(Error::invalid(what, same.len(), format!("at most its {held}")));
        }
        let PagedCache { tables, blocks, .. } = self;
        let table = &mut tables[sequence].as_mut().expect("it is open").groups[0];
        for (place, &block) in same.iter().enumerate() {
            if table.block(place) != Some(block) {
                blocks.share(block);
                table.replace(place, block).into_iter().for_each(|own| _ = blocks.release(own));
            }
        }
        Ok(())
    }
    // ANCHOR_END: exchange

    /// Whether sequences can have blocks of each other: a table names a block for each place from the first on.
    ///
    /// # Errors
    /// If layers are in several groups, whose blocks differ, or have a window behind which blocks are given back.
    pub fn check_shareable(&self) -> Result<()> {
        let groups = self.layout.groups();
        let what = match groups {
            [group] if group.window.is_none() => return Ok(()),
            [_] => "one with a window".to_string(),
            _ => groups.len().to_string(),
        };
        let expected =
            "1 without a window: layers with one must keep what is shared (Behind::Kept)";
        Err(Error::invalid("groups of layers", what, expected))
    }
}
