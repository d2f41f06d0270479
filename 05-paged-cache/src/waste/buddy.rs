//! Pieces whose lengths are powers of two, halved and joined in pairs (Knuth, volume 1, section 2.5).
//!
//! Kwon et al. assume that Orca places its pieces like this. Joining is quick, since the only neighbour to
//! look at, the *buddy*, is where one bit of the address says. The price is that lengths are rounded up.

use super::Placement;
use std::collections::BTreeSet;
use std::ops::Range;

/// The buddy system. A memory that is no power of two is cut into such pieces, the largest first.
///
/// Invariant: a free piece of 2^k slots begins at a multiple of 2^k, and its buddy is not free too.
#[derive(Debug, Clone)]
pub struct Buddy {
    memory: usize,
    /// Starts of the free pieces of 2^k slots.
    free: Vec<BTreeSet<usize>>,
}

impl Buddy {
    /// An empty memory of this many slots.
    pub fn new(memory: usize) -> Self {
        let mut free = vec![BTreeSet::new(); usize::BITS as usize];
        let mut start = 0;
        for order in (0..free.len()).rev() {
            if memory >> order & 1 == 1 {
                free[order].insert(start);
                start += 1 << order;
            }
        }
        Buddy { memory, free }
    }
}

/// The k of the smallest 2^k that is no less.
fn order_of(slots: usize) -> usize {
    slots.next_power_of_two().trailing_zeros() as usize
}

impl Placement for Buddy {
    fn memory(&self) -> usize {
        self.memory
    }

    fn longest(&self) -> usize {
        self.memory.checked_ilog2().map_or(0, |order| 1 << order)
    }

    fn place(&mut self, slots: usize) -> Option<Range<usize>> {
        let wanted = order_of(slots);
        let found = (wanted..self.free.len()).find(|&order| !self.free[order].is_empty())?;
        let start = self.free[found].pop_first()?;
        // Keeps the lower half, frees the upper, until the piece is as short as it may be.
        for order in wanted..found {
            self.free[order].insert(start + (1 << order));
        }
        Some(start..start + (1 << wanted))
    }

    fn release(&mut self, piece: Range<usize>) {
        let (mut start, mut order) = (piece.start, order_of(piece.len()));
        while self.free[order].remove(&(start ^ (1 << order))) {
            start &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(start);
    }

    fn in_gaps(&self, slots: usize) -> usize {
        let too_small = self.free.iter().enumerate().take(order_of(slots));
        too_small.map(|(order, starts)| starts.len() << order).sum()
    }
}
