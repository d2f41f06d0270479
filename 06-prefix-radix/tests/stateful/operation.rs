//! What can happen, in any order.

use prefix_radix::Lease;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// A request comes in: it looks its prompt up and takes blocks for the rest.
    Start(u8, Vec<u32>),
    /// The cache is shown what a request has written so far.
    Keep(usize),
    /// A request writes more tokens.
    Grow(usize, Vec<u32>),
    /// A second request goes on from where one is, sharing all its blocks.
    Fork(usize),
    /// A request takes back its last tokens.
    Truncate(usize, usize),
    /// A request lets go of everything; mostly the cache is shown it first.
    Finish(usize, bool),
    Evict(usize),
    /// Pins the beginning of what a request has, if the cache knows it.
    Pin(usize, usize, Lease),
    /// Opens a pin, under its own salt or another.
    Open(bool, usize),
    Release(usize),
    Expire,
}

/// Two tokens, one of them rare, so that texts often agree, part and meet again.
fn text(longest: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![3 => Just(0u32), 1 => Just(1)], 1..=longest)
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let lease = (prop::option::weighted(0.3, 0..3u64), prop::option::weighted(0.3, 0..60u64));
    let lease = lease.prop_map(|(uses, until)| Lease { uses, until });
    let operation = prop_oneof![
        12 => (0..2u8, text(14)).prop_map(|(salt, text)| Operation::Start(salt, text)),
        8 => any::<usize>().prop_map(Operation::Keep),
        4 => (any::<usize>(), text(6)).prop_map(|(i, text)| Operation::Grow(i, text)),
        1 => any::<usize>().prop_map(Operation::Fork),
        1 => (any::<usize>(), 0..9usize).prop_map(|(i, n)| Operation::Truncate(i, n)),
        7 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(i, keep)| Operation::Finish(i, keep)),
        2 => (0..4usize).prop_map(Operation::Evict),
        3 => (any::<usize>(), 0..9usize, lease).prop_map(|(i, n, lease)| Operation::Pin(i, n, lease)),
        3 => (prop::bool::weighted(0.8), any::<usize>()).prop_map(|(own, i)| Operation::Open(own, i)),
        1 => any::<usize>().prop_map(Operation::Release),
        1 => Just(Operation::Expire),
    ];
    prop::collection::vec(operation, 60)
}
