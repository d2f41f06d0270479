//! Chunks, rollback, and several sequences.

use crate::world::{CONTEXT, MODEL, VOCABULARY, caches, fed_at_once, feed, text};
use gqa_mla::quantized::{Kivi, QuantizedCache, methods};
use kv_cache::{KvCache, KvShape};
use naive_decode::{LayerSpec, Pass, Span, Visible, Want};
use ndarray::Array3;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn any_chunks_give_the_same_bits(
        sizes in prop::collection::vec(1usize..70, 1..12), seed in 0u32..100,
    ) {
        let tokens = text(seed, sizes.iter().sum::<usize>().min(CONTEXT - 1));
        let mut rest = &tokens[..];
        let mut chunks = Vec::new();
        for &size in &sizes {
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        chunks.retain(|chunk| !chunk.is_empty());
        for (name, make) in caches() {
            let found = feed(&MODEL, &mut *make(1), 0, &chunks);
            prop_assert!(found == fed_at_once(&make, &tokens), "{name}: {sizes:?}");
        }
    }

    #[test]
    fn a_rolled_back_sequence_is_as_if_it_had_never_been_longer(
        steps in prop::collection::vec((0usize..2, 0usize..3, 1usize..45, 0u32..100), 4..12),
    ) {
        for (name, make) in caches() {
            let mut cache = make(2);
            let mut texts = [Vec::new(), Vec::new()];
            // Since they were empty.
            let mut longest = [0; 2];
            for &(sequence, action, size, seed) in &steps {
                let held = &mut texts[sequence];
                let before = held.len();
                match action {
                    0 => {
                        let length = before.saturating_sub(size);
                        match cache.truncate(sequence, length) {
                            Ok(()) => held.truncate(length),
                            // Nothing is lost by asking.
                            Err(_) => {
                                let back = longest[sequence] - length;
                                prop_assert!(back > 5 && length > 0, "{name} by {back}");
                            }
                        }
                        prop_assert_eq!(cache.len(sequence), held.len());
                    }
                    1 if seed < 15 => {
                        cache.reset(sequence).unwrap();
                        held.clear();
                    }
                    _ if before + size < CONTEXT => {
                        held.extend(text(seed, size));
                        let found = feed(&MODEL, &mut *cache, sequence, &[&held[before..]]);
                        let expected = fed_at_once(&make, held);
                        let from = before * VOCABULARY as usize;
                        prop_assert!(found == expected[from..], "{name}: {steps:?}");
                    }
                    _ => {}
                }
                let ever = if held.is_empty() { 0 } else { longest[sequence] };
                longest[sequence] = held.len().max(ever);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn rows_wait_for_their_codes_whatever_is_done(
        steps in prop::collection::vec((0usize..2, 0usize..3, 1usize..45), 1..20),
        rollback in 0usize..8,
    ) {
        let shape = KvShape::of(&MODEL);
        let scheme = Kivi { bits: 2, group: 4, residual: 12, rollback }.scheme(shape).unwrap();
        let mut cache = QuantizedCache::new(scheme, shape, CONTEXT, 2, MODEL.isa).unwrap();
        for (sequence, action, size) in steps {
            let held = cache.len(sequence);
            match action {
                // What it refuses, it leaves as it was.
                0 => drop(cache.truncate(sequence, held.saturating_sub(size))),
                _ => {
                    let span = Span::new(sequence, held, &text(5, size), Want::Nothing);
                    drop(MODEL.forward(&Pass::one(span), &mut cache));
                }
            }
            cache.check_integrity().unwrap();
        }
    }
}

#[test]
fn as_many_tokens_as_promised_can_always_be_rolled_back() {
    let shape = KvShape::of(&MODEL);
    for rollback in [0, 1, 5, 40, usize::MAX] {
        for length in [1, 11, 12, 13, 36, 60, 100] {
            for by in 0..=rollback.min(length) {
                let kivi = Kivi { bits: 2, group: 4, residual: 12, rollback };
                let scheme = kivi.scheme(shape).unwrap();
                let mut cache = QuantizedCache::new(scheme, shape, CONTEXT, 1, MODEL.isa).unwrap();
                let tokens = text(5, length);
                MODEL
                    .forward(&Pass::one(Span::new(0, 0, &tokens, Want::Nothing)), &mut cache)
                    .unwrap();
                cache.truncate(0, length - by).unwrap();
                cache.check_integrity().unwrap();
            }
        }
    }
}

#[test]
fn what_kivi_cannot_roll_back_it_refuses_and_keeps() {
    let make = |n| (methods()[3].make)(&MODEL, CONTEXT, n).unwrap();
    let mut cache = make(1);
    let tokens = text(5, 150);
    feed(&MODEL, &mut *cache, 0, &[&tokens[..140]]);
    let error = cache.truncate(0, 50).unwrap_err().to_string();
    let words = "length to truncate sequence 0 to is 50, expected 0 or at least 108: of earlier \
                 tokens only codes are left";
    assert_eq!(error, words);
    let found = feed(&MODEL, &mut *cache, 0, &[&tokens[140..]]);
    let expected = fed_at_once(&make, &tokens);
    assert_eq!(found, expected[140 * VOCABULARY as usize..]);
    // Rolling back twice goes no further back than rolling back once.
    cache.truncate(0, 130).unwrap();
    assert!(cache.truncate(0, 110).is_err());
    cache.truncate(0, 118).unwrap();
    cache.reset(0).unwrap();
    assert_eq!(feed(&MODEL, &mut *cache, 0, &[&tokens]), expected);
}

#[test]
fn sequences_in_one_pass_do_not_see_each_other() {
    for (name, make) in caches() {
        let mut cache = make(3);
        let texts = [text(1, 90), text(2, 70), text(3, 90)];
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..9 {
            let span = |sequence: usize| {
                let rows = if sequence == 1 {
                    round * 7..round * 7 + 7
                } else {
                    round * 10..round * 10 + 10
                };
                Span::new(sequence, rows.start, &texts[sequence][rows], Want::All)
            };
            let order = [[0, 1, 2], [2, 0, 1], [1, 2, 0]][round % 3];
            let pass = Pass { spans: order.map(span).to_vec() };
            let logits = MODEL.forward(&pass, &mut *cache).unwrap();
            for (span, rows) in pass.spans_with_rows() {
                let rows = rows.flat_map(|row| logits.row(row).to_vec());
                found[span.sequence].extend(rows.map(f32::to_bits));
            }
        }
        for (sequence, found) in found.iter().enumerate() {
            let length = found.len() / VOCABULARY as usize;
            assert!(*found == fed_at_once(&make, &texts[sequence][..length]), "{name}, {sequence}");
        }
    }
}

#[test]
fn a_pass_that_fails_halfway_leaves_no_trace() {
    for (name, make) in caches() {
        let mut cache = make(1);
        let tokens = text(7, 120);
        feed(&MODEL, &mut *cache, 0, &[&tokens[..70]]);
        // The first layer is done, then the pass is given up.
        let pass = Pass::one(Span::new(0, 70, &text(9, 45), Want::Last));
        cache.begin(&pass).unwrap();
        let layer = LayerSpec { index: 0, kv_layer: 0, window: None, scale: 0.2, score_cap: None };
        let rows = |heads| Array3::from_elem((45, heads, 32), 3.5f32);
        cache.attend(layer, &pass, rows(4).view(), rows(2).view(), rows(2).view()).unwrap();
        let found = feed(&MODEL, &mut *cache, 0, &[&tokens[70..]]);
        let expected = fed_at_once(&make, &tokens);
        assert!(found == expected[70 * VOCABULARY as usize..], "{name}");
    }
}

#[test]
fn branches_of_a_draft_are_as_if_alone_or_refused() {
    for (name, make) in caches() {
        let mut cache = make(1);
        let past = text(1, 50);
        feed(&MODEL, &mut *cache, 0, &[&past]);
        // Two children of the past: the second row does not see the first.
        let mut span = Span::new(0, 50, &[7, 8], Want::All);
        span.positions = vec![50, 50];
        span.sees = vec![Visible::until(51), Visible { range: 0..50, also: vec![51] }];
        let logits = MODEL.forward(&Pass::one(span), &mut *cache);
        if name.contains("KIVI") || name.contains("window") {
            let words = "visible slots of sequence 0 is a draft tree, expected a plain run: \
                         branches of a draft cannot be coded in one tile";
            assert_eq!(logits.unwrap_err().to_string(), words);
            continue;
        }
        let alone = fed_at_once(&make, &[&past[..], &[8]].concat());
        let found: Vec<u32> = logits.unwrap().row(1).iter().map(|x| x.to_bits()).collect();
        assert!(found == alone[50 * VOCABULARY as usize..], "{name}");
    }
}
