//! Bytes that change, files that end early, writes that stop half-way.

use super::{HEADER, SLOT_HEADER, content, get, key, open, options};
use paged_cache::offload::{FileTier, Tier};
use std::fs;
use std::path::Path;

const BLOCK: usize = 24;
const SLOT: usize = SLOT_HEADER + BLOCK;
/// Slot 2 is empty; the block of slot 3 leaves some of its room unused.
const EMPTY: u64 = 2;
const LENGTHS: [usize; 4] = [BLOCK, BLOCK, BLOCK, BLOCK - 5];

/// A file with a block in each slot but one, and its bytes.
fn write(path: &Path) -> Vec<u8> {
    let mut tier = open(path, &options(BLOCK, 4));
    for number in 0..4 {
        tier.put(key(number), &content(number, LENGTHS[number as usize])).unwrap();
    }
    tier.remove(key(EMPTY)).unwrap();
    drop(tier);
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len(), HEADER + 4 * SLOT);
    bytes
}

/// Which blocks are there. One that is there has the right bytes.
fn kept(tier: &mut FileTier) -> [bool; 4] {
    let kept = [0, 1, 2, 3].map(|number| {
        let found = get(tier, key(number));
        let expected = content(number, LENGTHS[number as usize]);
        assert!(found.as_ref().is_none_or(|found| *found == expected), "wrong bytes");
        found.is_some()
    });
    tier.check_integrity().unwrap();
    kept
}

#[test]
fn any_byte_may_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let whole = write(&path);
    for place in 0..whole.len() {
        for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
            let mut bytes = whole.clone();
            bytes[place] ^= flip;
            fs::write(&path, &bytes).unwrap();
            let opened = FileTier::open(&path, &options(BLOCK, 4));
            if place < HEADER {
                let said = opened.unwrap_err().to_string();
                let reasons = ["begins with", "has format version", "has a damaged header"];
                assert!(reasons.iter().any(|reason| said.contains(reason)), "{said}");
                assert_eq!(fs::read(&path).unwrap(), bytes, "a refused file was changed");
                continue;
            }
            let (slot, within) = ((place - HEADER) / SLOT, (place - HEADER) % SLOT);
            let mut tier = opened.unwrap();
            let unused = within >= SLOT_HEADER + LENGTHS[slot];
            // What an empty slot has after its checksum is never looked at.
            let harmless = unused || slot == EMPTY as usize && within >= 32;
            assert_eq!(tier.damaged(), usize::from(!harmless), "byte {place}");
            let expected =
                [0, 1, 2, 3].map(|number| number != EMPTY as usize && (harmless || number != slot));
            assert_eq!(kept(&mut tier), expected, "byte {place}");
        }
    }
}

#[test]
fn a_file_may_end_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let whole = write(&path);
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let mut tier = open(&path, &options(BLOCK, 4));
        let slots = length.saturating_sub(HEADER);
        let is_whole = |slot: usize| slots >= slot * SLOT + SLOT_HEADER + LENGTHS[slot];
        let expected = [0, 1, 2, 3].map(|slot| slot != EMPTY as usize && is_whole(slot));
        let torn = (0..4).any(|slot| {
            let begun = slots > slot * SLOT;
            // Of an empty slot, what counts is that there is a checksum, and that it is zero.
            let intact = slot == EMPTY as usize && slots >= slot * SLOT + 32;
            begun && !intact && !is_whole(slot)
        });
        assert_eq!(tier.damaged(), usize::from(torn), "{length} bytes");
        assert_eq!(kept(&mut tier), expected, "{length} bytes");
        // And it is a file to work with: the torn slot and the empty one are used again.
        tier.put(key(8), &content(8, BLOCK)).unwrap();
        tier.put(key(9), &content(9, BLOCK)).unwrap();
        drop(tier);
        let mut tier = open(&path, &options(BLOCK, 4));
        assert_eq!(get(&mut tier, key(8)).unwrap(), content(8, BLOCK), "{length} bytes");
        assert_eq!(get(&mut tier, key(9)).unwrap(), content(9, BLOCK), "{length} bytes");
        assert_eq!(tier.damaged(), 0, "{length} bytes");
    }
}

#[test]
fn a_torn_write_leaves_the_old_the_new_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let before = write(&path);
    let reopened = options(BLOCK, 4);
    // Fills the empty slot, then takes slot 0 from the block that was used longest ago.
    let mut tier = open(&path, &reopened);
    tier.put(key(8), &content(8, BLOCK)).unwrap();
    let filled = fs::read(&path).unwrap();
    tier.put(key(9), &content(9, BLOCK)).unwrap();
    drop(tier);
    let after = fs::read(&path).unwrap();
    for (old, new, slot, old_number, new_number) in
        [(&before, &filled, EMPTY, EMPTY, 8), (&filled, &after, 0, 0, 9)]
    {
        let start = HEADER + slot as usize * SLOT;
        assert_eq!(old[..start], new[..start], "one write, one slot");
        assert_eq!(old[start + SLOT..], new[start + SLOT..], "one write, one slot");
        for cut in 0..=SLOT {
            let place = start + cut;
            let first_part = [&new[..place], &old[place..]].concat();
            let second_part = [&old[..place], &new[place..]].concat();
            let mut zeros = old.clone();
            zeros[start..place].fill(0);
            for torn in [first_part, second_part, zeros] {
                fs::write(&path, &torn).unwrap();
                let mut tier = open(&path, &reopened);
                let others = kept(&mut tier);
                for number in [1, 3] {
                    assert!(others[number], "block {number} was not being written");
                }
                let expected_new = (torn == *new).then(|| content(new_number, BLOCK));
                assert_eq!(get(&mut tier, key(new_number)), expected_new, "{cut} bytes");
                let was_there = old_number != EMPTY && torn == *old;
                let expected_old = was_there.then(|| content(old_number, BLOCK));
                assert_eq!(get(&mut tier, key(old_number)), expected_old, "{cut} bytes");
            }
        }
    }
}

#[test]
fn damage_under_an_open_tier_is_found_when_the_block_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    let whole = write(&path);
    let mut tier = open(&path, &options(BLOCK, 4));
    let mut bytes = whole.clone();
    bytes[HEADER + SLOT + SLOT_HEADER] ^= 1; // slot 1
    fs::write(&path, &bytes).unwrap();
    assert!(tier.contains(key(1)), "it has not been read yet");
    assert_eq!(kept(&mut tier), [true, false, false, true]);
    assert_eq!((tier.damaged(), tier.len(), tier.contains(key(1))), (1, 2, false));
    // Another's block, whole, where ours should be.
    bytes.copy_within(HEADER + 3 * SLOT..HEADER + 4 * SLOT, HEADER);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(kept(&mut tier), [false, false, false, true]);
    assert_eq!(tier.damaged(), 2);
    // Nothing left at all.
    fs::write(&path, b"").unwrap();
    assert_eq!(kept(&mut tier), [false; 4]);
    assert_eq!((tier.damaged(), tier.len()), (3, 0));
    tier.put(key(1), &content(1, BLOCK)).unwrap();
    assert_eq!(get(&mut tier, key(1)).unwrap(), content(1, BLOCK));
}
