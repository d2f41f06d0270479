//! Stand-ins: the mean of a block's keys and of its values.

use crate::entries::Entries;
use kv_cache::KvShape;
use naive_decode::{Error, Result};

/// One head's entries, and the stand-ins of its complete blocks.
#[derive(Clone)]
pub(super) struct Blocks {
    pub(super) entries: Entries,
    /// One for each complete block, in order.
    pub(super) means: Entries,
    size: usize,
}

impl Blocks {
    pub(super) fn new(shape: KvShape, size: usize) -> Self {
        Blocks { entries: Entries::new(shape), means: Entries::new(shape), size }
    }

    /// Appends an entry, and its block's stand-in if it is the block's last: `key [D]`, `value
    /// [D_v]`.
    pub(super) fn push(&mut self, key: &[f32], value: &[f32]) {
        self.entries.push(key, value);
        if self.entries.len().is_multiple_of(self.size) {
            let first = self.entries.len() - self.size;
            let key = self.mean(first, key.len(), Entries::key);
            let value = self.mean(first, value.len(), Entries::value);
            self.means.push(&key, &value);
        }
    }

    fn mean(&self, first: usize, dim: usize, read: fn(&Entries, usize, &mut [f32])) -> Vec<f32> {
        let (mut sum, mut one) = (vec![0.0f32; dim], vec![0.0; dim]);
        for place in first..first + self.size {
            read(&self.entries, place, &mut one);
            sum.iter_mut().zip(&one).for_each(|(sum, v)| *sum += v);
        }
        sum.iter_mut().for_each(|sum| *sum /= self.size as f32);
        sum
    }

    /// Keeps the first `length` entries, and the stand-ins of the blocks that are then still
    /// complete.
    pub(super) fn truncate(&mut self, length: usize) {
        if length < self.entries.len() {
            self.entries.keep(&(0..length).collect::<Vec<_>>());
            self.means.keep(&(0..length / self.size).collect::<Vec<_>>());
        }
    }

    /// Entries of all `length` tokens, or of none: a layer may read another's. A pass that failed may have
    /// left more behind. A stand-in for each whole block. `at` says whose they are.
    pub(super) fn check_integrity(&self, at: &str, length: usize) -> Result<()> {
        let (entries, blocks) = (self.entries.len(), self.entries.len() / self.size);
        if (1..length).contains(&entries) {
            return Err(Error::invalid(format!("entries in {at}"), entries, format!("{length}")));
        }
        if self.means.len() != blocks {
            let expected = format!("{blocks}, one for each whole block");
            return Err(Error::invalid(format!("stand-ins in {at}"), self.means.len(), expected));
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.means.bytes()
    }
}
