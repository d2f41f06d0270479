//! Memory and a tier that can be told to fail.

use crate::BYTES;
use naive_decode::{Error, Result};
use paged_cache::BlockId;
use paged_cache::offload::{Backlog, BlockBytes, Key, Reading, Tier};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// A pool's memory.
pub(crate) struct Memory {
    pub(crate) blocks: Vec<[u8; BYTES]>,
    /// As a device's that has failed.
    pub(crate) is_broken: bool,
}

impl Memory {
    fn check(&self) -> Result<()> {
        if self.is_broken { Err(Error::file("a device", "is gone")) } else { Ok(()) }
    }
}

impl BlockBytes for Memory {
    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn copy_out(&self, block: BlockId, bytes: &mut Vec<u8>) -> Result<()> {
        self.check()?;
        bytes.extend(self.blocks[block.index()]);
        Ok(())
    }

    fn copy_in(&mut self, block: BlockId, bytes: &[u8]) -> Result<()> {
        let wrong = |_| Error::invalid("bytes", bytes.len(), BYTES.to_string());
        self.check()?;
        self.blocks[block.index()] = bytes.try_into().map_err(wrong)?;
        Ok(())
    }
}

/// A tier whose content outlives it, and which can be told to fail.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inside>>);

#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) kept: HashMap<Key, Vec<u8>>,
    /// Blocks that it has room for.
    pub(crate) most: Option<usize>,
    /// Names in order of use.
    order: Vec<Key>,
    pub(crate) broken: bool,
    /// Known by name, but what is there is no use.
    pub(crate) damaged: Vec<Key>,
    /// Stays after the process.
    pub(crate) outlives: bool,
    /// Has as much to write as it can.
    pub(crate) full: bool,
    /// Waits for a disk, and reads aside for whoever does not.
    pub(crate) aside: bool,
    /// What was put and will turn out not to be written.
    pub(crate) unwritten: Vec<Key>,
}

impl Fake {
    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    fn check(&self) -> Result<()> {
        let broken = self.inside().broken;
        if broken { Err(Error::file("a disk", "is full of holes")) } else { Ok(()) }
    }
}

impl Tier for Fake {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.touch(key);
        let mut inside = self.inside();
        inside.kept.insert(key, bytes.to_vec());
        if inside.most.is_some_and(|most| inside.kept.len() > most) {
            let oldest = inside.order.iter().position(|name| inside.kept.contains_key(name));
            let oldest = inside.order.remove(oldest.unwrap());
            inside.kept.remove(&oldest);
        }
        Ok(())
    }

    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        self.check()?;
        let inside = self.inside();
        assert!(!inside.aside, "a lookup waits for the disk");
        let Some(kept) = inside.kept.get(&key) else { return Ok(false) };
        if inside.damaged.contains(&key) {
            return Ok(false);
        }
        bytes.extend(kept);
        Ok(true)
    }

    fn touch(&mut self, key: Key) {
        let mut inside = self.inside();
        inside.order.retain(|&name| name != key);
        inside.order.push(key);
    }

    fn contains(&self, key: Key) -> bool {
        self.inside().kept.contains_key(&key)
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        self.check()?;
        let mut inside = self.inside();
        inside.damaged.retain(|&damaged| damaged != key);
        Ok(inside.kept.remove(&key).is_some())
    }

    fn settle(&mut self) -> Vec<Error> {
        let mut inside = self.inside();
        let unwritten = std::mem::take(&mut inside.unwritten);
        let failure = |key| {
            inside.kept.remove(&key);
            Error::file("a disk", "is full of holes")
        };
        unwritten.into_iter().map(failure).collect()
    }

    fn reads_aside(&self) -> bool {
        self.inside().aside
    }

    fn read_aside(&mut self, keys: &[Key]) -> Option<Reading> {
        let inside = self.inside();
        let (reading, reader) = Reading::begin(Arc::new(|| ()));
        let there = |&&key: &&Key| !inside.damaged.contains(&key);
        for key in keys.iter().take_while(there) {
            reader.give(*key, inside.kept[key].clone());
        }
        Some(reading)
    }

    fn backlog(&self) -> Backlog {
        if self.inside().full { Backlog::Full } else { Backlog::Nothing }
    }

    fn outlives_process(&self) -> bool {
        self.inside().outlives
    }

    fn most_blocks(&self) -> Option<usize> {
        self.inside().most
    }
}
