//! Any sequence of operations on each cache, against a list that is searched from end to end.
//!
//! Each test makes at least 15,000 steps: 256 runs of 60 operations.

mod naive;
mod operation;
mod world;

use naive::{Kind, Naive};
use operation::{Operation, operations};
use prefix_radix::{Chain, HashedBlocks, Nothing, Policy, PrefixCache, RadixTree};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use world::World;

const RUNS: u32 = 256;

/// Runs the operations for blocks of 1, 2 or 4 tokens. `useful`: over all runs there must be hits, evictions
/// and opened pins, many of each.
fn check<P: PrefixCache>(kind: Kind, useful: bool, cache: impl Fn(usize, Chain) -> P) {
    let config =
        ProptestConfig { cases: RUNS, failure_persistence: None, ..ProptestConfig::default() };
    let happened = Cell::new([0; 3]);
    let run = |(size, operations): (usize, Vec<Operation>)| {
        let chain = Chain::new(b"a model");
        let naive = Naive { kind, size, known: Vec::new(), now: 0, chain };
        let mut world = World::new(cache(size, chain), naive, 8 + 40 / size);
        for operation in &operations {
            world.apply(operation);
        }
        let [found, evicted, opened] = happened.get();
        happened.set([found + world.found, evicted + world.evicted, opened + world.opened]);
        Ok(())
    };
    let size = prop_oneof![Just(1), Just(2), Just(4)];
    if let Err(failure) = TestRunner::new(config).run(&(size, operations()), run) {
        panic!("{failure}");
    }
    println!("{kind:?}: tokens found, blocks evicted, pins opened: {:?}", happened.get());
    let [found, evicted, opened] = happened.get();
    assert_eq!(found > 3_000 && evicted > 1_000 && opened > 50, useful);
}

#[test]
fn a_radix_tree_is_what_a_list_says() {
    check(Kind::Radix, true, |size, chain| RadixTree::new(size, chain).unwrap());
}

#[test]
fn hashed_blocks_are_what_a_list_says() {
    check(Kind::HashedLeafFirst, true, |size, chain| {
        HashedBlocks::new(size, chain, Policy::LeafFirst).unwrap()
    });
}

#[test]
fn hashed_blocks_without_leaves_first_are_what_a_list_says() {
    check(Kind::HashedLru, true, |size, chain| {
        HashedBlocks::new(size, chain, Policy::Lru).unwrap()
    });
}

#[test]
fn no_cache_is_what_an_empty_list_says() {
    check(Kind::Nothing, false, |size, _| Nothing::new(size));
}
