//! Somewhere else to keep blocks that the pool has no room for.
//!
//! The pool is the fastest memory and the smallest. A block that is pushed out of it need not be computed
//! again if its bytes went somewhere slower first: to the host's memory, or to a file. Such a place is a
//! *tier*. It promises little, and that is what makes it simple: it may lose whatever it was given, as long
//! as it never hands out bytes that are not the ones it was given.
//!
//! | File | Holds |
//! |---|---|
//! | `host.rs` | [`HostTier`]: blocks in ordinary memory |
//! | `file.rs` | [`FileTier`]: blocks in a file that outlives the process, each with a checksum |
//! | `reading.rs` | [`Reading`]: blocks on their way, for whoever does not wait for a disk |
//! | `directory.rs` | which name is in which slot, and which was used longest ago |

mod directory;
mod file;
mod host;
mod reading;

pub use file::{FileOptions, FileTier};
pub use host::HostTier;
pub use reading::{Reader, Reading, Ring};

use crate::blocks::BlockId;
use naive_decode::{Error, Result};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Name of a block's content. Equal content may have several; different content never shares one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 32]);

// ANCHOR: tier
/// Keeps the bytes of blocks by name.
///
/// A tier is a cache too: it may let go of the oldest to make room, and what it has lost or finds damaged
/// is simply not there. Whoever asks must be able to compute it again.
pub trait Tier: Send {
    /// Keeps a block's bytes, in place of any that had this name.
    ///
    /// # Errors
    /// If it cannot be written. What was there under other names is still there, but for what had to make room.
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()>;
    /// Copies a block's bytes to `bytes`, and says whether they were there. Damaged ones are not. What
    /// `bytes` held before is gone either way.
    ///
    /// # Errors
    /// If reading fails altogether.
    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool>;
    /// Whether something is kept under this name, as far as is known without reading it.
    fn contains(&self, key: Key) -> bool;
    /// Notes that a block was used: it is the last to be let go of now, where that goes by use.
    fn touch(&mut self, _key: Key) {}
    /// Forgets what is kept under this name, and says whether anything was.
    ///
    /// # Errors
    /// If it cannot be written that it is gone.
    fn remove(&mut self, key: Key) -> Result<bool>;
    /// Forgets what was put and, as has turned out since, could not be written; says what went wrong.
    fn settle(&mut self) -> Vec<Error> {
        Vec::new()
    }
    /// What it has yet to write of what it was given.
    fn backlog(&self) -> Backlog {
        Backlog::Nothing
    }
    /// Whether [`Tier::get`] may wait for a disk, and [`Tier::read_aside`] does not.
    fn reads_aside(&self) -> bool {
        false
    }
    /// Begins to read blocks, in this order up to the first that is not there, and comes back at once.
    fn read_aside(&mut self, _keys: &[Key]) -> Option<Reading> {
        None
    }
    /// Since when it has waited for its disk to send one block, if it does.
    fn waits_since(&self) -> Option<Instant> {
        None
    }
    /// What has been read so far of those, and what is wrong with the next. That one is forgotten.
    fn take_read(&mut self, reading: Reading) -> (HashMap<Key, Vec<u8>>, Option<Error>) {
        (reading.into_blocks(), None)
    }
    /// Whether what is kept is still there after the process has ended.
    fn outlives_process(&self) -> bool {
        false
    }
    /// How many blocks it has room for, where that is known.
    fn most_blocks(&self) -> Option<usize> {
        None
    }
}
// ANCHOR_END: tier

/// What a tier has yet to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backlog {
    /// Nothing: what was put there is there.
    Nothing,
    /// Something, and it takes more.
    Something,
    /// So much that whoever puts a block now has to wait.
    Full,
}

/// A tier that several use: one budget for all that they put there.
impl<T: Tier> Tier for Arc<Mutex<T>> {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        locked(self).put(key, bytes)
    }

    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        locked(self).get(key, bytes)
    }

    fn contains(&self, key: Key) -> bool {
        locked(self).contains(key)
    }

    fn touch(&mut self, key: Key) {
        locked(self).touch(key);
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        locked(self).remove(key)
    }

    fn settle(&mut self) -> Vec<Error> {
        locked(self).settle()
    }

    fn backlog(&self) -> Backlog {
        locked(self).backlog()
    }

    fn reads_aside(&self) -> bool {
        locked(self).reads_aside()
    }

    fn read_aside(&mut self, keys: &[Key]) -> Option<Reading> {
        locked(self).read_aside(keys)
    }

    fn waits_since(&self) -> Option<Instant> {
        locked(self).waits_since()
    }

    fn take_read(&mut self, reading: Reading) -> (HashMap<Key, Vec<u8>>, Option<Error>) {
        locked(self).take_read(reading)
    }

    fn outlives_process(&self) -> bool {
        locked(self).outlives_process()
    }

    fn most_blocks(&self) -> Option<usize> {
        locked(self).most_blocks()
    }
}

/// Whoever panicked while holding it leaves a tier that may have lost something, as any tier may.
fn locked<T>(tier: &Mutex<T>) -> MutexGuard<'_, T> {
    tier.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool's memory, a block at a time.
pub trait BlockBytes {
    /// Bytes of one block.
    fn block_bytes(&self) -> usize;
    /// Copies a block's bytes to the end of `bytes`.
    ///
    /// # Errors
    /// If the memory cannot be read, as that of a device that has failed. What is in `bytes` then is no block's.
    fn copy_out(&self, block: BlockId, bytes: &mut Vec<u8>) -> Result<()>;
    /// Overwrites a block.
    ///
    /// # Errors
    /// If `bytes` is not as long as a block, or the memory cannot be written.
    fn copy_in(&mut self, block: BlockId, bytes: &[u8]) -> Result<()>;
}

/// The memory of a pool that is not the processor's own, such as a GPU's. The tables are here, the keys and values there;
/// whoever runs passes over them knows how they lie in a block.
pub trait BlockMemory: BlockBytes + Send {
    /// Makes block `to` what block `from` is.
    ///
    /// # Errors
    /// If the device fails.
    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<()>;
    /// Copies one slot, keys and values of all layers, to another: each is a block and a place in it.
    ///
    /// # Errors
    /// If the device fails.
    fn copy_slot(&mut self, from: (BlockId, usize), to: (BlockId, usize)) -> Result<()>;
}
