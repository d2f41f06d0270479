//! Keeping less.

use super::{feed, small, text};
use gqa_mla::evict::{Budget, Evict, EvictingCache, HeavyHitters, Held, Observation, Phase, Sinks};
use kv_cache::KvCache;
use naive_decode::Model;

fn sinks(model: &Model, budget: usize) -> EvictingCache<Sinks> {
    EvictingCache::new(model, 1_000, 1, Budget::Entries(budget), Sinks::FOUR).unwrap()
}

#[test]
fn sinks_and_the_last_96() {
    let model = small();
    let mut cache = sinks(&model, 100);
    feed(&model, &mut cache, 0, &text(1_000));
    let slots = cache.slots(0, 0, 0);
    assert_eq!(slots[..4], [0, 1, 2, 3]);
    assert_eq!(slots[4], 904);
    assert_eq!((slots.len(), slots[99]), (100, 999));
}

#[test]
fn a_dropped_token_leaves_a_gap() {
    let model = small();
    let mut cache = sinks(&model, 500);
    feed(&model, &mut cache, 0, &text(50));
    let before: Vec<usize> =
        cache.slots(0, 1, 0).iter().copied().filter(|&slot| slot != 10).collect();
    cache.drop_range(0, 10..11).unwrap();
    let after = cache.slots(0, 1, 0);
    assert_eq!(after, before);
    assert_eq!(cache.len(0), 50, "the next token is still the fifty-first");
}

#[test]
fn there_is_no_way_back_across_a_drop() {
    let model = small();
    let mut cache = sinks(&model, 310);
    feed(&model, &mut cache, 0, &text(300));
    cache.drop_range(0, 100..101).unwrap();
    feed(&model, &mut cache, 300, &text(10));
    assert!(cache.truncate(0, 299).is_err());
    cache.truncate(0, 300).unwrap();
    cache.truncate(0, 0).unwrap();
}

#[test]
fn heavy_hitters_by_hand() {
    let mut policy = HeavyHitters::new();
    policy.observe(&Observation {
        layer: 0,
        head: 0,
        slot: 5,
        since_prompt: 0,
        places: &[0, 1, 2, 3, 4, 5],
        weights: &[0.9, 0.1, 0.4, 0.8, 0.2, 0.3],
    });
    let slots = [0, 1, 2, 3, 4, 5];
    let held = Held { layer: 0, kv_head: 0, slots: &slots, budget: 4, phase: Phase::PromptEnd };
    let kept = policy.choose(&held).unwrap();
    assert_eq!(kept, [0, 3, 4, 5]);
}
