//! Sparse reading: everything selected is full attention; less is close to it where it should be.

mod common;

use common::small_model;
use gqa_mla::sparse::{Pattern, SparseCache};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use naive_decode::{Attention, Element, LayerSpec, Logits, Model, Pass, Span, Visible, Want};
use ndarray::{Array3, s};
use proptest::prelude::*;
use std::sync::LazyLock;

static MODEL: LazyLock<Model> = LazyLock::new(|| small_model(Element::F32));

const CAPACITY: usize = 60;

fn text(length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i + 7 * i / 3) % common::VOCAB).collect()
}

fn full() -> Cached<ContiguousStore> {
    Cached::new(ContiguousStore::new(KvShape::of(&MODEL), CAPACITY, 1).unwrap(), MODEL.isa)
}

fn sparse(block: usize, selected: usize, window: usize) -> SparseCache {
    SparseCache::new(&MODEL, CAPACITY, 1, Pattern { block, selected, window }).unwrap()
}

fn feed(cache: &mut dyn KvCache, tokens: &[u32]) -> Logits {
    let pass = Pass::one(Span::new(0, cache.len(0), tokens, Want::All));
    MODEL.forward(&pass, &mut *cache).unwrap()
}

#[test]
fn every_block_selected_is_full_attention_bit_for_bit() {
    let tokens = text(CAPACITY);
    for chunk in [1, 7, CAPACITY] {
        let (mut expected, mut found) = (full(), sparse(4, CAPACITY / 4, 3));
        for chunk in tokens.chunks(chunk) {
            assert_eq!(feed(&mut found, chunk), feed(&mut expected, chunk));
        }
        let counted = found.entries_read();
        assert_eq!(counted.read, counted.visible, "nobody needs stand-ins then");
        assert_eq!(counted.queries, CAPACITY * 4);
    }
}

/// A window that begins within a block; of its tokens only those in the window are there to be read.
#[test]
fn a_layer_with_a_window_reads_nothing_behind_it() {
    let mut model = small_model(Element::F32);
    model.blocks[1].window = Some(14);
    let tokens = text(CAPACITY);
    let feed = |cache: &mut dyn KvCache| {
        model.forward(&Pass::one(Span::new(0, 0, &tokens, Want::All)), cache).unwrap()
    };
    let mut all = sparse(4, CAPACITY / 4, 3);
    assert_eq!(feed(&mut all), feed(&mut full()));
    let counted = all.entries_read();
    assert_eq!(counted.read, counted.visible);

    let (q, mut k, mut v) = (numbers(41, 4, 7), numbers(41, 2, 8), numbers(41, 2, 9));
    let layer = LayerSpec { window: Some(14), ..LAYER };
    let ask = |k: &Array3<f32>, v: &Array3<f32>| answer(layer, &mut sparse(4, 1, 2), &q, k, v);
    let expected = ask(&k, &v);
    for numbers in [&mut k, &mut v] {
        numbers.slice_mut(s![..27, .., ..]).fill(3.0);
    }
    assert_eq!(ask(&k, &v), expected);
}

#[test]
fn less_is_read_and_what_is_read_is_counted() {
    let mut cache = sparse(4, 2, 5);
    feed(&mut cache, &text(40));
    let before = cache.entries_read();
    feed(&mut cache, &[1]);
    let after = cache.entries_read();
    // 41 tokens: 9 whole blocks before the window of 5, all compared, two of them read; and 5
    // tokens.
    assert_eq!(after.queries - before.queries, 4);
    assert_eq!(after.read - before.read, 4 * (9 + 2 * 4 + 5));
    assert_eq!(after.visible - before.visible, 4 * 41);
}

#[test]
fn chunks_and_rollback_change_nothing() {
    let tokens = text(50);
    let whole = feed(&mut sparse(4, 3, 6), &tokens);
    let mut cache = sparse(4, 3, 6);
    feed(&mut cache, &tokens[..30]);
    feed(&mut cache, &[9; 17]);
    cache.truncate(0, 30).unwrap();
    let rest = feed(&mut cache, &tokens[30..]);
    assert_eq!(rest, whole.slice(s![30.., ..]));
    assert!(cache.truncate(0, 51).unwrap_err().to_string().contains("at most 50"));
    cache.reset(0).unwrap();
    assert_eq!(feed(&mut cache, &tokens), whole);
}

/// A layer without a window or a cap.
const LAYER: LayerSpec =
    LayerSpec { index: 0, kv_layer: 0, window: None, scale: 0.35, score_cap: None };

/// One layer's answer to one query after `keys` and `values`, `[tokens]` of width 8 in two heads.
fn answer(
    layer: LayerSpec,
    cache: &mut dyn Attention,
    q: &Array3<f32>,
    k: &Array3<f32>,
    v: &Array3<f32>,
) -> Array3<f32> {
    let mut pass = Pass::one(Span::new(0, 0, &vec![0; k.dim().0], Want::Nothing));
    // All rows but the last see nothing: only the last is looked at.
    let last = pass.spans[0].sees.len() - 1;
    pass.spans[0].sees[..last].fill(Visible::until(0));
    cache.begin(&pass).unwrap();
    cache.attend(layer, &pass, q.view(), k.view(), v.view()).unwrap().slice_move(s![last.., .., ..])
}

fn numbers(tokens: usize, heads: usize, seed: u32) -> Array3<f32> {
    let mut state = seed;
    Array3::from_shape_fn((tokens, heads, 8), |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

#[test]
fn blocks_of_equals_are_read_as_well_by_their_stand_ins() {
    // Every key of a block alike, and every value: the stand-in is each of them, and counts four
    // times.
    let (q, mut k, mut v) = (numbers(40, 4, 1), numbers(40, 2, 2), numbers(40, 2, 3));
    for numbers in [&mut k, &mut v] {
        for token in 0..40 {
            let first = numbers.slice(s![token / 4 * 4, .., ..]).to_owned();
            numbers.slice_mut(s![token, .., ..]).assign(&first);
        }
    }
    for score_cap in [None, Some(0.5)] {
        let layer = LayerSpec { score_cap, ..LAYER };
        let expected = answer(layer, &mut full(), &q, &k, &v);
        let found = answer(layer, &mut sparse(4, 1, 2), &q, &k, &v);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected} {score_cap:?}");
        }
    }
}

#[test]
fn the_block_that_matters_is_selected_for_the_whole_group() {
    // Both heads of the second group look for one key, far back; all else is noise that nobody
    // looks at.
    let (mut q, mut k, mut v) = (numbers(48, 4, 4), numbers(48, 2, 5), numbers(48, 2, 6));
    k *= 0.05;
    v *= 0.05;
    q.fill(1.0);
    k.slice_mut(s![21, 1, ..]).fill(9.0);
    v.slice_mut(s![21, 1, ..]).fill(1.0);
    let expected = answer(LAYER, &mut full(), &q, &k, &v);
    let found = answer(LAYER, &mut sparse(4, 2, 4), &q, &k, &v);
    // If one block is all that may be read, it is the first, wherever the key lies.
    let first_only = answer(LAYER, &mut sparse(4, 1, 4), &q, &k, &v);
    for head in [2, 3] {
        assert!(expected[(0, head, 0)] > 0.9 && first_only[(0, head, 0)] < 0.5);
        assert!((found[(0, head, 0)] - expected[(0, head, 0)]).abs() < 1e-3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    #[test]
    fn no_pattern_reads_twice_or_past_its_row(
        block in 1..9usize, selected in 1..6usize, window in 1..12usize, chunk in 1..20usize,
    ) {
        let tokens = text(45);
        let mut cache = sparse(block, selected, window);
        for chunk in tokens.chunks(chunk) {
            feed(&mut cache, chunk);
        }
        let counted = cache.entries_read();
        let blocks = 45 / block;
        prop_assert!(counted.read <= counted.visible + counted.queries * blocks);
        let whole = feed(&mut sparse(block, selected, window), &tokens);
        // The last row does not depend on chunks, nor any row on later tokens.
        let mut again = sparse(block, selected, window);
        feed(&mut again, &tokens[..30]);
        prop_assert_eq!(feed(&mut again, &tokens[30..]), whole.slice(s![30.., ..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn operations_of_any_kind_leave_it_whole(
        steps in prop::collection::vec((0..4usize, 1..20usize), 1..20), block in 1..9usize,
    ) {
        // Infinite keys in the second layer: the first has then written already.
        let mut failing = small_model(Element::F32);
        failing.blocks[1].attention_norm.as_mut().unwrap()[0] = f32::INFINITY;
        let mut cache = sparse(block, 3, 6);
        let mut held = Vec::new();
        for (action, size) in steps {
            match action {
                0 => {
                    held.truncate(held.len().saturating_sub(size));
                    cache.truncate(0, held.len()).unwrap();
                }
                1 => {
                    let pass = Pass::one(Span::new(0, held.len(), &text(size), Want::Last));
                    failing.forward(&pass, &mut cache).unwrap_err();
                }
                _ if held.len() + size <= CAPACITY => {
                    held.extend(text(size));
                    let found = feed(&mut cache, &held[held.len() - size..]);
                    let expected = feed(&mut sparse(block, 3, 6), &held);
                    prop_assert_eq!(found, expected.slice(s![held.len() - size.., ..]));
                }
                _ => {}
            }
            cache.check_integrity().unwrap();
        }
    }
}

#[test]
fn refusals_say_what_is_missing() {
    let pattern = |block, selected, window| Pattern { block, selected, window };
    for (pattern, word) in [
        (pattern(0, 1, 1), "tokens in a block is 0"),
        (pattern(4, 0, 1), "selected blocks is 0"),
        (pattern(4, 1, 0), "window is 0"),
    ] {
        let Err(error) = SparseCache::new(&MODEL, CAPACITY, 1, pattern) else { panic!("{word}") };
        assert!(error.to_string().contains(word), "{error}");
    }
    let error = Pattern::reading(40, 448, 16).unwrap_err().to_string();
    assert!(error.contains("at least 60: 28 stand-ins"), "{error}");
    for entries in [10, 100] {
        let error = Pattern::reading(entries, 100, 0).unwrap_err().to_string();
        assert_eq!(error, "tokens in a block is 0, expected at least 1");
    }
    // All of a text that is no longer than a block.
    let read = Pattern::reading(10, 10, 16).unwrap();
    assert_eq!(read, Pattern { block: 16, selected: 1, window: 16 });
    let read = Pattern::reading(112, 448, 16).unwrap();
    assert_eq!(read, Pattern { block: 16, selected: 3, window: 21 });
    assert!(28 + read.selected * 16 + read.window <= 112);
}
