//! What is left to do once a draft tree has been verified.

use super::{PagedCache, Pool};
use kv_cache::KvCache;
use naive_decode::{Error, Result};

impl PagedCache {
    // ANCHOR: keep
    /// Of the slots from `start` on, keeps those in `kept`, which move up to `start` and follow each other;
    /// the others are rolled back. This is what is left to do once a draft tree has been verified.
    ///
    /// The rows that move were made for the positions that they move to: a branch stands in its tree as it
    /// would stand alone. Blocks that they move to and that others hold too are copied first.
    ///
    /// # Errors
    /// If the slots are not ascending and between `start` and the sequence's length, there is no such
    /// sequence, a layer's window has given back blocks that it needs again (see [`Room::rollback`](crate::Room::rollback)),
    /// or a device fails; [`Error::Capacity`] if too few blocks are free for the copies. Nothing has then changed, but where a
    /// device fails while slots move: some of them then hold what others should, so that all from `start` on are rolled back.
    pub fn keep(&mut self, sequence: usize, start: usize, kept: &[usize]) -> Result<()> {
        self.tables(sequence)?;
        let length = self.lengths.check_truncate(sequence, start)?;
        let inside = kept.iter().all(|slot| (start..length).contains(slot));
        if !inside || !kept.is_sorted_by(|a, b| a < b) {
            let expected = format!("ascending, from {start} and below {length}");
            return Err(Error::invalid("slots to keep", format!("{kept:?}"), expected));
        }
        let end = start + kept.len();
        self.check_windows(sequence, end)?;
        let stay = (start..).zip(kept).take_while(|(to, from)| to == *from).count();
        self.copy_shared(sequence, start + stay..end)?;
        let mut moves = (start..).zip(kept).skip(stay);
        match moves.try_for_each(|(to, &from)| self.copy_slot(sequence, from, to)) {
            Ok(()) => self.truncate(sequence, end),
            Err(error) => self.truncate(sequence, start).and(Err(error)),
        }
    }

    fn copy_slot(&mut self, sequence: usize, from: usize, to: usize) -> Result<()> {
        let PagedCache { layout, pool, tables, .. } = self;
        let (tokens, tables) = (layout.tokens(), &tables[sequence]);
        let place = |group: usize, slot: usize| {
            let table = &tables.as_ref().expect("it is open").groups[group];
            Some((table.block(slot / tokens)?, slot % tokens))
        };
        // Behind a window a block may have been given back. Nothing is kept there: no row sees it.
        let places = |group: usize| place(group, from).zip(place(group, to));
        if let Pool::Elsewhere(memory) = pool {
            return places(0).map_or(Ok(()), |(from, to)| memory.copy_slot(from, to));
        }
        for layer in layout.places() {
            if let Some((from, to)) = places(layer.group) {
                on_pages!(pool, pages => pages.copy_slot(layer, from, to), _memory => {});
            }
        }
        Ok(())
    }
    // ANCHOR_END: keep

    /// Whether every layer's window is there for a sequence of this many tokens.
    pub(super) fn check_windows(&self, sequence: usize, length: usize) -> Result<()> {
        for (group, table) in self.tables(sequence)?.groups.iter().enumerate() {
            let first = self.first_seen(group, length) / self.layout.tokens();
            let mut needed = first..self.layout.blocks_for(length);
            if needed.any(|place| table.block(place).is_none()) {
                let what = format!("length to truncate sequence {sequence} to");
                let window = self.layout.groups()[group].window.unwrap_or(0);
                let shortest = (table.given_back() * self.layout.tokens() + window).max(1) - 1;
                let expected = format!(
                    "0 or at least {shortest}: the blocks before the window are given back"
                );
                return Err(Error::invalid(what, length, expected));
            }
        }
        Ok(())
    }
}
