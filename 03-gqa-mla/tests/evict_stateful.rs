//! Any sequence of operations on an evicting cache: entries are what a list of slots says, answers
//! hang on nothing else, and the cache's own integrity holds after each.

mod common;

use common::{VOCAB, small_model};
use gqa_mla::evict::{
    Budget, Evict, EvictingCache, HeavyHitters, Keyformer, Random, Sinks, SnapKv,
};
use kv_cache::{KvCache, KvShape};
use naive_decode::{Element, Model, Pass, Span, Want};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::LazyLock;

static MODEL: LazyLock<Model> = LazyLock::new(|| small_model(Element::Bf16));

const SEQUENCES: usize = 2;
const CAPACITY: usize = 40;
const BUDGET: usize = 9;
/// Layers times key-value heads.
const HEADS: [(usize, usize); 4] = [(0, 0), (0, 1), (1, 0), (1, 1)];

#[derive(Debug, Clone)]
enum Operation {
    /// New tokens for one sequence or both; whether logits are wanted.
    Feed(Vec<(usize, Vec<u32>, bool)>),
    Truncate(usize, usize),
    Reset(usize),
    Drop(usize, Range<usize>),
    /// A pass that does not begin where the sequence ends.
    FeedAt(usize, usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let sequence = 0..SEQUENCES;
    let spans = prop::collection::btree_map(
        sequence.clone(),
        (prop::collection::vec(0..VOCAB, 1..9), any::<bool>()),
        1..=SEQUENCES,
    );
    prop_oneof![
        8 => spans.prop_map(|spans| {
            Operation::Feed(spans.into_iter().map(|(s, (t, want))| (s, t, want)).collect())
        }),
        3 => (sequence.clone(), 0..CAPACITY + 2).prop_map(|(s, n)| Operation::Truncate(s, n)),
        1 => sequence.clone().prop_map(Operation::Reset),
        1 => (sequence.clone(), 0..CAPACITY, 0..6usize)
            .prop_map(|(s, start, n)| Operation::Drop(s, start..start + n)),
        1 => (sequence, 0..CAPACITY).prop_map(|(s, n)| Operation::FeedAt(s, n)),
    ]
}

fn slots<P: Evict>(cache: &EvictingCache<P>, sequence: usize) -> Vec<Vec<usize>> {
    HEADS.map(|(layer, head)| cache.slots(sequence, layer, head).to_vec()).to_vec()
}

/// Applies an operation and checks what it did to the slots of every head. `bounded`: no head ever
/// holds more than the budget.
fn apply<P: Evict>(cache: &mut EvictingCache<P>, operation: &Operation, bounded: bool) {
    let lengths: Vec<usize> = (0..SEQUENCES).map(|s| cache.len(s)).collect();
    let before: Vec<_> = (0..SEQUENCES).map(|s| slots(cache, s)).collect();
    match operation {
        Operation::Feed(chunks) => {
            let spans = chunks.iter().map(|(s, tokens, want)| {
                Span::new(*s, lengths[*s], tokens, if *want { Want::Last } else { Want::Nothing })
            });
            let pass = Pass { spans: spans.collect() };
            let fits = pass.spans.iter().all(|span| span.end() <= CAPACITY);
            assert_eq!(MODEL.forward(&pass, cache).is_ok(), fits);
            for span in pass.spans.iter().filter(|_| fits) {
                assert_eq!(cache.len(span.sequence), span.end());
                for (after, before) in
                    slots(cache, span.sequence).iter().zip(&before[span.sequence])
                {
                    let could = |slot: &usize| before.contains(slot) || *slot >= span.start;
                    assert!(after.iter().all(could), "entries from nowhere: {before:?} {after:?}");
                    let most = before.len() + span.rows();
                    assert!(after.len() >= most.min(BUDGET), "more dropped than need be");
                    assert!(!bounded || after.len() <= BUDGET);
                }
            }
        }
        Operation::Truncate(s, length) => {
            let done = cache.truncate(*s, *length).is_ok();
            assert!(done || *length > 0);
            assert!(!done || *length <= lengths[*s]);
            for (after, before) in slots(cache, *s).iter().zip(&before[*s]) {
                let left = before.iter().filter(|slot| !done || **slot < *length);
                assert!(left.eq(after), "truncated to {length}: {before:?} {after:?}");
            }
        }
        Operation::Reset(s) => {
            cache.reset(*s).unwrap();
            assert_eq!(cache.len(*s), 0);
            assert!(slots(cache, *s).iter().all(Vec::is_empty));
        }
        Operation::Drop(s, range) => {
            let held = range.end <= lengths[*s];
            assert_eq!(cache.drop_range(*s, range.clone()).is_ok(), held);
            for (after, before) in slots(cache, *s).iter().zip(&before[*s]) {
                assert!(before.iter().filter(|slot| !held || !range.contains(slot)).eq(after));
            }
        }
        Operation::FeedAt(s, start) => {
            let pass = Pass::one(Span::new(*s, *start, &[3], Want::Last));
            if *start != lengths[*s] {
                MODEL.forward(&pass, cache).unwrap_err();
                assert_eq!(slots(cache, *s), before[*s]);
            }
        }
    }
    cache.check_integrity().unwrap();
    if bounded {
        let most = KvShape::of(&MODEL).bytes(BUDGET, SEQUENCES);
        assert!(cache.allocated_bytes() <= most);
    }
}

/// Runs the operations, then the same on a cache that first did something else and was reset:
/// nothing of that may show, neither in the entries nor in an answer.
fn check<P: Evict>(policy: P, operations: &[Operation], bounded: bool) {
    let budget = Budget::Entries(BUDGET);
    let fresh = || EvictingCache::new(&MODEL, CAPACITY, SEQUENCES, budget, policy.clone()).unwrap();
    let (mut cache, mut used) = (fresh(), fresh());
    for s in 0..SEQUENCES {
        let pass = Pass::one(Span::new(s, 0, &[1; 25], Want::Last));
        MODEL.forward(&pass, &mut used).unwrap();
        used.reset(s).unwrap();
    }
    for operation in operations {
        apply(&mut cache, operation, bounded);
        apply(&mut used, operation, bounded);
    }
    for s in 0..SEQUENCES {
        assert_eq!(slots(&cache, s), slots(&used, s));
        let length = cache.len(s);
        if length < CAPACITY {
            let pass = Pass::one(Span::new(s, length, &[5], Want::Last));
            let answer = |cache: &mut EvictingCache<P>| MODEL.forward(&pass, cache).unwrap();
            assert_eq!(answer(&mut cache), answer(&mut used));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn entries_follow_the_operations(operations in prop::collection::vec(operation(), 1..25)) {
        check(Sinks::FOUR, &operations, true);
        check(Sinks::NONE, &operations, true);
        check(HeavyHitters::new(), &operations, true);
        check(Keyformer::new(3, 8), &operations, true);
        check(Random { seed: 3 }, &operations, true);
        check(SnapKv::new(3, 3).unwrap(), &operations, false);
    }
}
