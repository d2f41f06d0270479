//! What is read aside is what would have been waited for.

use super::{HEADER, SLOT_HEADER, content, get, key, open, options};
use paged_cache::offload::{FileTier, Key, Reading, Tier};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

const BLOCK: usize = 24;
const SLOT: usize = SLOT_HEADER + BLOCK;

/// A file with room for eight blocks, of which six are there, and what rings when a reading is over.
fn six(path: &Path) -> (FileTier, Receiver<()>) {
    let mut tier = open(path, &options(BLOCK, 8));
    for number in 0..6 {
        tier.put(key(number), &content(number, BLOCK)).unwrap();
    }
    let (to, rings) = channel();
    let tier = tier.reading_aside(Arc::new(move || _ = to.send(()))).unwrap();
    (tier, rings)
}

fn keys(numbers: &[u64]) -> Vec<Key> {
    numbers.iter().map(|&number| key(number)).collect()
}

fn blocks(numbers: &[u64]) -> HashMap<Key, Vec<u8>> {
    numbers.iter().map(|&number| (key(number), content(number, BLOCK))).collect()
}

/// Reads to the end: what has come, and what is said.
fn read(
    tier: &mut FileTier,
    rings: &Receiver<()>,
    numbers: &[u64],
) -> (HashMap<Key, Vec<u8>>, Option<String>) {
    let reading = tier.read_aside(&keys(numbers)).unwrap();
    rings.recv().unwrap();
    assert!(reading.is_over());
    let (blocks, problem) = tier.take_read(reading);
    tier.check_integrity().unwrap();
    (blocks, problem.map(|problem| problem.to_string()))
}

#[test]
fn blocks_come_up_to_the_first_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let (mut tier, rings) = six(&path);
    assert!(tier.reads_aside());
    assert_eq!(read(&mut tier, &rings, &[3, 1, 5]), (blocks(&[3, 1, 5]), None));
    assert_eq!(read(&mut tier, &rings, &[2, 9, 4]), (blocks(&[2]), None));
    assert_eq!(read(&mut tier, &rings, &[]), (blocks(&[]), None));
    // Whoever waits gets the same.
    assert_eq!(get(&mut tier, key(3)).unwrap(), content(3, BLOCK));
    // What the thread that writes has yet to write comes, too.
    let mut tier = tier.writing_behind(BLOCK).unwrap();
    for number in 6..8 {
        tier.put(key(number), &content(number, BLOCK)).unwrap();
        assert_eq!(read(&mut tier, &rings, &[number, 0]), (blocks(&[number, 0]), None));
    }
    drop(tier);
    assert!(!open(&path, &options(BLOCK, 8)).reads_aside(), "it is asked for");
}

#[test]
fn a_damaged_block_ends_it_and_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let (mut tier, rings) = six(&path);
    // The lock is the process's own.
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER + 2 * SLOT + SLOT_HEADER] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (found, said) = read(&mut tier, &rings, &[1, 2, 3]);
    assert_eq!(found, blocks(&[1]));
    let said = said.unwrap();
    assert!(said.contains("blocks") && said.contains("a block in it is damaged"), "{said}");
    assert_eq!((tier.damaged(), tier.contains(key(2)), tier.contains(key(3))), (1, false, true));
    // One that is let go of while it is read is neither.
    let reading = tier.read_aside(&keys(&[0, 4])).unwrap();
    rings.recv().unwrap();
    tier.remove(key(0)).unwrap();
    tier.put(key(7), &content(7, BLOCK)).unwrap();
    assert_eq!(tier.take_read(reading).1.map(|problem| problem.to_string()), None);
    assert_eq!(tier.damaged(), 1);
    assert_eq!(read(&mut tier, &rings, &[7, 4]), (blocks(&[7, 4]), None));
}

#[test]
fn one_that_nobody_waits_for_any_more_rings_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (mut tier, rings) = six(&folder.path().join("blocks"));
    let readings: Vec<Reading> = (0..3).map(|i| tier.read_aside(&keys(&[i])).unwrap()).collect();
    drop(readings);
    (0..3).for_each(|_| rings.recv().unwrap());
    drop(tier);
    assert!(rings.recv().is_err(), "the thread is gone");
}
