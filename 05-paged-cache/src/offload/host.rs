//! Blocks in ordinary memory.

use super::directory::Directory;
use super::{Key, Tier};
use naive_decode::{Error, Result};

// ANCHOR: host
/// Keeps blocks in the host's memory, up to a budget of bytes, and lets go of the least recently used.
///
/// Keeping, finding and letting go take as long as copying the bytes does, however many blocks there are.
/// The budget counts the bytes of blocks; their names and places come on top, about 100 bytes for each.
#[derive(Debug)]
pub struct HostTier {
    directory: Directory,
    /// What is in each slot; nothing in a free one.
    blocks: Vec<Box<[u8]>>,
    bytes: usize,
    budget: usize,
}
// ANCHOR_END: host

impl HostTier {
    /// Empty, with room for this many bytes.
    pub fn new(budget: usize) -> Self {
        HostTier { directory: Directory::new(), blocks: Vec::new(), bytes: 0, budget }
    }

    /// How many blocks are kept.
    pub fn len(&self) -> usize {
        self.directory.len()
    }

    /// Whether no block is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the blocks that are kept; never more than the budget.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets a block and frees its bytes.
    fn drop_block(&mut self, key: Key) -> bool {
        let Some(slot) = self.directory.remove(key) else { return false };
        self.bytes -= std::mem::take(&mut self.blocks[slot]).len();
        true
    }

    /// Whether names, slots, order of use and bytes agree.
    ///
    /// # Errors
    /// Names the first thing that does not.
    pub fn check_integrity(&self) -> Result<()> {
        self.directory.check_integrity()?;
        let held: usize = self.blocks.iter().map(|block| block.len()).sum();
        if held != self.bytes || held > self.budget {
            let expected = format!("{}, and within the budget of {}", self.bytes, self.budget);
            return Err(Error::invalid("bytes kept in memory", held, expected));
        }
        let blocks = self.blocks.iter().filter(|block| !block.is_empty()).count();
        if blocks != self.len() {
            let expected = format!("{}, as many as there are names", self.len());
            return Err(Error::invalid("blocks kept in memory", blocks, expected));
        }
        Ok(())
    }
}

impl Tier for HostTier {
    // ANCHOR: put
    /// # Errors
    /// If there are no bytes, or more than the budget: nothing is then changed.
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() || bytes.len() > self.budget {
            let expected = format!("1 to {}, the budget of the tier in memory", self.budget);
            return Err(Error::invalid("bytes of a block", bytes.len(), expected));
        }
        self.drop_block(key);
        while self.bytes + bytes.len() > self.budget {
            let oldest = self.directory.oldest().expect("what is kept has a name");
            self.drop_block(oldest);
        }
        let slot = self.directory.insert(key);
        if slot == self.blocks.len() {
            self.blocks.push(Box::default());
        }
        self.blocks[slot] = bytes.into();
        self.bytes += bytes.len();
        Ok(())
    }
    // ANCHOR_END: put

    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        let Some(slot) = self.directory.find(key) else { return Ok(false) };
        self.directory.touch(slot);
        bytes.extend_from_slice(&self.blocks[slot]);
        Ok(true)
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
        Ok(self.drop_block(key))
    }
}
