//! The cache in tiles answers as rung 02's contiguous cache does, whatever passes it is given.

use crate::case::{Heads, first_difference, heads, layer, span};
use flash_attention::FlashCache;
use flash_attention::threads::Pool;
use flash_attention::tile_attention::KvType;
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use naive_decode::{Attention, Element, Isa, KvSize, LayerSpec, Pass, Visible};
use ndarray::Array3;
use proptest::prelude::*;

const LAYERS: usize = 3;
const SEQUENCES: usize = 2;
/// The longest prompt and three more passes.
const CAPACITY: usize = 1_150;

/// A pass: rows for each sequence (none for 0), and whether they are a draft tree, which is rolled back.
#[derive(Debug, Clone)]
struct Step {
    rows: [usize; SEQUENCES],
    tree: Option<u64>,
}

fn step() -> impl Strategy<Value = Step> {
    let rows = || prop_oneof![1 => Just(0usize), 4 => 1usize..4, 3 => 1usize..60];
    let tree = prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some)];
    (rows(), rows(), tree).prop_map(|(a, b, tree)| Step { rows: [a, b], tree })
}

#[derive(Debug, Clone)]
struct Case {
    heads: Heads,
    element: Element,
    windows: [Option<usize>; LAYERS],
    isa: usize,
    scale: f32,
    /// Rows of the first pass, which is not a tree.
    prompt: usize,
    steps: Vec<Step>,
    seed: u64,
    threads: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let element = prop_oneof![Just(Element::F32), Just(Element::Bf16), Just(Element::F16)];
    let window = || prop_oneof![2 => Just(None), 1 => (1usize..40).prop_map(Some), 1 => (500usize..530).prop_map(Some)];
    let prompt = prop_oneof![38 => 1usize..90, 1 => 490usize..530, 1 => 900usize..930];
    // With the largest, some scores are lower than any integer.
    let scale = prop_oneof![2 => Just(0.3f32), 2 => Just(3.0), 2 => Just(300.0), 1 => Just(1e10)];
    let numbers = (0usize..4, scale, prompt, any::<u64>());
    (heads(), element, [window(), window(), window()], numbers, prop::collection::vec(step(), 0..4))
        .prop_map(|(heads, element, windows, (isa, scale, prompt, seed), steps)| Case {
            heads,
            element,
            windows,
            isa,
            scale,
            prompt,
            steps,
            seed: seed / 1024,
            threads: 1 + seed as usize % 3,
        })
}

/// Both caches, side by side.
struct Pair {
    tiles: FlashCache,
    slab: Cached<ContiguousStore>,
}

impl Case {
    fn pair(&self) -> Pair {
        let Heads { kv_heads, key_dim, value_dim, absorbed, .. } = self.heads;
        let value_dim = if absorbed { 0 } else { value_dim };
        let size = KvSize { heads: kv_heads, key_dim, value_dim };
        // The second layer reads the first one's keys and values.
        let sizes = [Some(size), None, Some(size)];
        let isa = Isa::available()[self.isa % Isa::available().len()];
        let shape = KvShape { layers: LAYERS, kv_heads, key_dim, value_dim, element: self.element };
        Pair {
            tiles: FlashCache::of_sizes(&sizes, self.element.into(), isa, CAPACITY, SEQUENCES)
                .unwrap()
                .on_threads(Pool::new(self.threads)),
            slab: Cached::new(
                ContiguousStore::new(shape, CAPACITY, SEQUENCES).unwrap(),
                Isa::best(),
            ),
        }
    }

    fn run(&self) {
        let mut pair = self.pair();
        let prompt = Step { rows: [self.prompt, self.prompt / 2], tree: None };
        for (number, step) in std::iter::once(&prompt).chain(&self.steps).enumerate() {
            self.step(&mut pair, number as u64, step);
        }
    }

    fn step(&self, pair: &mut Pair, number: u64, step: &Step) {
        let held = |sequence| pair.slab.len(sequence);
        let spans = (0..SEQUENCES).filter(|&s| step.rows[s] > 0);
        let pass =
            Pass { spans: spans.map(|s| span(s, held(s), step.rows[s], step.tree)).collect() };
        if pass.rows() == 0 {
            return;
        }
        pair.tiles.begin(&pass).unwrap();
        pair.slab.begin(&pass).unwrap();
        for index in 0..LAYERS {
            let seed = self.seed + 8 * number + index as u64;
            let q = self.heads.queries(seed, pass.rows());
            // A layer that shares is handed the keys and values of the one that made them.
            let kv_layer = if index == 1 { 0 } else { index };
            let seed = self.seed + 8 * number + kv_layer as u64;
            let (mut k, mut v) = self.heads.keys_values(seed, pass.rows());
            self.element.round(k.as_slice_mut().unwrap());
            self.element.round(v.as_slice_mut().unwrap());
            let (window, scale) = (self.windows[index], self.scale);
            let score_cap = (index == 1).then_some(2.0);
            let layer = LayerSpec { index, kv_layer, window, scale, score_cap };
            let expected = pair.slab.attend(layer, &pass, q.view(), k.view(), v.view()).unwrap();
            let found = pair.tiles.attend(layer, &pass, q.view(), k.view(), v.view()).unwrap();
            if let Some(difference) = first_difference(&found, &expected) {
                panic!("pass {number}, layer {index}: {difference}");
            }
        }
        if step.tree.is_none() {
            pair.tiles.commit(&pass);
            pair.slab.commit(&pass);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_in_tiles_is_the_contiguous_cache(case in case()) {
        case.run();
    }
}

/// One row of one key-value head, long enough that its splits are shared out among threads.
#[test]
fn splits_shared_out_among_threads_change_nothing() {
    for (group, dim, absorbed) in [(1, 64, false), (9, 64, false), (16, 96, true)] {
        let value_dim = if absorbed { 64 } else { dim };
        let heads = Heads { kv_heads: 1, group, key_dim: dim, value_dim, absorbed };
        let case = |threads| Case {
            heads,
            element: Element::Bf16,
            windows: [None, Some(600), None],
            isa: Isa::available().len() - 1,
            scale: 1.0,
            prompt: CAPACITY - 40,
            steps: vec![
                Step { rows: [1, 0], tree: None },
                Step { rows: [1, 1], tree: None },
                Step { rows: [5, 0], tree: Some(1) },
                Step { rows: [1, 0], tree: None },
            ],
            seed: 9,
            threads,
        };
        for threads in [1, 2, 5] {
            case(threads).run();
        }
    }
}

/// Its range is empty and begins at a tile, so that a split of no tiles is attended to.
#[test]
fn a_row_that_sees_nothing_is_answered_with_zeros() {
    let exact = [Element::F32, Element::Bf16, Element::F16].map(KvType::Exact);
    for absorbed in [false, true] {
        let heads = Heads { kv_heads: 2, group: 2, key_dim: 24, value_dim: 20, absorbed };
        let size = KvSize { heads: 2, key_dim: 24, value_dim: if absorbed { 0 } else { 20 } };
        for kept in exact.into_iter().chain([KvType::Int8, KvType::Bf16Fast]) {
            for isa in Isa::available() {
                let mut cache = FlashCache::of_sizes(&[Some(size)], kept, isa, 40, 1).unwrap();
                let mut attend = |pass: &Pass| {
                    let q = heads.queries(1, pass.rows());
                    let (k, v) = heads.keys_values(2, pass.rows());
                    let layer = layer(None, 1.0);
                    cache.begin(pass).unwrap();
                    let out = cache.attend(layer, pass, q.view(), k.view(), v.view()).unwrap();
                    cache.commit(pass);
                    out
                };
                attend(&Pass::one(span(0, 0, 16, None)));
                let mut blind = span(0, 16, 1, None);
                blind.sees = vec![Visible { range: 16..16, also: Vec::new() }];
                let found = attend(&Pass::one(blind));
                assert!(found.iter().all(|&number| number == 0.0), "{kept}: {found}");
            }
        }
    }
}

#[test]
fn bytes_are_what_the_model_keeps() {
    let size = |value_dim| Some(KvSize { heads: 2, key_dim: 64, value_dim });
    let cache = |value_dim, element: Element, capacity| {
        let sizes = [size(value_dim), None, size(value_dim)];
        FlashCache::of_sizes(&sizes, element.into(), Isa::best(), capacity, 3).unwrap()
    };
    // Whole tiles of whole registers: exactly the formula's bytes.
    for (value_dim, element) in [(64, Element::F32), (64, Element::Bf16), (0, Element::F16)] {
        let cache = cache(value_dim, element, 160);
        assert_eq!(cache.bytes_per_token(), 2 * 2 * (64 + value_dim) * element.bytes());
        assert_eq!(cache.allocated_bytes(), cache.bytes_per_token() * 160 * 3);
    }
    // A capacity that ends inside a tile is filled up.
    assert_eq!(
        cache(64, Element::F32, 161).allocated_bytes(),
        cache(64, Element::F32, 176).allocated_bytes()
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let size = KvSize { heads: 1, key_dim: 4, value_dim: 4 };
    let mut cache =
        FlashCache::of_sizes(&[Some(size)], Element::F32.into(), Isa::best(), 10, 1).unwrap();
    let mut refuse = |pass: &Pass, words: &str| {
        let said = cache.begin(pass).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    };
    refuse(&Pass::one(span(0, 0, 11, None)), "the cache of sequence 0 holds 10 tokens; 11");
    refuse(&Pass::one(span(0, 1, 1, None)), "start of sequence 0 is 1, expected 0");
    refuse(&Pass::one(span(1, 0, 1, None)), "sequence is 1, expected below 1");
    refuse(&Pass { spans: vec![span(0, 0, 1, None), span(0, 0, 1, None)] }, "two, expected one");
    let said = cache.truncate(0, 1).unwrap_err().to_string();
    assert!(said.contains("length to truncate sequence 0 to is 1"), "{said}");
}

#[test]
fn more_than_the_system_has_memory_for_is_refused() {
    let size = KvSize { heads: 2, key_dim: 16, value_dim: 16 };
    for kept in [Element::F32.into(), Element::Bf16.into(), KvType::Int8] {
        for (capacity, sequences) in
            [(usize::MAX, 1), (1 << 60, 1), (1, usize::MAX), (1 << 40, 1 << 40)]
        {
            let made = FlashCache::of_sizes(&[Some(size)], kept, Isa::best(), capacity, sequences);
            let said = made.err().unwrap().to_string();
            let asked = format!("is {sequences} of {capacity} tokens, expected no more than");
            assert!(said.contains(&asked), "{said}");
        }
    }
}

/// Half precision has no room for most numbers of a model that rounds to another type.
#[test]
fn half_precision_is_for_models_that_round_to_it() {
    let check = |kept: Element, made| KvType::from(kept).check_made(made);
    let error = check(Element::F16, Element::F32).unwrap_err().to_string();
    assert!(error.contains("f16") && error.contains("f32"), "{error}");
    check(Element::F16, Element::F16).unwrap();
    check(Element::Bf16, Element::F32).unwrap();
    KvType::Int8.check_made(Element::Bf16).unwrap();
}

#[test]
#[should_panic = "rows, and their width"]
fn a_query_that_is_no_row_of_the_pass_is_refused() {
    let size = KvSize { heads: 1, key_dim: 16, value_dim: 16 };
    let kept = Element::F32.into();
    let mut cache = FlashCache::of_sizes(&[Some(size)], kept, Isa::best(), 16, 1).unwrap();
    let one = Array3::zeros((1, 1, 16));
    let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 1.0, score_cap: None };
    let _ = cache.attend(layer, &Pass { spans: Vec::new() }, one.view(), one.view(), one.view());
}
