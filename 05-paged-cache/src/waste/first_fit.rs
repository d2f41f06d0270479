//! The first gap that is long enough.

use super::Placement;
use std::collections::BTreeMap;
use std::ops::Range;

/// Puts each piece at the start of the first gap that is long enough, and joins gaps that meet.
///
/// Invariant: gaps do not overlap and do not touch.
#[derive(Debug, Clone)]
pub struct FirstFit {
    memory: usize,
    /// Start and end of each gap.
    gaps: BTreeMap<usize, usize>,
}

impl FirstFit {
    /// An empty memory of this many slots.
    pub fn new(memory: usize) -> Self {
        FirstFit { memory, gaps: BTreeMap::from([(0, memory)]) }
    }
}

impl Placement for FirstFit {
    fn memory(&self) -> usize {
        self.memory
    }

    fn longest(&self) -> usize {
        self.memory
    }

    fn place(&mut self, slots: usize) -> Option<Range<usize>> {
        let is_long = |&(&start, &end): &(&usize, &usize)| end - start >= slots;
        let (&start, &end) = self.gaps.iter().find(is_long)?;
        self.gaps.remove(&start);
        if start + slots < end {
            self.gaps.insert(start + slots, end);
        }
        Some(start..start + slots)
    }

    fn release(&mut self, piece: Range<usize>) {
        let Range { mut start, mut end } = piece;
        if let Some(after) = self.gaps.remove(&end) {
            end = after;
        }
        if let Some((&before, &until)) = self.gaps.range(..start).next_back()
            && until == start
        {
            start = before;
        }
        self.gaps.insert(start, end);
    }

    fn in_gaps(&self, slots: usize) -> usize {
        self.gaps.iter().map(|(start, end)| end - start).filter(|&gap| gap < slots).sum()
    }
}
