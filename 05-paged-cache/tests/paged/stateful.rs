//! Whatever is done to sequences, attention reads what was written, and no block is lost.

use crate::world::{Shape, World};
use naive_decode::Element;
use proptest::prelude::*;

/// Something done to one of the sequences there are, counted round.
#[derive(Debug, Clone)]
enum Op {
    Open,
    Fork(usize),
    Close(usize),
    Truncate(usize, usize),
    /// Of the last slots, as many as said, those whose bits are set are kept.
    Keep(usize, usize, u64),
    Park(usize, Option<usize>),
    /// Rows for one or two sequences.
    Pass([(usize, usize); 2], Option<u64>),
}

fn op() -> impl Strategy<Value = Op> {
    let which = any::<usize>;
    let rows = || prop_oneof![1 => Just(0usize), 4 => 1usize..4, 3 => 4usize..30, 1 => 30usize..70];
    let tree = prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)];
    prop_oneof![
        1 => Just(Op::Open),
        2 => which().prop_map(Op::Fork),
        1 => which().prop_map(Op::Close),
        2 => (which(), 0usize..60).prop_map(|(which, back)| Op::Truncate(which, back)),
        2 => (which(), 0usize..60, any::<u64>())
            .prop_map(|(which, last, bits)| Op::Keep(which, last, bits)),
        1 => (which(), prop::option::of(any::<usize>())).prop_map(|(which, lost)| Op::Park(which, lost)),
        9 => (which(), rows(), which(), rows(), tree)
            .prop_map(|(a, m, b, n, tree)| Op::Pass([(a, m), (b, n)], tree)),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let window = || prop_oneof![2 => Just(None), 2 => (1usize..40).prop_map(Some)];
    let element = prop_oneof![Just(Element::F32), Just(Element::Bf16), Just(Element::F16)];
    let heads = (1usize..=2, 1usize..=3, 1usize..=20, 1usize..=20, prop::bool::weighted(0.25));
    let rollback = prop_oneof![Just(0usize), 1usize..70];
    let sizes = (0u32..=8, rollback, 0usize..4, 1usize..=3);
    (heads, [window(), window(), window()], element, sizes).prop_map(
        |((kv_heads, group, a, b, absorbed), windows, element, (block, rollback, isa, threads))| {
            Shape {
                kv_heads,
                group,
                key_dim: if absorbed { a.max(b) } else { a },
                value_dim: if absorbed { a.min(b) } else { b },
                absorbed,
                windows,
                element,
                block: 1 << block,
                rollback,
                isa,
                threads,
            }
        },
    )
}

fn apply(world: &mut World, op: &Op) {
    let count = world.listed.len();
    let index = |which: usize| which % count.max(1);
    match *op {
        Op::Open if count < 6 => drop(world.open()),
        _ if count == 0 => {}
        Op::Fork(which) if count < 6 => world.fork(index(which)),
        Op::Open | Op::Fork(_) => {}
        Op::Close(which) => world.close(index(which)),
        Op::Truncate(which, back) => {
            let which = index(which);
            world.truncate(which, world.listed[which].len().saturating_sub(back));
        }
        Op::Keep(which, last, bits) => {
            let which = index(which);
            let length = world.listed[which].len();
            let start = length.saturating_sub(last);
            let is_kept = |slot: &usize| bits >> (slot - start) & 1 == 1;
            world.keep(which, start, &(start..length).filter(is_kept).collect::<Vec<_>>());
        }
        Op::Park(which, lost) => world.park(index(which), lost),
        Op::Pass([(a, rows), (b, more)], tree) => {
            let mut spans = vec![(index(a), rows)];
            if index(b) != index(a) {
                spans.push((index(b), more));
            }
            spans.retain(|&(_, rows)| rows > 0);
            world.pass(&spans, tree);
        }
    }
    world.check_integrity();
}

proptest! {
    // About twenty steps to a case: more than ten thousand in all.
    #![proptest_config(ProptestConfig { cases: 520, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_lists(shape in shape(), tight in any::<bool>(), ops in prop::collection::vec(op(), 8..32)) {
        let tokens = if tight { 150 } else { 3000 };
        let mut world = World::new(shape, (tokens / shape.block).max(2));
        world.open();
        for op in &ops {
            apply(&mut world, op);
        }
        while !world.listed.is_empty() {
            world.close(0);
        }
        world.check_integrity();
        prop_assert_eq!(world.cache.blocks().used(), 0);
    }
}
