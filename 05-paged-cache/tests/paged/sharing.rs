//! Forks, copies on write, parking, in cases small enough to follow.

use crate::world::{Shape, World};
use kv_cache::KvCache;
use naive_decode::Element;
use paged_cache::BlockId;
use paged_cache::offload::HostTier;

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
    rollback: 0,
    isa: 0,
    threads: 2,
};

fn table(world: &World, which: usize) -> Vec<BlockId> {
    world.cache.tables(world.listed[which].sequence).unwrap().held().collect()
}

/// Two that begin alike are in one tier, in which what both have is once.
#[test]
fn what_one_has_no_more_use_for_stays_as_far_as_another_has() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    world.pass(&[(0, 8)], None);
    world.fork(0);
    world.pass(&[(0, 8), (1, 4)], None);
    let mut tier = HostTier::new(1 << 20);
    let [first, second] = [0, 1].map(|which| {
        let sequence = world.listed[which].sequence;
        world.cache.park(sequence, &mut tier).unwrap()
    });
    assert_eq!((first.blocks(), second.blocks(), tier.len()), (4, 3, 5));
    first.forget([&second], &mut tier).unwrap();
    assert_eq!(tier.len(), 3);
    let back = world.cache.unpark(&second, &mut tier).unwrap();
    assert_eq!(world.cache.len(back), 12);
    second.forget([], &mut tier).unwrap();
    assert!(tier.is_empty());
    tier.check_integrity().unwrap();
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
    world.truncate(1, 5);
    world.pass(&[(1, 2)], None);
    // Attention of both is compared with the lists, whatever was written where.
    world.pass(&[(0, 1), (1, 1)], None);
    world.check_integrity();
}

#[test]
fn slots_that_move_up_are_not_written_to_a_shared_block() {
    let mut world = World::new(SHAPE, 3);
    world.open();
    world.pass(&[(0, 8)], None);
    world.fork(0);
    let before = table(&world, 1);
    // What stays where it is writes nothing.
    world.keep(0, 2, &[2, 3, 4, 5, 6, 7]);
    assert_eq!((table(&world, 0), world.cache.blocks().free()), (before.clone(), 1));
    // These move to slots 2 and 3, in the first block.
    world.keep(0, 2, &[5, 6]);
    assert_eq!(world.listed[0].len(), 4);
    assert_ne!(table(&world, 0)[0], before[0]);
    assert_eq!(table(&world, 1), before);
    world.check_integrity();
    world.close(0);
    // Attention of the fork is compared with the lists.
    world.pass(&[(0, 1)], None);
}

#[test]
fn slots_that_move_up_need_room_for_a_copy() {
    let mut world = World::new(SHAPE, 2);
    world.open();
    world.pass(&[(0, 8)], None);
    world.fork(0);
    let before = table(&world, 0);
    let said = world.cache.keep(0, 2, &[5, 6]).unwrap_err().to_string();
    assert_eq!(said, "the pool of blocks holds 8 tokens; 12 were asked for");
    assert_eq!((table(&world, 0), table(&world, 1)), (before.clone(), before));
    world.check_integrity();
    // The last one holds its blocks alone.
    world.close(1);
    world.keep(0, 2, &[5, 6]);
    world.pass(&[(0, 3)], None);
    assert_eq!(world.listed[0].len(), 7);
}

#[test]
fn slots_that_move_up_behind_a_window_are_let_go_of() {
    let windowed = Shape { windows: [Some(2), Some(2), None], rollback: 12, ..SHAPE };
    let mut world = World::new(windowed, 64);
    world.open();
    world.pass(&[(0, 40)], None);
    // The windowed layers have given back slots 0 to 23, and those kept go to slots 20 to 33.
    world.keep(0, 20, &(22..36).collect::<Vec<_>>());
    assert_eq!(world.listed[0].len(), 34);
    world.pass(&[(0, 5)], None);
    world.check_integrity();
}

#[test]
fn a_sequence_that_was_parked_can_be_rolled_back_as_far_as_before() {
    let windowed = Shape { windows: [Some(8), Some(8), None], rollback: 8, ..SHAPE };
    let mut world = World::new(windowed, 64);
    world.open();
    world.pass(&[(0, 40)], None);
    let held = |world: &World| {
        let tables = world.cache.tables(world.listed[0].sequence).unwrap();
        tables.groups.iter().map(|table| table.held().count()).collect::<Vec<_>>()
    };
    // The row after 32 tokens sees slots 25 to 32.
    assert_eq!(held(&world), [4, 10]);
    world.park(0, None);
    assert_eq!(held(&world), [4, 10]);
    world.truncate(0, 32);
    assert_eq!(world.listed[0].len(), 32);
    world.pass(&[(0, 5)], None);
}

#[test]
fn a_tier_that_is_a_block_short_keeps_the_beginning() {
    let mut world = World::new(SHAPE, 8);
    world.open();
    world.pass(&[(0, 20)], None);
    let mut tier = HostTier::new(4 * world.cache.layout().block_bytes());
    let parked = world.cache.park(world.listed[0].sequence, &mut tier).unwrap();
    let back = world.cache.unpark(&parked, &mut tier).unwrap();
    assert_eq!(world.cache.len(back), 16);
    let listed = &mut world.listed[0];
    listed.sequence = back;
    listed.truncate(16);
    // What is left goes on as if it had never been longer.
    world.pass(&[(0, 5)], None);
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
