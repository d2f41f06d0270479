//! One slot: a block, its name, and a checksum that says whether both are whole.
//!
//! | Bytes | |
//! |---|---|
//! | 0..32 | BLAKE3 of all that follows, up to the end of the block; zeros if the slot is empty |
//! | 32..64 | the block's name |
//! | 64..72 | how many blocks had been written before it |
//! | 72..80 | length of the block in bytes |
//! | 80.. | the block, then zeros up to the size of a slot |
//!
//! A write may stop anywhere, and pages may reach the disk in any order. Whatever mix of an old slot and a
//! new one that leaves behind, its checksum is that of neither. So a slot holds what it held, or what it
//! was to hold, or nothing.

use super::super::Key;

/// Bytes before the block.
pub(super) const HEADER: usize = 80;
const CHECKSUM: usize = 32;
/// The checksum of an empty slot.
pub(super) const EMPTY: [u8; CHECKSUM] = [0; CHECKSUM];

/// A slot that was read.
#[derive(Debug, PartialEq)]
pub(super) enum Slot<'a> {
    /// A block, whole.
    Whole(Block<'a>),
    /// Nothing, on purpose.
    Empty,
    /// Something that is not what was written.
    Damaged,
}

/// What a slot holds.
#[derive(Debug, PartialEq)]
pub(super) struct Block<'a> {
    pub(super) key: Key,
    /// How many blocks had been written to the file before.
    pub(super) sequence: u64,
    pub(super) bytes: &'a [u8],
}

/// Fills a slot, all of it.
///
/// # Panics
/// If the block is longer than the slot has room for.
pub(super) fn encode(block: &Block, slot: &mut [u8]) {
    let end = HEADER + block.bytes.len();
    slot[32..64].copy_from_slice(&block.key.0);
    slot[64..72].copy_from_slice(&block.sequence.to_le_bytes());
    slot[72..80].copy_from_slice(&(block.bytes.len() as u64).to_le_bytes());
    slot[HEADER..end].copy_from_slice(block.bytes);
    slot[end..].fill(0);
    let checksum = blake3::hash(&slot[CHECKSUM..end]);
    slot[..CHECKSUM].copy_from_slice(checksum.as_bytes());
}

/// Reads a slot: all of it, or as much as the file still has.
pub(super) fn decode(slot: &[u8]) -> Slot<'_> {
    whole(slot).map_or_else(
        || if slot.starts_with(&EMPTY) { Slot::Empty } else { Slot::Damaged },
        Slot::Whole,
    )
}

fn whole(slot: &[u8]) -> Option<Block<'_>> {
    let (checksum, content) = slot.split_first_chunk::<CHECKSUM>()?;
    let (key, rest) = content.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let bytes = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let summed = &content[..HEADER - CHECKSUM + bytes.len()];
    let matches = blake3::hash(summed).as_bytes() == checksum;
    matches.then(|| Block { key: Key(*key), sequence: u64::from_le_bytes(*sequence), bytes })
}
