//! Forks, copies on write, parking, in cases small enough to follow.

use crate::world::{Shape, World};
use naive_decode::Element;
use paged_cache::BlockId;

/// Blocks of four tokens, two heads of keys and values.
const SHAPE: Shape = Shape {
    kv_heads: 2,
    group: 2,
    key_dim: 8,
    value_dim: 8,
    absorbed: false,
    windows: [None; 3],
    element: Element::F32,
    block: 4,
    isa: 0,
};

fn table(world: &World, which: usize) -> Vec<BlockId> {
    world.cache.tables(world.listed[which].sequence).unwrap().held().collect()
}

#[test]
fn a_sequence_takes_a_block_when_it_needs_one() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    let used = |world: &World| world.cache.blocks().used();
    assert_eq!(used(&world), 0);
    for (rows, expected) in [(1, 1), (3, 1), (1, 2), (4, 3)] {
        world.pass(&[(0, rows)], None);
        assert_eq!(used(&world), expected);
    }
}

#[test]
fn forks_share_until_one_of_them_writes() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    world.pass(&[(0, 6)], None);
    world.fork(0);
    world.fork(0);
    assert_eq!(world.cache.blocks().used(), 2);
    let before = table(&world, 0);
    // The second block has room for two more; whoever writes there first gets a copy, and so does the next.
    world.pass(&[(1, 1), (2, 1)], None);
    assert_eq!(world.cache.blocks().used(), 4);
    assert_eq!(table(&world, 0), before);
    for fork in [1, 2] {
        assert_eq!(table(&world, fork)[0], before[0]);
        assert_ne!(table(&world, fork)[1], before[1]);
    }
    // The last one holds the block alone, and writes where it is.
    world.pass(&[(0, 1)], None);
    assert_eq!(table(&world, 0), before);
    world.check_integrity();
}

#[test]
fn a_fork_at_the_end_of_a_block_copies_nothing() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    world.pass(&[(0, 8)], None);
    world.fork(0);
    world.pass(&[(1, 1)], None);
    assert_eq!(world.cache.blocks().used(), 3);
    assert_eq!(table(&world, 1)[..2], table(&world, 0)[..]);
}

#[test]
fn rolling_back_into_a_shared_block_does_not_write_to_it() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    world.pass(&[(0, 8)], None);
    world.fork(0);
    let length = 5;
    kv_cache::KvCache::truncate(&mut world.cache, world.listed[1].sequence, length).unwrap();
    world.listed[1].truncate(length);
    world.pass(&[(1, 2)], None);
    // Attention of both is compared with the lists, whatever was written where.
    world.pass(&[(0, 1), (1, 1)], None);
    world.check_integrity();
}

#[test]
fn blocks_behind_a_window_are_given_back() {
    let windowed = Shape { windows: [Some(6), Some(3), None], ..SHAPE };
    let mut world = World::new(windowed, 64);
    world.open();
    world.pass(&[(0, 21)], None);
    let tables = world.cache.tables(0).unwrap();
    // The row after 21 tokens sees slots 16 to 21: blocks 4 and 5 of the first group.
    assert_eq!(tables.groups.iter().map(|t| t.held().count()).collect::<Vec<_>>(), [2, 6]);
    for _ in 0..40 {
        world.pass(&[(0, 1)], None);
        world.check_integrity();
        assert!(world.cache.tables(0).unwrap().groups[0].held().count() <= 3);
    }
}

#[test]
fn what_a_tier_has_lost_is_not_brought_back() {
    for (windows, lost) in [([None; 3], 0..6), ([Some(6), Some(6), None], 0..6)] {
        for lost in lost {
            let mut world = World::new(Shape { windows, ..SHAPE }, 64);
            world.open();
            world.pass(&[(0, 22)], None);
            world.park(0, Some(lost));
            world.check_integrity();
            assert!(world.listed[0].len() < 22);
            // What is left goes on as if it had never been longer.
            world.pass(&[(0, 5)], None);
        }
    }
}
