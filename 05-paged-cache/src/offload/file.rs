//! Blocks in a file that outlives the process.
//!
//! The file is a header and then slots of one size, each for one block. There is no index in it that could
//! disagree with the blocks: whoever opens the file reads every slot and keeps what its checksum says is
//! whole. That makes every moment a good moment to be killed: at worst the slot that was being
//! written is lost, and what was in it is computed again. Where a thread writes, so is what waits for it.
//!
//! Two things keep one model's bytes from another: the header has a fingerprint that the caller gives, and nothing
//! is read of a file with another one; and a block is checked each time that it is read, against a checksum of its
//! name and its bytes. The checksum guards against accidents, not against somebody who may write to the file.
//!
//! A file with another fingerprint, or that is none of ours at all, [`FileTier::open`] refuses and leaves as it is.
//! [`FileTier::open_or_empty`] empties it.
//!
//! Nothing is flushed to the disk. After a kill the operating system still has what was written; after a
//! power cut some blocks may be gone, and the checksums find out which.
//!
//! | File | Holds |
//! |---|---|
//! | `header.rs` | what the file is, and whose |
//! | `slot.rs` | one block with its name and checksum |
//! | `disk.rs` | the file itself, locked |
//! | `behind.rs` | a thread that writes what nobody has to wait for |
//! | `aside.rs` | a thread that reads what somebody will want, and does not wait for |

mod aside;
mod behind;
mod disk;
mod header;
mod slot;

use super::directory::Directory;
use super::{Backlog, Key, Reading, Ring, Tier};
use aside::{Aside, Source, Wanted};
use behind::{Behind, Content, Job};
use disk::Disk;
use naive_decode::{Error, Result};
use slot::{Block, Slot};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What a file of blocks is for.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// A digest of everything that decides what a block's bytes mean: weights, layers and heads, element
    /// type, tokens to a block. Nothing is read of files with another one.
    pub fingerprint: [u8; 32],
    /// The most bytes that a block has.
    pub block_bytes: usize,
    /// The most bytes that the file may have.
    pub budget: u64,
}

/// Keeps blocks in one file, up to a budget of bytes, and lets go of the least recently used.
///
/// One process at a time has the file: it is locked until the tier is dropped or the process ends.
#[derive(Debug)]
pub struct FileTier {
    /// None where whoever puts a block waits until it is written. It ends before the file is closed.
    behind: Option<Behind>,
    /// None where whoever wants a block waits until it is read. It ends before the file is closed, too.
    aside: Option<Aside>,
    disk: Arc<Disk>,
    block_bytes: usize,
    /// The most slots that the budget allows.
    limit: usize,
    directory: Directory,
    /// How many blocks have been given to the file, in all its life.
    written: u64,
    damaged: usize,
    /// As long as one slot.
    buffer: Vec<u8>,
}

impl FileTier {
    // ANCHOR: open
    /// Opens the file, or makes it, and takes stock of the blocks in it: what was written last counts as
    /// used last. Where the file is larger than the budget, the blocks past it are let go of.
    ///
    /// # Errors
    /// If the budget has no room for one block, if the file cannot be opened, if another process has it,
    /// or if it is not a file of these blocks. It is then as it was.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let (mut tier, foreign) = Self::over(path.as_ref(), options)?;
        if let Some(problem) = foreign {
            let advice = "it is left as it is; name another file, or delete this one";
            return Err(tier.disk.refused(format!("{problem}; {advice}")));
        }
        tier.take_stock()?;
        Ok(tier)
    }
    // ANCHOR_END: open

    /// As [`FileTier::open`], but a file that is not of these blocks is emptied and begun anew: for caches that
    /// have the name to themselves. Gives what was wrong with such a file, too.
    ///
    /// # Errors
    /// As [`FileTier::open`], except for what is in the file.
    pub fn open_or_empty(
        path: impl AsRef<Path>,
        options: &FileOptions,
    ) -> Result<(Self, Option<Error>)> {
        let (mut tier, foreign) = Self::over(path.as_ref(), options)?;
        let problem = foreign.map(|problem| tier.disk.refused(problem));
        if problem.is_some() {
            tier.disk.truncate(0)?;
            tier.disk.write_at(0, &header::encode(options))?;
        }
        tier.take_stock()?;
        Ok((tier, problem))
    }

    /// This tier with a thread of its own that writes: [`Tier::put`] waits for the disk only where `most` bytes are not
    /// written yet, and what could not be written [`Tier::settle`] tells of. Dropping the tier waits until all is written;
    /// a process that is killed before loses what was not.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn writing_behind(mut self, most: usize) -> Result<Self> {
        let (disk, mut buffer) = (self.disk.clone(), vec![0; self.buffer.len()]);
        let write = move |job: &Job| match &job.content {
            Some(Content { key, sequence, bytes }) => {
                slot::encode(&Block { key: *key, sequence: *sequence, bytes }, &mut buffer);
                disk.write_at(job.offset, &buffer)
            }
            None => disk.write_at(job.offset, &slot::EMPTY),
        };
        let behind = Behind::start(most, write).map_err(|error| {
            self.disk.refused(format!("there is no thread to write it: {error}"))
        })?;
        self.behind = Some(behind);
        Ok(self)
    }

    /// This tier with a thread of its own that reads: see [`Tier::read_aside`]. When a reading is at its end it calls `ring`.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn reading_aside(mut self, ring: Ring) -> Result<Self> {
        let disk = self.disk.clone();
        let read = move |offset, buffer: &mut [u8]| disk.read_at(offset, buffer);
        let aside = Aside::start(self.buffer.len(), ring, read).map_err(|error| {
            self.disk.refused(format!("there is no thread to read it: {error}"))
        })?;
        self.aside = Some(aside);
        Ok(self)
    }

    /// The file, opened and locked, and what says that it is not ours, if it is not.
    fn over(path: &Path, options: &FileOptions) -> Result<(Self, Option<String>)> {
        let slot_bytes = slot::HEADER.saturating_add(options.block_bytes);
        let least = (header::BYTES as u64).saturating_add(slot_bytes as u64);
        if options.block_bytes == 0 {
            return Err(Error::invalid("bytes of a block", 0, "at least 1"));
        }
        if options.budget < least {
            let expected = format!("at least {least} bytes, the header and one block");
            return Err(Error::invalid("budget of the file", options.budget, expected));
        }
        let limit = (options.budget - header::BYTES as u64) / slot_bytes as u64;
        let mut tier = FileTier {
            behind: None,
            aside: None,
            disk: Arc::new(Disk::open(path)?),
            block_bytes: options.block_bytes,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            directory: Directory::new(),
            written: 0,
            damaged: 0,
            buffer: vec![0; slot_bytes],
        };
        let foreign = tier.check_header(options)?;
        Ok((tier, foreign))
    }

    /// Finds out whether the file is ours, and writes the header if there is nothing yet.
    fn check_header(&mut self, options: &FileOptions) -> Result<Option<String>> {
        let mut first = [0; header::BYTES];
        let length = self.disk.read_at(0, &mut first)?;
        match header::inspect(&first[..length], options) {
            header::Found::Ours => Ok(None),
            header::Found::Unfinished => {
                self.disk.write_at(0, &header::encode(options)).map(|()| None)
            }
            header::Found::Foreign(problem) => Ok(Some(problem)),
        }
    }

    /// Reads every slot and keeps what is whole. A slot that cannot be read costs its block, not the file.
    fn take_stock(&mut self) -> Result<()> {
        let length = self.disk.length()?;
        if length > self.offset(self.limit) {
            self.disk.truncate(self.offset(self.limit))?;
        }
        let mut found = Vec::new();
        let mut count = 0;
        while count < self.limit && self.offset(count) < length {
            match self.read_slot(count) {
                Ok(Slot::Whole(block)) => found.push((block.sequence, count, block.key)),
                Ok(Slot::Empty) => {}
                Ok(Slot::Damaged) | Err(_) => self.damaged += 1,
            }
            count += 1;
        }
        found.sort_unstable_by_key(|&(sequence, slot, _)| (sequence, slot));
        self.written = found.last().map_or(0, |&(sequence, ..)| sequence.saturating_add(1));
        let named = found.into_iter().map(|(_, slot, key)| (slot, key));
        self.directory = Directory::restore(count, named);
        Ok(())
    }

    /// How many blocks are kept.
    pub fn len(&self) -> usize {
        self.directory.len()
    }

    /// Whether no block is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks the budget has room for.
    pub fn capacity(&self) -> usize {
        self.limit
    }

    /// How many slots were found damaged and given up, since the file was opened.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// Whether names, slots and order of use agree, and the budget is kept.
    ///
    /// # Errors
    /// Names the first thing that does not.
    pub fn check_integrity(&self) -> Result<()> {
        self.directory.check_integrity()?;
        let length = self.disk.length()?;
        if self.len() > self.limit || length > self.offset(self.limit) {
            let expected = format!("at most {}: {} slots", self.offset(self.limit), self.limit);
            return Err(Error::invalid("bytes of the file", length, expected));
        }
        Ok(())
    }

    /// Where a slot begins.
    fn offset(&self, slot: usize) -> u64 {
        (slot as u64).saturating_mul(self.buffer.len() as u64).saturating_add(header::BYTES as u64)
    }

    /// What a slot is to hold, if that is a block of this name and not in the file yet.
    fn unwritten(&self, slot: usize, key: Key) -> Option<Arc<Job>> {
        let job = self.behind.as_ref()?.unwritten(self.offset(slot))?;
        job.content.as_ref().is_some_and(|content| content.key == key).then_some(job)
    }

    fn read_slot(&mut self, slot: usize) -> Result<Slot<'_>> {
        let length = self.disk.read_at(self.offset(slot), &mut self.buffer)?;
        Ok(slot::decode(&self.buffer[..length]))
    }
}

impl Tier for FileTier {
    // ANCHOR: put
    /// # Errors
    /// If there are no bytes, or more than a slot has room for: nothing is then changed. If they cannot be
    /// written: the block is then not there.
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() || bytes.len() > self.block_bytes {
            let expected = format!("1 to {}, what a slot of the file holds", self.block_bytes);
            return Err(Error::invalid("bytes of a block", bytes.len(), expected));
        }
        let slot = self.directory.find(key).unwrap_or_else(|| {
            if self.directory.len() == self.limit {
                let oldest = self.directory.oldest().expect("a budget for at least one block");
                self.directory.remove(oldest);
            }
            self.directory.insert(key)
        });
        self.directory.touch(slot);
        let (offset, sequence) = (self.offset(slot), self.written);
        self.written = self.written.saturating_add(1);
        if let Some(behind) = &self.behind {
            let content = Content { key, sequence, bytes: bytes.to_vec() };
            behind.add(Job { offset, content: Some(content) });
            return Ok(());
        }
        slot::encode(&Block { key, sequence, bytes }, &mut self.buffer);
        let written = self.disk.write_at(offset, &self.buffer);
        if written.is_err() {
            self.directory.remove(key);
        }
        written
    }
    // ANCHOR_END: put

    // ANCHOR: get
    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        let Some(slot) = self.directory.find(key) else { return Ok(false) };
        self.directory.touch(slot);
        if let Some(job) = self.unwritten(slot, key) {
            bytes.extend(job.content.iter().flat_map(|content| &content.bytes));
            return Ok(true);
        }
        match self.read_slot(slot)? {
            Slot::Whole(block) if block.key == key => {
                bytes.extend_from_slice(block.bytes);
                Ok(true)
            }
            _ => {
                self.directory.remove(key);
                self.damaged += 1;
                Ok(false)
            }
        }
    }
    // ANCHOR_END: get

    fn reads_aside(&self) -> bool {
        self.aside.is_some()
    }

    // ANCHOR: aside
    fn read_aside(&mut self, keys: &[Key]) -> Option<Reading> {
        let source = |&key: &Key| {
            let slot = self.directory.find(key)?;
            let source = match self.unwritten(slot, key) {
                Some(job) => Source::Unwritten(job),
                None => Source::At(self.offset(slot)),
            };
            Some(Wanted { key, source })
        };
        let wanted = keys.iter().map_while(source).collect();
        Some(self.aside.as_ref()?.begin(wanted))
    }
    // ANCHOR_END: aside

    fn waits_since(&self) -> Option<Instant> {
        self.aside.as_ref()?.waits_since()
    }

    /// A block whose slot has something else by now was let go of meanwhile, and is no loss.
    fn take_read(&mut self, reading: Reading) -> (HashMap<Key, Vec<u8>>, Option<Error>) {
        let progress = reading.finish();
        let lost = progress.lost.filter(|&(key, _)| self.directory.remove(key).is_some());
        let problem = lost.map(|(_, why)| {
            why.unwrap_or_else(|| {
                self.damaged += 1;
                self.disk.refused("a block in it is damaged; it is computed again")
            })
        });
        (progress.blocks, problem)
    }

    fn contains(&self, key: Key) -> bool {
        self.directory.find(key).is_some()
    }

    fn touch(&mut self, key: Key) {
        if let Some(slot) = self.directory.find(key) {
            self.directory.touch(slot);
        }
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        let Some(slot) = self.directory.remove(key) else { return Ok(false) };
        // Without its checksum a slot is empty for whoever opens the file next.
        let offset = self.offset(slot);
        match &self.behind {
            Some(behind) => behind.add(Job { offset, content: None }),
            None => self.disk.write_at(offset, &slot::EMPTY)?,
        }
        Ok(true)
    }

    fn settle(&mut self) -> Vec<Error> {
        let failed: Vec<_> = self.behind.iter().flat_map(Behind::take_failed).collect();
        for key in failed.iter().filter_map(|failed| failed.key) {
            self.directory.remove(key);
        }
        failed.into_iter().map(|failed| failed.error).collect()
    }

    fn backlog(&self) -> Backlog {
        self.behind.as_ref().map_or(Backlog::Nothing, |behind| behind.backlog(self.block_bytes))
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn most_blocks(&self) -> Option<usize> {
        Some(self.limit)
    }
}
