//! Which slot has which name, and which was used longest ago.
//!
//! Both tiers keep blocks in numbered slots and let go of the least recently used. The order of use is a
//! doubly linked list whose links lie in a vector, one for each slot: moving a slot to the newest end, or
//! taking it out, rewires its two neighbours and nothing else, however many slots there are.

use super::Key;
use naive_decode::{Error, Result};
use std::collections::HashMap;

/// The end of both chains: what is older than the oldest and newer than the newest.
const END: usize = usize::MAX;

/// Names of slots, in order of use.
///
/// Invariants: a slot has a name or is free, and only one of them; a slot with a name is in the chain once.
#[derive(Debug)]
pub(super) struct Directory {
    slots: HashMap<Key, usize>,
    /// One for each slot; None if it is free.
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    oldest: usize,
    newest: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: Key,
    older: usize,
    newer: usize,
}

impl Directory {
    pub(super) fn new() -> Self {
        Directory {
            slots: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: END,
            newest: END,
        }
    }

    /// So many slots, of which some have names: from the one used longest ago to the newest. Where a name
    /// comes twice, the newer slot has it.
    pub(super) fn restore(count: usize, named: impl IntoIterator<Item = (usize, Key)>) -> Self {
        let mut directory = Directory { entries: vec![None; count], ..Directory::new() };
        for (slot, key) in named {
            directory.remove(key);
            directory.occupy(slot, key);
        }
        let is_free = |&slot: &usize| directory.entries[slot].is_none();
        directory.free = (0..count).rev().filter(is_free).collect();
        directory
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a name.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        self.slots.get(&key).copied()
    }

    /// The name that was used longest ago.
    pub(super) fn oldest(&self) -> Option<Key> {
        self.entry(self.oldest).map(|entry| entry.key)
    }

    /// Gives a new name a slot, the newest in use: one that was free, or one more than there were.
    ///
    /// # Panics
    /// If the name has a slot.
    pub(super) fn insert(&mut self, key: Key) -> usize {
        let slot = self.free.pop().unwrap_or(self.entries.len());
        if slot == self.entries.len() {
            self.entries.push(None);
        }
        self.occupy(slot, key);
        slot
    }

    /// Makes a slot the newest in use.
    pub(super) fn touch(&mut self, slot: usize) {
        self.unlink(slot);
        self.link(slot);
    }

    /// Takes a name away and returns the slot that had it, which is free now.
    pub(super) fn remove(&mut self, key: Key) -> Option<usize> {
        let slot = self.slots.remove(&key)?;
        self.unlink(slot);
        self.entries[slot] = None;
        self.free.push(slot);
        Some(slot)
    }

    fn occupy(&mut self, slot: usize, key: Key) {
        let before = self.slots.insert(key, slot);
        assert!(before.is_none(), "{key:?} has a slot already");
        self.entries[slot] = Some(Entry { key, older: END, newer: END });
        self.link(slot);
    }

    fn entry(&self, slot: usize) -> Option<&Entry> {
        self.entries.get(slot)?.as_ref()
    }

    /// Puts a slot at the newest end.
    fn link(&mut self, slot: usize) {
        let older = std::mem::replace(&mut self.newest, slot);
        match self.entries.get_mut(older) {
            Some(entry) => entry.as_mut().expect("a link leads to a name").newer = slot,
            None => self.oldest = slot,
        }
        let entry = self.entries[slot].as_mut().expect("a slot with a name");
        (entry.older, entry.newer) = (older, END);
    }

    /// Joins a slot's neighbours.
    fn unlink(&mut self, slot: usize) {
        let Entry { older, newer, .. } = self.entries[slot].expect("a slot with a name");
        match self.entries.get_mut(older) {
            Some(entry) => entry.as_mut().expect("a link leads to a name").newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer) {
            Some(entry) => entry.as_mut().expect("a link leads to a name").older = older,
            None => self.newest = older,
        }
    }

    /// Whether the invariants hold.
    ///
    /// # Errors
    /// Names the first slot for which they do not.
    pub(super) fn check_integrity(&self) -> Result<()> {
        let wrong = |slot: usize, found: &str, expected: &str| {
            Err(Error::invalid(format!("slot {slot}"), found, expected))
        };
        let mut is_free = vec![false; self.entries.len()];
        for &slot in &self.free {
            if std::mem::replace(&mut is_free[slot], true) {
                return wrong(slot, "free twice", "free once");
            }
        }
        for (slot, entry) in self.entries.iter().enumerate() {
            match entry {
                None if !is_free[slot] => return wrong(slot, "without a name", "free"),
                Some(_) if is_free[slot] => return wrong(slot, "free", "not free: it has a name"),
                Some(entry) if self.find(entry.key) != Some(slot) => {
                    return wrong(slot, "not found by its name", "found");
                }
                _ => {}
            }
        }
        let (mut slot, mut older, mut seen) = (self.oldest, END, 0);
        while let Some(entry) = self.entry(slot) {
            if entry.older != older || seen == self.len() {
                return wrong(slot, "linked wrongly", "a chain from the oldest to the newest");
            }
            (older, slot, seen) = (slot, entry.newer, seen + 1);
        }
        if seen != self.len() || slot != END || older != self.newest {
            let expected = format!("{}, as many as there are names", self.len());
            return Err(Error::invalid("slots in order of use", seen, expected));
        }
        Ok(())
    }
}
