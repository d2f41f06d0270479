//! What each policy keeps, what the cache does with it, and what it refuses.

mod common;

use common::{VOCAB, small_model};
use gqa_mla::evict::{
    Budget, Evict, EvictingCache, HeavyHitters, Held, Keyformer, Observation, Random, Sinks,
    SnapKv, methods,
};
use gqa_mla::hybrid::{self, HybridConfig};
use gqa_mla::sparse::{Pattern, SparseCache};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape, RopeScaling};
use naive_decode::{Element, LoadOptions, Logits, Model, Pass, Result, Span, Want};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

static MODEL: LazyLock<Model> = LazyLock::new(|| small_model(Element::F32));

const CAPACITY: usize = 60;

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 7 * i / 3) % VOCAB).collect()
}

/// Feeds a text in chunks, of which only the last wants a logit.
fn feed(cache: &mut dyn KvCache, tokens: &[u32], chunk: usize) -> Logits {
    feed_to(&MODEL, cache, tokens, chunk)
}

fn feed_to(model: &Model, cache: &mut dyn KvCache, tokens: &[u32], chunk: usize) -> Logits {
    let mut logits = None;
    let end = cache.len(0) + tokens.len();
    for chunk in tokens.chunks(chunk) {
        let start = cache.len(0);
        let want = if start + chunk.len() == end { Want::Last } else { Want::Nothing };
        let pass = Pass::one(Span::new(0, start, chunk, want));
        logits = Some(model.forward(&pass, &mut *cache).unwrap());
    }
    logits.unwrap()
}

fn cache<P: Evict>(budget: usize, policy: P) -> EvictingCache<P> {
    cache_for(&MODEL, budget, policy)
}

fn cache_for<P: Evict>(model: &Model, budget: usize, policy: P) -> EvictingCache<P> {
    EvictingCache::new(model, CAPACITY, 1, Budget::Entries(budget), policy).unwrap()
}

fn bits(logits: &Logits) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn a_cache_that_keeps_everything_is_the_contiguous_one() {
    for element in [Element::F32, Element::Bf16, Element::F16] {
        let model = small_model(element);
        let tokens = text(CAPACITY);
        for method in methods() {
            for chunk in [1, 7, CAPACITY] {
                let store = ContiguousStore::new(KvShape::of(&model), CAPACITY, 1).unwrap();
                let mut full = Cached::new(store, model.isa);
                let mut kept = (method.make)(&model, CAPACITY, Budget::Fraction(1.0)).unwrap();
                for (start, chunk) in (0..).step_by(chunk).zip(tokens.chunks(chunk)) {
                    let pass = Pass::one(Span::new(0, start, chunk, Want::All));
                    let expected = model.forward(&pass, &mut full).unwrap();
                    let found = model.forward(&pass, &mut *kept).unwrap();
                    assert_eq!(bits(&found), bits(&expected), "{} by {}", method.name, chunk.len());
                }
                // Stand-ins of blocks come on top.
                if method.name != "NSA pattern" {
                    assert_eq!(kept.allocated_bytes(), full.allocated_bytes(), "{}", method.name);
                }
            }
        }
    }
}

#[test]
fn sinks_keep_the_first_and_the_last() {
    for chunk in [1, 5, 40] {
        let mut cache = cache(12, Sinks::FOUR);
        feed(&mut cache, &text(40), chunk);
        let expected: Vec<usize> = (0..4).chain(32..40).collect();
        assert_eq!(cache.slots(0, 1, 0), expected);
        cache.check_integrity().unwrap();
    }
    let mut window = cache(12, Sinks::NONE);
    feed(&mut window, &text(40), 5);
    assert_eq!(window.slots(0, 0, 1), (28..40).collect::<Vec<_>>());
}

/// Weight by slot, of each layer and key-value head.
type WeightSums = HashMap<(usize, usize), Vec<f32>>;

/// Keeps everything, and adds up how much weight falls on each slot from the queries of slot `from` on.
#[derive(Clone)]
struct Sums {
    from: usize,
    sums: Arc<Mutex<WeightSums>>,
}

impl Evict for Sums {
    fn check(&self, _budget: usize) -> Result<()> {
        Ok(())
    }
    fn observes(&self) -> bool {
        true
    }
    fn observe(&mut self, query: &Observation) {
        let mut sums = self.sums.lock().unwrap();
        let sums = sums.entry((query.layer, query.head / 2)).or_insert_with(|| vec![0.0; CAPACITY]);
        if query.slot >= self.from {
            let votes = query.places.iter().zip(query.weights);
            votes.for_each(|(&place, weight)| sums[place] += weight);
        }
    }
    fn choose(&self, _held: &Held) -> Option<Vec<usize>> {
        None
    }
}

/// Weight on each slot, by layer and key-value head, from the queries of slot `from` on.
fn weight_on_each(model: &Model, tokens: &[u32], from: usize) -> WeightSums {
    let sums = Arc::default();
    let mut cache = cache_for(model, CAPACITY, Sums { from, sums: Arc::clone(&sums) });
    feed_to(model, &mut cache, tokens, tokens.len());
    drop(cache);
    Arc::try_unwrap(sums).unwrap().into_inner().unwrap()
}

/// The `count` places with the highest scores and all from `recent` to `end`.
fn best_and_recent(scores: &[f32], count: usize, recent: Range<usize>) -> Vec<usize> {
    let mut older: Vec<usize> = (0..recent.start).collect();
    older.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    older.truncate(count);
    older.extend(recent);
    older.sort();
    older
}

#[test]
fn heavy_hitters_are_those_looked_at_most_in_all() {
    let tokens = text(30);
    let mut cache = cache(10, HeavyHitters::new());
    feed(&mut cache, &tokens, 30);
    for ((layer, kv_head), sums) in weight_on_each(&MODEL, &tokens, 0) {
        assert_eq!(cache.slots(0, layer, kv_head), best_and_recent(&sums, 5, 25..30));
    }
}

#[test]
fn snap_kv_counts_the_votes_of_its_window_and_pools_them() {
    let tokens = text(30);
    let mut cache = cache(14, SnapKv::new(6, 3).unwrap());
    feed(&mut cache, &tokens, 7);
    for ((layer, kv_head), sums) in weight_on_each(&MODEL, &tokens, 24) {
        let pooled: Vec<f32> =
            (0..24usize).map(|i| sums[i.saturating_sub(1)..(i + 2).min(24)].iter().sum()).collect();
        assert_eq!(cache.slots(0, layer, kv_head), best_and_recent(&pooled, 8, 24..30));
    }
}

/// A model of two layers, of which the second reads what the first has kept.
fn sharing() -> Model {
    let (windows, shares) = (vec![None; 2], vec![None, Some(0)]);
    let config = HybridConfig { base: MODEL.config.clone(), windows, shares, qk_norm: true };
    hybrid::random(config, 1, LoadOptions::default()).unwrap()
}

#[test]
fn layers_that_share_cost_a_token_nothing() {
    let model = sharing();
    let one_layer = KvShape::of(&model).bytes_per_token() / 2;
    let mut evicting = cache_for(&model, CAPACITY, Sinks::FOUR);
    assert_eq!(evicting.bytes_per_token(), one_layer);
    feed_to(&model, &mut evicting, &text(CAPACITY), CAPACITY);
    assert_eq!(evicting.allocated_bytes(), CAPACITY * one_layer);
    let pattern = Pattern { block: CAPACITY, selected: 1, window: 1 };
    let sparse = SparseCache::new(&model, CAPACITY, 1, pattern).unwrap();
    assert_eq!(sparse.bytes_per_token(), one_layer);
}

#[test]
fn snap_kv_counts_the_votes_of_layers_that_share_once_each_whatever_the_chunks() {
    let (model, tokens) = (sharing(), text(30));
    let votes = weight_on_each(&model, &tokens, 24);
    for kv_head in 0..2 {
        let [own, others] = [0, 1].map(|layer| &votes[&(layer, kv_head)]);
        let sums: Vec<f32> = own.iter().zip(others).map(|(own, other)| own + other).collect();
        for chunk in [1, 4, 7, 30] {
            let mut cache = cache_for(&model, 14, SnapKv::new(6, 1).unwrap());
            feed_to(&model, &mut cache, &tokens, chunk);
            assert_eq!(cache.slots(0, 0, kv_head), best_and_recent(&sums[..24], 8, 24..30));
            // Six queries' votes for what they saw, in the one layer that holds anything.
            let remembered = cache.bookkeeping_bytes();
            assert_eq!(remembered, 2 * 14 * (8 + 6 * 4), "in chunks of {chunk}");
        }
    }
}

#[test]
fn snap_kv_chooses_once_at_the_prompts_end_whatever_the_chunks() {
    let tokens = text(40);
    let mut kept = Vec::new();
    for chunk in [3, 16, 40] {
        let mut cache = cache(14, SnapKv::new(6, 3).unwrap());
        feed(&mut cache, &tokens[..30], chunk);
        let slots = cache.slots(0, 1, 1).to_vec();
        assert_eq!(slots.len(), 14);
        assert_eq!(slots[8..], (24..30).collect::<Vec<_>>(), "the window stays");
        // What comes later stays too.
        feed(&mut cache, &tokens[30..], 2);
        assert_eq!(cache.slots(0, 1, 1).len(), 24);
        assert_eq!(cache.slots(0, 1, 1)[..14], slots);
        cache.check_integrity().unwrap();
        kept.push(slots);
    }
    assert_eq!(kept[0], kept[1]);
    assert_eq!(kept[0], kept[2]);
}

#[test]
fn keyformers_noise_hangs_on_its_seed_and_on_nothing_else() {
    let kept = |seed, chunk| {
        let mut cache = cache(30, Keyformer::new(seed, 10));
        feed(&mut cache, &text(30), chunk);
        feed(&mut cache, &[1], 1);
        (0..2).map(|head| cache.slots(0, 1, head).to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(kept(1, 30), kept(1, 4));
    assert!((2..9).any(|seed| kept(seed, 30) != kept(1, 30)), "seeds never matter");
}

#[test]
fn heads_choose_for_themselves_and_lots_differ_by_seed() {
    let kept = |seed, head| {
        let mut cache = cache(10, Random { seed });
        feed(&mut cache, &text(40), 4);
        cache.slots(0, 0, head).to_vec()
    };
    assert_ne!(kept(1, 0), kept(1, 1));
    assert_ne!(kept(1, 0), kept(2, 0));
    assert_eq!(kept(1, 0), kept(1, 0));
}

#[test]
fn memory_is_the_budget_and_in_a_pass_its_rows_besides() {
    let per_token = KvShape::of(&MODEL).bytes_per_token();
    let mut cache = cache(12, HeavyHitters::new());
    assert_eq!(cache.allocated_bytes(), 0);
    feed(&mut cache, &text(50), 5);
    assert_eq!(cache.allocated_bytes(), 12 * per_token);
    assert_eq!(cache.peak_bytes(), 17 * per_token);
    // 12 slot numbers and scores in each of four heads.
    assert_eq!(cache.bookkeeping_bytes(), 4 * 12 * (8 + 4));
}

#[test]
fn what_is_gone_is_not_looked_at_and_what_stays_is() {
    // A window of 12 answers as if the text had begun 12 tokens ago, at the positions that it had:
    // RoPE knows distances only. One layer, for deeper ones have seen more.
    let config = naive_decode::Config { layers: 1, ..MODEL.config.clone() };
    let model = Model::random(config, 1, LoadOptions::default()).unwrap();
    let tokens = text(40);
    let budget = Budget::Entries(12);
    let mut window = EvictingCache::new(&model, CAPACITY, 1, budget, Sinks::NONE).unwrap();
    let mut found = None;
    for (start, token) in tokens.iter().enumerate() {
        let pass = Pass::one(Span::new(0, start, &[*token], Want::Last));
        found = Some(model.forward(&pass, &mut window).unwrap());
    }
    let mut fresh = naive_decode::NaiveAttention::new(model.isa);
    let pass = Pass::one(Span::new(0, 0, &tokens[27..], Want::Last));
    let expected = model.forward(&pass, &mut fresh).unwrap();
    for (found, expected) in found.unwrap().iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

#[test]
fn positions_in_the_cache_are_those_of_a_text_without_the_gap() {
    // Sinks and window, told in one breath, with one layer.
    let config = naive_decode::Config { layers: 1, ..MODEL.config.clone() };
    let model = || Model::random(config.clone(), 1, LoadOptions::default()).unwrap();
    // Under YaRN a turn has a magnitude, which a key that is turned again has already.
    let mut stretched = model();
    RopeScaling::yarn(4.0, 64).stretch(&mut stretched);
    for model in [model(), stretched] {
        let tokens = text(40);
        let logits = |in_cache: bool| {
            let budget = Budget::Entries(12);
            let mut cache = EvictingCache::new(&model, CAPACITY, 1, budget, Sinks::FOUR).unwrap();
            if in_cache {
                cache = cache.with_positions_in_cache(&model).unwrap();
            }
            for (start, token) in tokens[..39].iter().enumerate() {
                let pass = Pass::one(Span::new(0, start, &[*token], Want::Nothing));
                model.forward(&pass, &mut cache).unwrap();
            }
            let pass = Pass::one(Span::new(0, 39, &tokens[39..], Want::Last));
            model.forward(&pass, &mut cache).unwrap()
        };
        let told: Vec<u32> = [&tokens[..4], &tokens[31..]].concat();
        let mut fresh = naive_decode::NaiveAttention::new(model.isa);
        let pass = Pass::one(Span::new(0, 0, &told, Want::Last));
        let expected = model.forward(&pass, &mut fresh).unwrap();
        let farthest = |found: Logits| {
            assert!(found.iter().all(|logit| logit.is_finite()));
            found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(farthest(logits(true)) < 1e-4);
        assert!(farthest(logits(false)) > 1e-3, "the gap makes no difference");
    }
}

#[test]
fn positions_in_the_cache_are_refused_where_layers_have_windows() {
    let mut model = small_model(Element::F32);
    model.blocks[1].window = Some(8);
    let cache = EvictingCache::new(&model, CAPACITY, 1, Budget::Entries(12), Sinks::FOUR).unwrap();
    let said = cache.with_positions_in_cache(&model).err().unwrap().to_string();
    assert!(said.starts_with("window of layer 1 is 8, expected none"), "{said}");
}

#[test]
fn dropped_ranges_are_gone_from_every_head_and_do_not_come_back() {
    let mut cache = cache(CAPACITY, Sinks::NONE);
    feed(&mut cache, &text(20), 20);
    cache.drop_range(0, 5..12).unwrap();
    cache.check_integrity().unwrap();
    let left: Vec<usize> = (0..5).chain(12..20).collect();
    for (layer, kv_head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(cache.slots(0, layer, kv_head), left);
    }
    assert_eq!(cache.len(0), 20);
    feed(&mut cache, &[1, 2, 3], 1);
    cache.truncate(0, 20).unwrap();
    assert_eq!(cache.slots(0, 1, 1), left);
    let refused = cache.truncate(0, 19).unwrap_err().to_string();
    assert!(refused.contains("19") && refused.contains("at least 20"), "{refused}");
    cache.reset(0).unwrap();
    assert_eq!((cache.len(0), cache.slots(0, 0, 0).len()), (0, 0));
    let fresh = feed(&mut crate::cache(CAPACITY, Sinks::NONE), &text(20), 20);
    assert_eq!(bits(&feed(&mut cache, &text(20), 20)), bits(&fresh));
}

#[test]
fn dropping_what_no_head_holds_bars_no_way_back() {
    let mut cache = cache(CAPACITY, Sinks::NONE);
    feed(&mut cache, &text(20), 20);
    cache.drop_range(0, 5..12).unwrap();
    feed(&mut cache, &[1, 2, 3], 1);
    // Nothing at all, and what is gone already.
    cache.drop_range(0, 20..20).unwrap();
    cache.drop_range(0, 6..10).unwrap();
    cache.truncate(0, 21).unwrap();
    // A token that is held does bar it.
    cache.drop_range(0, 20..21).unwrap();
    feed(&mut cache, &[1], 1);
    assert!(cache.truncate(0, 20).is_err());
    cache.truncate(0, 21).unwrap();
}

#[test]
fn a_pass_that_fails_half_way_leaves_nothing_behind() {
    // Infinite keys in the second layer: the first has then written and voted already.
    let mut model = small_model(Element::F32);
    let healthy = small_model(Element::F32);
    model.blocks[1].attention_norm.as_mut().unwrap()[0] = f32::INFINITY;
    let budget = Budget::Entries(10);
    let mut cache = EvictingCache::new(&healthy, CAPACITY, 1, budget, HeavyHitters::new()).unwrap();
    feed(&mut cache, &text(30), 6);
    let mut untouched = cache.clone();
    let pass = Pass::one(Span::new(0, 30, &[1, 2, 3], Want::Last));
    let error = model.forward(&pass, &mut cache).unwrap_err().to_string();
    assert!(error.contains("layer 1"), "{error}");
    cache.check_integrity().unwrap();
    assert_eq!(cache.slots(0, 0, 0), untouched.slots(0, 0, 0));
    // But for three slots and votes for 13 entries in each of the first layer's two heads, to be
    // forgotten by the next pass.
    let left_behind = 2 * (3 * 8 + 13 * 4);
    assert_eq!(cache.bookkeeping_bytes(), untouched.bookkeeping_bytes() + left_behind);
    let expected = feed(&mut untouched, &[4, 5, 6, 7], 2);
    assert_eq!(bits(&feed(&mut cache, &[4, 5, 6, 7], 2)), bits(&expected));
    assert_eq!(cache.slots(0, 0, 1), untouched.slots(0, 0, 1));
    assert_eq!(cache.bookkeeping_bytes(), untouched.bookkeeping_bytes());
}

#[test]
fn refusals_name_what_is_wrong_and_what_would_be_right() {
    fn said<P: Evict>(budget: Budget, policy: P) -> String {
        match EvictingCache::new(&MODEL, CAPACITY, 1, budget, policy) {
            Ok(_) => panic!("{budget:?} is taken"),
            Err(error) => error.to_string(),
        }
    }
    let entries = Budget::Entries;
    for (said, words) in [
        (said(entries(0), Sinks::NONE), ["budget of entries is 0", "1 to 60"]),
        (said(entries(61), Sinks::NONE), ["is 61", "1 to 60"]),
        (said(Budget::Fraction(-0.5), Sinks::NONE), ["-0.5", "above 0"]),
        (said(entries(4), Sinks::FOUR), ["is 4", "more than the 4 sinks"]),
        (said(entries(6), SnapKv::new(6, 3).unwrap()), ["is 6", "observation window's 6"]),
        (said(entries(1), HeavyHitters::new()), ["is 1", "at least 2"]),
        (said(entries(1), Keyformer::new(1, 1)), ["is 1", "at least 2"]),
        (SnapKv::new(0, 3).unwrap_err().to_string(), ["window is 0", "at least 1"]),
        (SnapKv::new(4, 2).unwrap_err().to_string(), ["kernel is 2", "odd"]),
    ] {
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    let mut cache = cache(10, Sinks::FOUR);
    feed(&mut cache, &text(20), 5);
    for (said, words) in [
        (cache.drop_range(0, 15..21), ["15..21", "within 0..20"]),
        (cache.drop_range(3, 0..1), ["sequence is 3", "below 1"]),
        (cache.truncate(0, 21), ["21", "at most 20"]),
        (cache.truncate(0, 19), ["19", "at least 20"]),
        (cache.truncate(7, 0), ["sequence is 7", "below 1"]),
        (
            MODEL.forward(&Pass::one(Span::new(0, 3, &[1], Want::Last)), &mut cache).map(drop),
            ["start of sequence 0 is 3", "20"],
        ),
        (
            MODEL
                .forward(&Pass::one(Span::new(0, 20, &text(41), Want::Last)), &mut cache)
                .map(drop),
            ["holds 60", "61"],
        ),
    ] {
        let said = said.unwrap_err().to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    cache.check_integrity().unwrap();
}
