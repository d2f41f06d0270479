//! Hashes that give two texts one name.

use crate::{SIZE, read, release, text};
use paged_cache::Blocks;
use paged_cache::offload::Key;
use prefix_radix::workload::{Pattern, replay};
use prefix_radix::{BlockHash, HashedBlocks, Policy, Prefix, PrefixCache, RadixTree, Salt};

/// A hash of very few names.
struct Weak(u8);

impl BlockHash for Weak {
    fn root(&self, _: Salt) -> Key {
        Key([0; 32])
    }

    fn next(&self, parent: Key, tokens: &[u32]) -> Key {
        let sum = tokens.iter().fold(u32::from(parent.0[0]), |sum, token| sum.wrapping_add(*token));
        let mut key = [0; 32];
        key[0] = (sum % u32::from(self.0)) as u8;
        Key(key)
    }
}

#[test]
fn a_hash_that_always_collides_never_answers_with_another_text() {
    let hash = Weak(1);
    let (mine, other) = (text(10, 8), text(50, 8));
    assert_eq!(
        hash.next(hash.root(Salt::NONE), &mine[..4]),
        hash.next(hash.root(Salt::NONE), &other[..4])
    );
    let mut cache = HashedBlocks::new(SIZE, hash, Policy::LeafFirst).unwrap();
    let mut blocks = Blocks::new(16);
    let table = read(&mut cache, Salt::NONE, &mine, &mut blocks);
    let mut find = |salt, text: &[u32]| {
        let prefix = cache.find(salt, text, &mut blocks);
        release(&prefix.blocks, &mut blocks);
        prefix
    };
    let none = Prefix::default();
    assert_eq!(
        find(Salt::NONE, &[&mine[..], &[1]].concat()).blocks,
        table[..1],
        "its own is found"
    );
    assert_eq!(find(Salt::NONE, &other), none, "other tokens");
    assert_eq!(find(Salt::of(b"ada"), &mine), none, "the same tokens under another salt");
    let shifted = [&other[..4], &mine].concat();
    assert_eq!(find(Salt::NONE, &shifted), none, "the same tokens after others");
    // The second one is refused the name, not given it.
    read(&mut cache, Salt::NONE, &other, &mut blocks);
    cache.check_integrity(&blocks).unwrap();
    let prefix = cache.find(Salt::NONE, &[&mine[..], &[1]].concat(), &mut blocks);
    assert_eq!(prefix.blocks, table[..1]);
}

#[test]
fn a_block_after_another_of_the_same_name_is_not_found() {
    // Two beginnings of one name, and the same second block after both.
    let hash = Weak(64);
    let (mine, other) = ([1, 2, 3, 4, 9, 9, 9, 9, 0], [4, 3, 2, 1, 9, 9, 9, 9, 0]);
    let root = hash.root(Salt::NONE);
    assert_eq!(hash.next(root, &mine[..4]), hash.next(root, &other[..4]));
    for policy in [Policy::LeafFirst, Policy::Lru] {
        let mut cache = HashedBlocks::new(SIZE, Weak(64), policy).unwrap();
        let mut blocks = Blocks::new(16);
        read(&mut cache, Salt::NONE, &mine, &mut blocks);
        if policy == Policy::Lru {
            // The first of mine goes; other takes its name; my second block must not follow it.
            assert_eq!(cache.evict(1, &mut blocks, &mut |_| ()), 1);
            read(&mut cache, Salt::NONE, &other[..4], &mut blocks);
            let prefix = cache.find(Salt::NONE, &other, &mut blocks);
            assert_eq!(prefix.tokens, 4);
        } else {
            assert_eq!(cache.find(Salt::NONE, &other, &mut blocks).tokens, 0);
        }
        cache.check_integrity(&blocks).unwrap();
    }
}

#[test]
fn real_patterns_over_a_weak_hash_never_get_another_text() {
    for names in [1, 3, 64, 255] {
        for policy in [Policy::LeafFirst, Policy::Lru] {
            let mut cache = HashedBlocks::new(16, Weak(names), policy).unwrap();
            let mut blocks = Blocks::new(1_200);
            replay(&Pattern::Chat.requests(1), &mut cache, &mut blocks, 3).unwrap();
            cache.check_integrity(&blocks).unwrap();
        }
        let mut tree = RadixTree::new(16, Weak(names)).unwrap();
        let report = replay(&Pattern::Chat.requests(1), &mut tree, &mut Blocks::new(1_200), 3);
        assert!(report.unwrap().found > 0);
    }
}
