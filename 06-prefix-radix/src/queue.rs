//! What may go, the longest unused first.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Items by the time of their last use. Time is a count of uses; there is no clock.
#[derive(Debug, Clone)]
pub(crate) struct Queue<T> {
    items: BTreeSet<(u64, T)>,
}

impl<T: Ord + Copy> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue { items: BTreeSet::new() }
    }

    pub(crate) fn insert(&mut self, used: u64, item: T) {
        let new = self.items.insert((used, item));
        debug_assert!(new, "an item is in the queue once");
    }

    pub(crate) fn remove(&mut self, used: u64, item: T) {
        let there = self.items.remove(&(used, item));
        debug_assert!(there, "only what is in the queue is taken out");
    }

    /// An item of the queue was used again.
    pub(crate) fn touch(&mut self, before: u64, now: u64, item: T) {
        self.remove(before, item);
        self.insert(now, item);
    }

    /// The oldest, or the next after one that is not to go. O(log n).
    pub(crate) fn after(&self, passed: Option<(u64, T)>) -> Option<(u64, T)> {
        match passed {
            None => self.items.first().copied(),
            Some(passed) => self.items.range((Excluded(passed), Unbounded)).next().copied(),
        }
    }

    pub(crate) fn contains(&self, used: u64, item: T) -> bool {
        self.items.contains(&(used, item))
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}
