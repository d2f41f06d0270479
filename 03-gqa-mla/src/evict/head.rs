//! One key-value head of one layer of one sequence: its entries and who chooses among them.

use super::{Evict, Held, Observation, Phase};
use crate::entries::Entries;
use crate::tiles::Tiled;
use kv_cache::KvShape;
use naive_decode::{Error, Result, Rope};
use std::ops::Range;

/// Invariants: `slots` ascends, there is one for each entry, and between passes `committed` of them
/// count.
#[derive(Clone)]
pub(super) struct Head<P> {
    entries: Entries,
    slots: Vec<usize>,
    /// Entries of passes that have been committed; what lies behind them is a pass's under way, or
    /// one's that failed.
    committed: usize,
    /// What the policy knew when the last pass was committed.
    policy: P,
    /// The same with what it has seen in a pass that may yet fail; none until it has seen something.
    observing: Option<P>,
}

impl<P: Evict> Head<P> {
    pub(super) fn new(shape: KvShape, policy: &P) -> Self {
        let (entries, policy) = (Entries::new(shape), policy.clone());
        Head { entries, slots: Vec::new(), committed: 0, policy, observing: None }
    }

    /// Slots of the committed entries.
    pub(super) fn slots(&self) -> &[usize] {
        &self.slots[..self.committed]
    }

    /// Forgets what a pass that failed has left, if one has, and makes ready for the next.
    pub(super) fn begin(&mut self) {
        if self.committed < self.slots.len() {
            self.entries.keep(&(0..self.committed).collect::<Vec<_>>());
            self.slots.truncate(self.committed);
        }
        self.observing = None;
    }

    /// Makes room for more entries, and for no fewer than `least` in all.
    pub(super) fn reserve(&mut self, more: usize, least: usize) {
        self.entries.reserve((self.slots.len() + more).max(least));
    }

    pub(super) fn push(&mut self, slot: usize, key: &[f32], value: &[f32]) {
        self.entries.push(key, value);
        self.slots.push(slot);
    }

    /// Its entries for the inner loop. Given `rope`, keys stand as far from slot `end` as they do
    /// in the cache, and not in the text.
    pub(super) fn tiled(
        &self,
        value_dim: usize,
        key_dim: usize,
        turn: Option<(&Rope, usize)>,
    ) -> Result<Tiled> {
        let mut tiled = Tiled::new(self.slots.clone(), key_dim, value_dim);
        let (mut key, mut value) = (vec![0.0; key_dim], vec![0.0; value_dim]);
        for (place, &slot) in self.slots.iter().enumerate() {
            self.entries.key(place, &mut key);
            self.entries.value(place, &mut value);
            if let Some((rope, end)) = turn {
                let dropped = end - self.slots.len();
                // Two turns are one by the sum of their angles.
                match place + dropped - slot {
                    0 => {}
                    nearer => rope.rotate(&mut key, nearer)?,
                }
            }
            tiled.put(place, &key, &value);
        }
        Ok(tiled)
    }

    pub(super) fn observe(&mut self, query: &Observation) {
        self.observing.get_or_insert_with(|| self.policy.clone()).observe(query);
    }

    /// The pass is done. Whether anything was dropped.
    pub(super) fn commit(&mut self, held: Turn) -> bool {
        if let Some(observed) = self.observing.take() {
            self.policy = observed;
        }
        self.committed = self.slots.len();
        let chosen = self.policy.choose(&held.of(&self.slots));
        if let Some(places) = &chosen {
            self.keep(places, held.length);
        }
        self.entries.shrink_to(held.budget);
        chosen.is_some()
    }

    /// Drops the entries of some slots. Whether there were any.
    pub(super) fn drop_slots(&mut self, dropped: &Range<usize>, length: usize) -> bool {
        let places: Vec<usize> =
            (0..self.committed).filter(|&place| !dropped.contains(&self.slots[place])).collect();
        let lost = places.len() < self.committed;
        self.keep(&places, length);
        lost
    }

    fn keep(&mut self, places: &[usize], length: usize) {
        self.entries.keep(places);
        self.slots = places.iter().map(|&place| self.slots[place]).collect();
        self.committed = places.len();
        self.policy.keep(places, length);
        self.observing = None;
    }

    /// Bytes set aside for keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// Bytes of slot numbers and of what the policy remembers, with what a pass under way has added.
    pub(super) fn bookkeeping_bytes(&self) -> usize {
        let remembered = self.policy.bytes() + self.observing.as_ref().map_or(0, P::bytes);
        self.slots.len() * size_of::<usize>() + remembered
    }

    pub(super) fn check_integrity(&self, held: Turn) -> Result<()> {
        let at = format!("layer {}, head {}", held.layer, held.kv_head);
        if self.slots.len() != self.entries.len() {
            let expected = format!("{}, one for each entry", self.entries.len());
            return Err(Error::invalid(format!("slots of {at}"), self.slots.len(), expected));
        }
        if !self.slots().is_sorted_by(|a, b| a < b) {
            let found = format!("{:?}", self.slots());
            return Err(Error::invalid(format!("slots of {at}"), found, "ascending"));
        }
        if let Some(last) = self.slots().last().filter(|&&last| last >= held.length) {
            let expected = format!("below the sequence's length, {}", held.length);
            return Err(Error::invalid(format!("last slot of {at}"), last, expected));
        }
        if let Some(places) = self.policy.choose(&held.of(self.slots())) {
            let expected = format!("{}, as the policy wants it", places.len());
            return Err(Error::invalid(format!("entries of {at}"), self.committed, expected));
        }
        Ok(())
    }
}

/// What a head is told when it is its turn to choose.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) layer: usize,
    pub(super) kv_head: usize,
    /// Of the sequence.
    pub(super) length: usize,
    pub(super) budget: usize,
    pub(super) phase: Phase,
}

impl Turn {
    fn of(self, slots: &[usize]) -> Held<'_> {
        let Turn { layer, kv_head, budget, phase, .. } = self;
        Held { layer, kv_head, slots, budget, phase }
    }
}
