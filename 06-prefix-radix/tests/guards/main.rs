//! What goes wrong with prefix caches in real systems, and does not here.
//!
//! | File | Holds |
//! |---|---|
//! | `collisions.rs` | hashes that give two texts one name |
//! | `shape.rs` | where a tree branches, and what it finds there |

mod collisions;
mod shape;

use paged_cache::{BlockId, Blocks};
use prefix_radix::{Chain, HashedBlocks, Nothing, Policy, Prefix, PrefixCache, RadixTree, Salt};

const SIZE: usize = 4;

fn chain() -> Chain {
    Chain::new(b"a model")
}

/// Every cache that remembers something.
fn caches() -> Vec<(&'static str, Box<dyn PrefixCache>)> {
    vec![
        ("radix", Box::new(RadixTree::new(SIZE, chain()).unwrap())),
        ("leaf first", Box::new(HashedBlocks::new(SIZE, chain(), Policy::LeafFirst).unwrap())),
        ("LRU", Box::new(HashedBlocks::new(SIZE, chain(), Policy::Lru).unwrap())),
    ]
}

/// A block for every `SIZE` tokens, the last perhaps not full.
fn table(tokens: &[u32], blocks: &mut Blocks) -> Vec<BlockId> {
    (0..tokens.len().div_ceil(SIZE)).map(|_| blocks.take().unwrap()).collect()
}

fn release(table: &[BlockId], blocks: &mut Blocks) {
    for &block in table {
        blocks.release(block);
    }
}

/// A request that reads a text and is over; returns the blocks it was in.
fn read(
    cache: &mut dyn PrefixCache,
    salt: Salt,
    tokens: &[u32],
    blocks: &mut Blocks,
) -> Vec<BlockId> {
    let table = table(tokens, blocks);
    cache.keep(salt, tokens, &table, blocks);
    release(&table, blocks);
    table
}

fn text(from: u32, length: u32) -> Vec<u32> {
    (from..from + length).collect()
}

#[test]
fn the_same_salt_hits_and_another_never() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let (ada, bob) = (Salt::of(b"ada's key"), Salt::of(b"bob's key"));
        let tokens = text(0, 9);
        read(&mut *cache, ada, &tokens, &mut blocks);
        for (salt, found) in [(ada, 8), (bob, 0), (Salt::NONE, 0)] {
            let prefix = cache.find(salt, &tokens, &mut blocks);
            assert_eq!(prefix.tokens, found, "{name}");
            prefix.release(&mut blocks);
        }
        // Each has blocks of his own, and losing one's leaves the other's.
        read(&mut *cache, bob, &tokens, &mut blocks);
        assert_eq!(cache.held().len(), 4, "{name}");
        cache.check_integrity(&blocks).unwrap();
    }
}

#[test]
fn a_whole_prompt_is_never_found_whole() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        read(&mut *cache, Salt::NONE, &text(0, 12), &mut blocks);
        for length in 0..=12 {
            let prompt = text(0, length);
            let prefix = cache.find(Salt::NONE, &prompt, &mut blocks);
            let most = prompt.len().saturating_sub(1);
            assert!(prefix.tokens <= most, "{name}: a query of no rows at {length}");
            assert_eq!(prefix.blocks.len(), prefix.tokens.div_ceil(SIZE), "{name}");
            // At a block's end every cache knows all but the last token.
            if length % 4 == 0 || name == "radix" {
                assert_eq!(prefix.tokens, most, "{name} at {length}");
            }
            prefix.release(&mut blocks);
        }
        // Not held to the limit, the same cache would give it all.
        assert_eq!(cache.longest(Salt::NONE, &text(0, 12), 12, &mut blocks).tokens, 12, "{name}");
    }
}

#[test]
fn a_block_that_is_still_being_filled_is_not_shared() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let tokens = text(0, 11);
        let table = table(&tokens, &mut blocks);
        assert_eq!(cache.keep(Salt::NONE, &tokens[..3], &table, &mut blocks), 0, "{name}");
        assert_eq!(cache.keep(Salt::NONE, &tokens[..10], &table, &mut blocks), 2, "{name}");
        let references = table.iter().map(|&block| blocks.references(block));
        assert!(references.eq([2, 2, 1]), "{name}");
        assert_eq!(cache.find(Salt::NONE, &text(0, 20), &mut blocks).tokens, 8, "{name}");
        // More tokens than blocks: what has no block is not kept.
        assert_eq!(cache.keep(Salt::NONE, &text(0, 20), &table[..2], &mut blocks), 0, "{name}");
    }
}

#[test]
fn what_is_known_can_be_asked_without_taking_or_using_it() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let table = read(&mut *cache, Salt::NONE, &text(0, 10), &mut blocks);
        let before = cache.statistics();
        // Whole blocks, however far the text goes on or where it parts.
        let other = [&text(0, 5)[..], &text(70, 5)].concat();
        for (tokens, known) in [(text(0, 10), 2), (text(0, 8), 2), (text(0, 7), 1), (other, 1)] {
            assert_eq!(cache.known(Salt::NONE, &tokens), table[..known], "{name}");
        }
        assert_eq!(cache.known(Salt::of(b"ada"), &text(0, 10)), [], "{name}");
        assert_eq!(cache.statistics(), before, "{name}");
        blocks.check_integrity(cache.held()).unwrap();
    }
}

#[test]
fn a_live_prefix_is_not_evicted() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let (live, idle) = (text(0, 8), text(50, 8));
        read(&mut *cache, Salt::NONE, &live, &mut blocks);
        read(&mut *cache, Salt::NONE, &idle, &mut blocks);
        let prefix = cache.find(Salt::NONE, &text(0, 20), &mut blocks);
        assert_eq!(prefix.tokens, 8);
        let mut gone = Vec::new();
        let freed = cache.evict(usize::MAX, &mut blocks, &mut |evicted| gone.push(evicted.block));
        assert_eq!(freed, 2, "{name}");
        assert!(prefix.blocks.iter().all(|block| !gone.contains(block)), "{name}");
        blocks.check_integrity(cache.held().into_iter().chain(prefix.blocks.clone())).unwrap();
        prefix.release(&mut blocks);
        assert_eq!(cache.evict(usize::MAX, &mut blocks, &mut |_| ()), 2, "{name}");
        assert_eq!((blocks.used(), cache.held().len()), (0, 0), "{name}");
        cache.check_integrity(&blocks).unwrap();
    }
}

#[test]
fn of_two_that_read_the_same_each_keeps_his_blocks() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let tokens = text(0, 8);
        let (first, second) = (table(&tokens, &mut blocks), table(&tokens, &mut blocks));
        assert_eq!(cache.keep(Salt::NONE, &tokens, &first, &mut blocks), 2, "{name}");
        assert_eq!(cache.keep(Salt::NONE, &tokens, &second, &mut blocks), 0, "{name}");
        let held = || first.iter().chain(&second).copied();
        blocks.check_integrity(cache.held().into_iter().chain(held())).unwrap();
        assert!(second.iter().all(|&block| blocks.references(block) == 1), "{name}");
        release(&second, &mut blocks);
        release(&first, &mut blocks);
        assert_eq!((cache.held().len(), blocks.used()), (2, 2), "{name}");
    }
}

#[test]
fn the_end_of_a_text_goes_before_its_beginning() {
    let left = |cache: &mut dyn PrefixCache| {
        let mut blocks = Blocks::new(16);
        read(cache, Salt::NONE, &text(0, 12), &mut blocks);
        assert_eq!(cache.evict(1, &mut blocks, &mut |_| ()), 1);
        cache.find(Salt::NONE, &text(0, 20), &mut blocks).tokens
    };
    let left: Vec<usize> = caches().iter_mut().map(|(_, cache)| left(&mut **cache)).collect();
    // Without leaves first, the first block goes, and the others cannot be reached.
    assert_eq!(left, [8, 8, 0]);
}

#[test]
fn a_block_size_that_cannot_be_is_refused() {
    for size in [0, 3, 512, usize::MAX] {
        let errors = [
            RadixTree::new(size, chain()).err().unwrap(),
            HashedBlocks::new(size, chain(), Policy::Lru).err().unwrap(),
        ];
        for error in errors {
            let expected =
                format!("block size in tokens is {size}, expected a power of two from 1 to 256");
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn damage_is_noticed() {
    for (name, mut cache) in caches() {
        let mut blocks = Blocks::new(16);
        let tokens = text(0, 8);
        let table = read(&mut *cache, Salt::NONE, &tokens, &mut blocks);
        // Somebody let go of a reference that was the cache's.
        blocks.release(table[1]);
        let error = cache.check_integrity(&blocks).unwrap_err().to_string();
        let expected = "block 1 of the prefix cache is free, expected held by the cache at least";
        assert_eq!(error, expected, "{name}");
        // The block is taken for another text, and kept under that too.
        let again = blocks.take().unwrap();
        assert_eq!(again, table[1]);
        cache.keep(Salt::NONE, &text(50, 4), &[again], &mut blocks);
        let error = cache.check_integrity(&blocks).unwrap_err().to_string();
        assert!(error.contains("known under two names"), "{name}: {error}");
    }
}

#[test]
fn nothing_is_what_it_says() {
    let mut cache = Nothing::new(SIZE);
    let mut blocks = Blocks::new(16);
    read(&mut cache, Salt::NONE, &text(0, 8), &mut blocks);
    assert_eq!(blocks.used(), 0);
    assert_eq!(cache.find(Salt::NONE, &text(0, 8), &mut blocks), Prefix::default());
    assert_eq!((cache.statistics().queries, cache.statistics().hit_rate()), (1, 0.0));
}
