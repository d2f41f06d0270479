//! Blocks for the rows of a pass: how many, and how they are taken.

use super::{PagedCache, Pool};
use crate::blocks::BlockId;
use crate::table::Table;
use naive_decode::{Pass, Result, Span};

impl PagedCache {
    // ANCHOR: needed
    /// Blocks that a pass will take: for tokens that have no place yet, and for copies of blocks that it
    /// writes to and others hold too.
    ///
    /// # Errors
    /// If the pass does not go on where a sequence ends, or there is no such sequence.
    pub fn blocks_needed(&self, pass: &Pass) -> Result<usize> {
        self.lengths.check_pass(pass)?;
        let (mut new, mut to_copy) = (0, Vec::new());
        for span in &pass.spans {
            let places = self.layout.blocks_for(span.end());
            for table in &self.tables(span.sequence)?.groups {
                new += places.saturating_sub(table.len());
                to_copy.extend(self.must_copy(table, span.start));
            }
        }
        to_copy.sort_unstable();
        // Once all others have a copy of their own, the last one holds the block alone.
        let others = |block| self.blocks.references(block) as usize - 1;
        let copies = to_copy.chunk_by(|a, b| a == b).map(|same| same.len().min(others(same[0])));
        Ok(new + copies.sum::<usize>())
    }

    /// The block that a row in slot `start` goes to, if there is one and others hold it too.
    fn must_copy(&self, table: &Table, start: usize) -> Option<BlockId> {
        let block = match start % self.layout.tokens() {
            0 => None,
            _ => table.block(start / self.layout.tokens()),
        };
        block.filter(|&block| self.blocks.references(block) > 1)
    }
    // ANCHOR_END: needed

    // ANCHOR: grow
    /// Gives a span's rows a place each, and copies what it must not write to. There are enough blocks.
    ///
    /// # Errors
    /// If a device fails to copy; the sequence then still has the block that it shares.
    pub(super) fn grow(&mut self, span: &Span) -> Result<()> {
        let places = self.layout.blocks_for(span.end());
        for group in 0..self.layout.groups().len() {
            let table = &self.tables[span.sequence].as_ref().expect("it is open").groups[group];
            if let Some(shared) = self.must_copy(table, span.start) {
                let own = self.blocks.take().expect("there are enough");
                let copied = on_pages!(
                    &mut self.pool,
                    pages => { pages.copy(shared, own); Ok(()) },
                    memory => memory.copy(shared, own)
                );
                if copied.is_err() {
                    self.blocks.release(own);
                    return copied;
                }
                let tables = self.tables[span.sequence].as_mut().expect("it is open");
                tables.groups[group].replace(span.start / self.layout.tokens(), own);
                self.blocks.release(shared);
            }
            let table = &mut self.tables[span.sequence].as_mut().expect("it is open").groups[group];
            while table.len() < places {
                table.push(self.blocks.take().expect("there are enough"));
            }
        }
        Ok(())
    }
    // ANCHOR_END: grow
}
