//! What chapter 6 of the book says, made to come true: the answers of its quiz, the trace that its stepper
//! replays.

mod model;
#[path = "../../examples/trace_tree.rs"]
mod trace_tree;

use paged_cache::offload::Key;
use paged_cache::{BlockId, Blocks};
use prefix_radix::workload::{replay, shared_system};
use prefix_radix::{
    BlockHash, Chain, HashedBlocks, Lease, Pinned, Policy, PrefixCache, RadixTree, Salt,
};

const SIZE: usize = 16;

fn tree() -> RadixTree {
    RadixTree::new(SIZE, Chain::new(b"a model")).unwrap()
}

fn hashed() -> HashedBlocks {
    HashedBlocks::new(SIZE, Chain::new(b"a model"), Policy::LeafFirst).unwrap()
}

fn text(length: u32) -> Vec<u32> {
    (0..length).collect()
}

/// A request whose text goes through the model and is kept, and that is over then.
fn read(cache: &mut dyn PrefixCache, salt: Salt, tokens: &[u32], blocks: &mut Blocks) {
    let table: Vec<BlockId> =
        (0..tokens.len().div_ceil(SIZE)).map(|_| blocks.take().unwrap()).collect();
    cache.keep(salt, tokens, &table, blocks);
    for block in table {
        blocks.release(block);
    }
}

/// Tokens of a prompt that a cache finds, which knows one text.
fn found(cache: &mut dyn PrefixCache, known: &[u32], prompt: &[u32]) -> usize {
    let mut blocks = Blocks::new(64);
    read(cache, Salt::NONE, known, &mut blocks);
    let prefix = cache.find(Salt::NONE, prompt, &mut blocks);
    let tokens = prefix.tokens;
    prefix.release(&mut blocks);
    cache.check_integrity(&blocks).unwrap();
    blocks.check_integrity(cache.held()).unwrap();
    tokens
}

#[test]
fn a_prompt_of_64_for_the_second_time() {
    for cache in [&mut tree() as &mut dyn PrefixCache, &mut hashed()] {
        let found = found(cache, &text(64), &text(64));
        assert_eq!(found, 63);
    }
}

#[test]
fn a_hit_inside_a_block() {
    let prompt = [&text(39)[..], &[1_000; 20]].concat();
    let [tree, hashed] =
        [found(&mut tree(), &text(64), &prompt), found(&mut hashed(), &text(64), &prompt)];
    assert_eq!((tree, hashed), (39, 32));
}

#[test]
fn what_a_request_shares_stays() {
    for cache in [&mut tree() as &mut dyn PrefixCache, &mut hashed()] {
        let mut blocks = Blocks::new(16);
        read(cache, Salt::NONE, &text(96), &mut blocks);
        let prompt = [&text(64)[..], &[1_000; 5]].concat();
        let shared = cache.find(Salt::NONE, &prompt, &mut blocks);
        assert_eq!(shared.blocks.len(), 4);
        let freed = cache.evict(usize::MAX, &mut blocks, &mut |_| ());
        assert_eq!(freed, 2);
        shared.release(&mut blocks);
        assert_eq!(cache.evict(usize::MAX, &mut blocks, &mut |_| ()), 4);
        assert_eq!(blocks.used(), 0);
    }
}

/// The same name for every block.
struct OneName;

impl BlockHash for OneName {
    fn root(&self, _: Salt) -> Key {
        Key([0; 32])
    }

    fn next(&self, _: Key, _: &[u32]) -> Key {
        Key([7; 32])
    }
}

#[test]
fn one_name_for_all() {
    let cache = || HashedBlocks::new(SIZE, OneName, Policy::LeafFirst).unwrap();
    let other: Vec<u32> = text(16).iter().map(|token| token + 1_000).collect();
    let prompt = [&other[..], &[5]].concat();
    let found = self::found(&mut cache(), &text(16), &prompt);
    assert_eq!(found, 0);
    // What was kept under that name is still found by those whose it is.
    let own = [&text(16)[..], &[5]].concat();
    assert_eq!(self::found(&mut cache(), &text(16), &own), 16);
}

#[test]
fn another_first_token() {
    for cache in [&mut tree() as &mut dyn PrefixCache, &mut hashed()] {
        let mut prompt = text(64);
        prompt[0] = 1_000;
        let shared = found(cache, &text(64), &prompt);
        assert_eq!(shared, 0);
    }
}

#[test]
fn two_tenants_with_one_prompt() {
    for cache in [&mut tree() as &mut dyn PrefixCache, &mut hashed()] {
        let mut blocks = Blocks::new(300);
        for tenant in [b"ada", b"bob"] {
            read(cache, Salt::of(tenant), &text(2_000), &mut blocks);
        }
        assert_eq!(cache.held().len(), 250);
    }
}

#[test]
fn a_pin_holds() {
    let mut blocks = Blocks::new(4);
    let mut cache = Pinned::new(tree());
    read(&mut cache, Salt::NONE, &text(64), &mut blocks);
    let handle = cache.pin(Salt::NONE, &text(64), Lease::default(), &mut blocks).unwrap();
    let while_pinned = cache.evict(1, &mut blocks, &mut |_| ());
    cache.release(handle, &mut blocks);
    let after = cache.evict(1, &mut blocks, &mut |_| ());
    assert_eq!((while_pinned, after), (0, 1));
}

#[test]
fn two_requests_with_2000_tokens_in_common() {
    let requests = shared_system(1, 2, 2_000, 200);
    let report = replay(&requests, &mut hashed(), &mut Blocks::new(1_000), 1).unwrap();
    let saved = 100.0 * report.saved();
    assert_eq!((10.0 * saved).round() / 10.0, 45.5);
}

/// `cargo run --release -p prefix-radix --example trace_tree > 06-prefix-radix/traces/tree.json`
#[test]
fn the_stepper_replays_what_the_tree_does() {
    assert_eq!(include_str!("../../traces/tree.json"), trace_tree::trace().unwrap());
}

/// A prompt whose beginning is taken from the tree, up to each of many places, inside blocks too.
#[test]
fn a_hit_changes_no_bit() {
    let prompt = |same: usize| -> Vec<u32> {
        (0..110).map(|place| (place * place + usize::from(place >= same)) as u32 % 61).collect()
    };
    for same in [1, 15, 16, 17, 40, 64, 99] {
        let mut executor = model::executor();
        let first = executor.attention.open();
        model::run(&mut executor, first, 0, &prompt(110)[..100]);
        let table: Vec<BlockId> = executor.attention.tables(first).unwrap().held().collect();
        let mut tree = tree();
        let (blocks, _) = executor.attention.parts();
        tree.keep(Salt::NONE, &prompt(110)[..100], &table, blocks);
        let hit = tree.find(Salt::NONE, &prompt(same), blocks);
        // The tree knows six whole blocks of the first text.
        assert_eq!(hit.tokens, same.min(96));
        let second = executor.attention.adopt(&hit.blocks, hit.tokens).unwrap();
        let rest = &prompt(same)[hit.tokens..];
        let shared = model::run(&mut executor, second, hit.tokens, rest);
        executor.attention.check_integrity(tree.held()).unwrap();
        let alone = model::alone(&prompt(same));
        assert_eq!(shared, alone, "{same} tokens in common");
    }
}
