//! Whether everything that must hold of the cache does.

use super::PagedCache;
use crate::blocks::BlockId;
use crate::table::{Table, Tables};
use naive_decode::{Error, Result};

impl PagedCache {
    // ANCHOR: integrity
    /// Whether the invariants hold. `elsewhere` is every block that is held outside the tables, once for
    /// each reference.
    ///
    /// # Errors
    /// Names the first block or sequence for which they do not.
    pub fn check_integrity(&self, elsewhere: impl IntoIterator<Item = BlockId>) -> Result<()> {
        let in_tables = self.tables.iter().flatten().flat_map(Tables::held);
        self.blocks.check_integrity(in_tables.chain(elsewhere))?;
        for (sequence, tables) in self.tables.iter().enumerate() {
            let length = self.lengths.of(sequence);
            let Some(tables) = tables else {
                if length > 0 {
                    let what = format!("length of sequence {sequence}, which is closed");
                    return Err(Error::invalid(what, length, "0"));
                }
                continue;
            };
            for (group, table) in tables.groups.iter().enumerate() {
                self.check_table(sequence, group, table)?;
            }
        }
        Ok(())
    }
    // ANCHOR_END: integrity

    fn check_table(&self, sequence: usize, group: usize, table: &Table) -> Result<()> {
        let length = self.lengths.of(sequence);
        let what = |what: &str| format!("{what} of sequence {sequence}, group {group}");
        if table.len() < self.layout.blocks_for(length) {
            let expected = format!("{} for {length} tokens", self.layout.blocks_for(length));
            return Err(Error::invalid(what("blocks"), table.len(), expected));
        }
        let needed = self.first_seen(group, length) / self.layout.tokens();
        if let Some(gone) = (needed..table.len()).find(|&place| table.block(place).is_none()) {
            return Err(Error::invalid(what(&format!("place {gone}")), "given back", "a block"));
        }
        let mut held: Vec<BlockId> = table.held().collect();
        held.sort_unstable();
        if let Some(twice) = held.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(what("a block"), format!("{:?} twice", twice[0]), "once"));
        }
        Ok(())
    }
}
