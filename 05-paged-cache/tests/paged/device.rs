//! Blocks in a device's memory, which can fail.

use crate::world::Shelf;
use kv_cache::KvCache;
use naive_decode::{Attention, Element, Error, KvSize, Pass, Result, Span, Want};
use paged_cache::offload::{BlockBytes, BlockMemory};
use paged_cache::{BlockId, PagedCache};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tokens of a block, each of four bytes.
const TOKENS: usize = 4;
const BYTES: usize = 4 * TOKENS;

struct Device {
    blocks: Vec<[u8; BYTES]>,
    /// Copies that it makes before it breaks.
    copies: Arc<AtomicUsize>,
}

impl Device {
    fn check(&self) -> Result<()> {
        let one_less = |copies: usize| copies.checked_sub(1);
        let made = self.copies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        made.map(drop).map_err(|_| Error::file("a device", "is gone"))
    }
}

impl BlockBytes for Device {
    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn copy_out(&self, block: BlockId, bytes: &mut Vec<u8>) -> Result<()> {
        self.check()?;
        bytes.extend(self.blocks[block.index()]);
        Ok(())
    }

    fn copy_in(&mut self, block: BlockId, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.blocks[block.index()].copy_from_slice(bytes);
        Ok(())
    }
}

impl BlockMemory for Device {
    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.check()?;
        self.blocks[to.index()] = self.blocks[from.index()];
        Ok(())
    }

    fn copy_slot(&mut self, from: (BlockId, usize), to: (BlockId, usize)) -> Result<()> {
        self.check()?;
        let slot = self.blocks[from.0.index()][4 * from.1..][..4].to_vec();
        self.blocks[to.0.index()][4 * to.1..][..4].copy_from_slice(&slot);
        Ok(())
    }
}

/// A sequence of ten tokens in a pool of five blocks, the bytes of each token its number; and what breaks the device.
fn ten_tokens() -> (PagedCache, usize, Arc<AtomicUsize>) {
    let copies = Arc::new(AtomicUsize::new(usize::MAX));
    let device = Device { blocks: vec![[0; BYTES]; 5], copies: copies.clone() };
    let sizes = [KvSize { heads: 1, key_dim: 1, value_dim: 0 }];
    let kept = (TOKENS, Element::F32.into());
    let mut cache = PagedCache::elsewhere(Box::new(device), &sizes, kept, 5, 64).unwrap();
    let sequence = cache.open();
    let pass = Pass::one(Span::new(sequence, 0, &[0; 10], Want::Last));
    cache.begin(&pass).unwrap();
    cache.commit(&pass);
    let table: Vec<BlockId> = cache.tables(sequence).unwrap().held().collect();
    for (place, block) in table.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..BYTES).map(|byte| (place * TOKENS + byte / 4) as u8).collect();
        cache.parts().1.copy_in(block, &bytes).unwrap();
    }
    (cache, sequence, copies)
}

/// What is in a sequence's slots.
fn slots(cache: &mut PagedCache, sequence: usize) -> Vec<u8> {
    let table: Vec<BlockId> = cache.tables(sequence).unwrap().held().collect();
    let mut bytes = Vec::new();
    for block in table {
        cache.parts().1.copy_out(block, &mut bytes).unwrap();
    }
    bytes.into_iter().step_by(4).take(cache.len(sequence)).collect()
}

#[test]
fn more_blocks_than_can_be_numbered_are_refused() {
    let sizes = [KvSize { heads: 1, key_dim: 1, value_dim: 0 }];
    for (count, expected) in [(0, "at least 1"), (1 << 32, "at most 4294967295")] {
        let device = Device { blocks: Vec::new(), copies: Arc::default() };
        let kept = (TOKENS, Element::F32.into());
        let made = PagedCache::elsewhere(Box::new(device), &sizes, kept, count, 64);
        let said = made.err().unwrap().to_string();
        let words = format!("blocks of the pool is {count}, expected {expected}");
        assert!(said.starts_with(&words), "{said}");
    }
}

#[test]
fn what_cannot_be_brought_back_keeps_no_block() {
    let (mut cache, sequence, copies) = ten_tokens();
    let mut tier = Shelf::default();
    let parked = cache.park(sequence, &mut tier).unwrap();
    copies.store(0, Ordering::Relaxed);
    let said = cache.unpark(&parked, &mut tier).unwrap_err().to_string();
    assert!(said.contains("a device"), "{said}");
    cache.check_integrity([]).unwrap();
    assert_eq!((cache.blocks().used(), cache.open_sequences()), (0, 0));
    copies.store(usize::MAX, Ordering::Relaxed);
    let back = cache.unpark(&parked, &mut tier).unwrap();
    assert_eq!(slots(&mut cache, back), (0..10).collect::<Vec<u8>>());
}

#[test]
fn slots_that_move_up_leave_a_fork_what_it_has() {
    let (mut cache, sequence, copies) = ten_tokens();
    let fork = cache.fork(sequence).unwrap();
    let all: Vec<u8> = (0..10).collect();
    // They move to slots 3 and 4, in the first two blocks.
    copies.store(0, Ordering::Relaxed);
    assert!(cache.keep(sequence, 3, &[6, 9]).is_err());
    copies.store(usize::MAX, Ordering::Relaxed);
    cache.check_integrity([]).unwrap();
    assert_eq!(cache.blocks().used(), 3);
    assert_eq!((slots(&mut cache, sequence), slots(&mut cache, fork)), (all.clone(), all.clone()));
    cache.keep(sequence, 3, &[6, 9]).unwrap();
    cache.check_integrity([]).unwrap();
    assert_eq!((slots(&mut cache, sequence), slots(&mut cache, fork)), (vec![0, 1, 2, 6, 9], all));
}

#[test]
fn slots_of_which_only_some_have_moved_up_are_rolled_back() {
    let (mut cache, sequence, copies) = ten_tokens();
    copies.store(1, Ordering::Relaxed);
    assert!(cache.keep(sequence, 3, &[6, 9]).is_err());
    copies.store(usize::MAX, Ordering::Relaxed);
    cache.check_integrity([]).unwrap();
    assert_eq!(slots(&mut cache, sequence), [0, 1, 2]);
}
