//! Tiers keep what they are given or lose it, and never hand out anything else: whatever is done to them,
//! to their file, or to their process.

mod aside;
mod damage;
mod foreign;
mod killed;
mod stateful;

use paged_cache::offload::{FileOptions, FileTier, HostTier, Key, Tier};
use std::path::Path;

/// Bytes of the file's header, and of a slot before its block: the format that `file.rs` describes.
const HEADER: usize = 88;
const SLOT_HEADER: usize = 80;

fn key(number: u64) -> Key {
    Key(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// Bytes that belong to one name only.
fn content(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Options of a file with so many slots.
fn options(block_bytes: usize, slots: usize) -> FileOptions {
    let budget = (HEADER + slots * (SLOT_HEADER + block_bytes)) as u64;
    FileOptions { fingerprint: [7; 32], block_bytes, budget }
}

fn open(path: &Path, options: &FileOptions) -> FileTier {
    let tier = FileTier::open(path, options).unwrap();
    tier.check_integrity().unwrap();
    tier
}

fn get(tier: &mut dyn Tier, key: Key) -> Option<Vec<u8>> {
    // Whatever was in the buffer must not be taken for an answer.
    let mut bytes = b"something else".to_vec();
    let found = tier.get(key, &mut bytes).unwrap();
    assert!(found || bytes.is_empty(), "nothing was found, and yet there are bytes");
    found.then_some(bytes)
}

#[test]
fn memory_lets_go_of_what_was_used_longest_ago() {
    let mut tier = HostTier::new(10);
    tier.put(key(1), b"aaaa").unwrap();
    tier.put(key(2), b"bbbb").unwrap();
    assert_eq!(get(&mut tier, key(1)).unwrap(), b"aaaa");
    tier.put(key(3), b"ccc").unwrap();
    assert!(tier.contains(key(1)) && !tier.contains(key(2)) && tier.contains(key(3)));
    assert_eq!((tier.len(), tier.bytes()), (2, 7));
    // Asking whether something is there is not using it.
    assert!(tier.contains(key(1)));
    tier.put(key(4), b"dddd").unwrap();
    assert!(!tier.contains(key(1)) && tier.contains(key(3)));
    assert!(tier.remove(key(3)).unwrap() && !tier.remove(key(3)).unwrap());
    assert_eq!(get(&mut tier, key(3)), None);
    tier.check_integrity().unwrap();
}

#[test]
fn a_block_too_large_for_the_tier_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = HostTier::new(4);
    let mut file = open(&folder.path().join("blocks"), &options(4, 2));
    for tier in [&mut memory as &mut dyn Tier, &mut file] {
        tier.put(key(1), b"aaaa").unwrap();
        for bytes in [&b"aaaaa"[..], b""] {
            let said = tier.put(key(1), bytes).unwrap_err().to_string();
            let start = format!("bytes of a block is {}, expected 1 to 4, ", bytes.len());
            assert!(said.starts_with(&start), "{said}");
        }
        assert_eq!(get(tier, key(1)).unwrap(), b"aaaa");
    }
}

#[test]
fn blocks_survive_the_process_that_wrote_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let options = options(100, 3);
    let mut tier = open(&path, &options);
    for number in 0..4 {
        tier.put(key(number), &content(number, 40 + number as usize)).unwrap();
    }
    assert!(tier.remove(key(2)).unwrap());
    drop(tier);
    let mut tier = open(&path, &options);
    assert_eq!((tier.len(), tier.capacity(), tier.damaged()), (2, 3, 0));
    for number in 0..4 {
        // 0 had to make room, 2 was removed.
        let expected = [1, 3].contains(&number).then(|| content(number, 40 + number as usize));
        assert_eq!(get(&mut tier, key(number)), expected, "block {number}");
    }
    // What was written first goes first, though it was read last.
    drop(tier);
    let mut tier = open(&path, &options);
    tier.put(key(5), &content(5, 100)).unwrap();
    tier.put(key(6), &content(6, 100)).unwrap();
    let kept = [1, 3, 5, 6].map(|number| tier.contains(key(number)));
    assert_eq!(kept, [false, true, true, true]);
}

#[test]
fn a_smaller_budget_keeps_what_it_has_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let mut tier = open(&path, &options(10, 5));
    (0..5).for_each(|number| tier.put(key(number), &content(number, 10)).unwrap());
    drop(tier);
    let smaller = options(10, 2);
    let mut tier = open(&path, &smaller);
    assert_eq!((tier.len(), tier.damaged()), (2, 0));
    (0..5).for_each(|number| {
        let expected = (number < 2).then(|| content(number, 10));
        assert_eq!(get(&mut tier, key(number)), expected);
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), smaller.budget);
}
