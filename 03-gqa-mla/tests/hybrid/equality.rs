//! Rings give the bits of masked full attention: without a cache, and with a cache of everything.

use super::{bits, naive, random, run, text};
use gqa_mla::hybrid::RING;
use gqa_mla::{HybridCache, Room};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use naive_decode::{Decoder, Element, Model, NaiveDecoder, Pass, Settings, Span, Visible, Want};

const WINDOWS: [usize; 8] = [1, 2, 3, 15, 16, 17, 33, 64];

fn ring(model: &Model, capacity: usize, sequences: usize, spare: usize) -> HybridCache {
    HybridCache::new(model, Room { capacity, sequences, spare }).unwrap()
}

fn masked(model: &Model, capacity: usize, sequences: usize) -> Cached<ContiguousStore> {
    let store = ContiguousStore::new(KvShape::of(model), capacity, sequences).unwrap();
    Cached::new(store, model.isa)
}

/// Every row's logits, fed in chunks of `chunk` to both caches, are those of attention without one.
fn same_in_chunks(model: &Model, tokens: &[u32], chunk: usize, spare: usize, what: &str) {
    let expected = naive(model, tokens);
    let mut ring = ring(model, tokens.len(), 1, spare);
    let mut masked = masked(model, tokens.len(), 1);
    for (i, part) in tokens.chunks(chunk).enumerate() {
        let from_ring = run(model, &mut ring, i * chunk, part);
        let from_masked = run(model, &mut masked, i * chunk, part);
        for row in 0..part.len() {
            let slot = i * chunk + row;
            let expected = bits(&expected, slot);
            assert!(bits(&from_ring, row) == expected, "{what}: ring, chunks of {chunk}, {slot}");
            assert!(bits(&from_masked, row) == expected, "{what}: masked, {chunk}, {slot}");
        }
        ring.check_integrity().unwrap();
    }
}

#[test]
fn a_ring_is_masked_full_attention_at_every_window_length_and_chunk() {
    for window in WINDOWS {
        let windows = [Some(window), Some(window), None];
        let model = random(&windows, &[None, Some(0), None], 160, Element::Bf16);
        // Chunks shorter than the window, as long, longer, and longer than two.
        for chunk in [1, 7, 16, window, window + 1, 2 * window + 3, 150] {
            same_in_chunks(&model, &text(150), chunk, 0, &format!("window {window}"));
        }
    }
}

#[test]
fn spare_places_and_every_element_type_change_nothing() {
    for element in [Element::F32, Element::Bf16, Element::F16] {
        let model = random(&[Some(5), None, Some(16)], &[None; 3], 64, element);
        for spare in [0, 1, 11, 12, 100, usize::MAX] {
            same_in_chunks(&model, &text(60), 6, spare, &format!("{element:?}, spare {spare}"));
        }
    }
}

#[test]
fn windows_across_the_splits_of_a_long_text() {
    // Partial results begin at every 512th slot, whatever the ring's places are.
    for window in [40, 512, 530] {
        let model = random(&[Some(window)], &[None], 1100, Element::F32);
        same_in_chunks(&model, &text(1090), 109, 3, &format!("window {window}"));
    }
}

#[test]
fn sequences_side_by_side_do_not_see_each_other() {
    let windows = [Some(9), Some(9), None, Some(4)];
    let model = random(&windows, &[None, Some(0), None, None], 128, Element::F16);
    let texts = [text(90), text(100)[40..].to_vec(), vec![3; 70]];
    let expected = texts.each_ref().map(|text| naive(&model, text));
    let mut cache = ring(&model, 90, 3, 2);
    // Chunks of different length in one pass, in changing order; a sequence that ends drops out.
    let chunks = [5, 13, 1, 31, 2, 8];
    for pass in 0.. {
        let mut spans = Vec::new();
        for i in 0..3 {
            let sequence = (i + pass) % 3;
            let held = cache.len(sequence);
            let left = &texts[sequence][held..];
            let chunk = chunks[(pass + 2 * sequence) % chunks.len()].min(left.len());
            if chunk > 0 {
                spans.push(Span::new(sequence, held, &left[..chunk], Want::All));
            }
        }
        if spans.is_empty() {
            break;
        }
        let pass = Pass { spans };
        let logits = model.forward(&pass, &mut cache).unwrap();
        for (span, rows) in pass.spans_with_rows() {
            for (row, slot) in rows.zip(span.start..) {
                let place = format!("slot {slot} of sequence {}", span.sequence);
                assert_eq!(bits(&logits, row), bits(&expected[span.sequence], slot), "{place}");
            }
        }
        cache.check_integrity().unwrap();
    }
}

#[test]
fn a_branch_of_a_draft_tree_sees_what_it_would_see_alone() {
    let model = random(&[Some(6), None, Some(17)], &[None; 3], 64, Element::F32);
    let past = text(30);
    let mut cache = ring(&model, 64, 1, 0);
    run(&model, &mut cache, 0, &past);
    // Slots 30 and 31 are one branch, 32 and 33 another.
    let mut span = Span::new(0, 30, &[4, 5, 6, 7], Want::All);
    span.positions = vec![30, 31, 30, 31];
    let sees = |also: &[usize]| Visible { range: 0..30, also: also.to_vec() };
    span.sees = vec![sees(&[30]), sees(&[30, 31]), sees(&[32]), sees(&[32, 33])];
    let logits = model.forward(&Pass::one(span), &mut cache).unwrap();
    for (branch, rows) in [([4, 5], 0..2), ([6, 7], 2..4)] {
        let alone = naive(&model, &[&past[..], &branch].concat());
        for (row, slot) in rows.zip(30..) {
            assert_eq!(bits(&logits, row), bits(&alone, slot), "branch {branch:?}, slot {slot}");
        }
    }
}

#[test]
fn the_rung_decodes_as_the_naive_loop_does() {
    let windows = [Some(8), Some(8), None, Some(8), Some(8), None];
    let shares = [None, Some(0), None, None, Some(3), None];
    let model = random(&windows, &shares, 64, Element::Bf16);
    for prefill_chunk in [None, Some(1), Some(5)] {
        let mut decoder =
            (RING.start)(model.clone(), Settings { capacity: 60, prefill_chunk, threads: None })
                .unwrap();
        let mut naive = NaiveDecoder::new(model.clone());
        let tokens = text(50);
        for part in [&tokens[..30], &tokens[30..31], &tokens[31..50]] {
            assert_eq!(decoder.feed(part).unwrap(), naive.feed(part).unwrap());
        }
        assert_eq!(decoder.rows(), 50);
    }
}

#[test]
fn a_refused_feed_leaves_the_sequence_as_it_was() {
    let model = random(&[Some(4), None], &[None; 2], 64, Element::F32);
    for prefill_chunk in [None, Some(1), Some(3)] {
        let settings = Settings { capacity: 40, prefill_chunk, threads: None };
        let mut decoder = (RING.start)(model.clone(), settings).unwrap();
        let mut naive = NaiveDecoder::new(model.clone());
        let mut feed = |tokens: &[u32]| {
            let [found, expected] =
                [&mut *decoder, &mut naive as &mut dyn Decoder].map(|d| d.feed(tokens));
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{prefill_chunk:?}"),
                (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected.to_string()),
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        };
        // The unknown token is in the last chunk, when the ring has come round.
        feed(&[1, 2, 3, 4, 5, 6, 7, 8, 99]);
        feed(&text(12));
        feed(&[1, 2, 3, 4, 5, 6, 7, 8, 99]);
        feed(&[7]);
        feed(&[]);
        feed(&[5, 6]);
        let full = decoder.feed(&text(26)).unwrap_err().to_string();
        assert_eq!(full, "the cache of sequence 0 holds 40 tokens; 41 were asked for");
        assert_eq!(decoder.feed(&text(25)).unwrap().len(), 40);
    }
    let settings = Settings { capacity: 100, prefill_chunk: None, threads: None };
    let full = (RING.start)(model.clone(), settings).unwrap().feed(&text(65)).unwrap_err();
    assert_eq!(full.to_string(), "the model's context holds 64 tokens; 65 were asked for");
    let settings = Settings { capacity: 40, prefill_chunk: Some(0), threads: None };
    let error = (RING.start)(model, settings).err().unwrap();
    assert_eq!(error.to_string(), "prefill chunk is 0, expected at least 1 token");
}
