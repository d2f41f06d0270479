//! What rings cost, and how far back they can be rolled.

use super::{naive, random, run, text};
use gqa_mla::hybrid::RING;
use gqa_mla::{HybridCache, Room};
use kv_cache::{CachedDecoder, ContiguousStore, KvCache, KvShape, Store};
use naive_decode::{Decoder, Element, Model, Pass, Settings, Span, Visible, Want};
use std::sync::Arc;

/// 2 heads of 8 numbers, a key and a value.
const NUMBERS: usize = 2 * (8 + 8);

/// The recipe's pattern, with a window of 16.
fn model(context: usize, element: Element) -> Arc<Model> {
    let windows = [Some(16), Some(16), None, Some(16), Some(16), None];
    random(&windows, &[None, Some(0), None, None, Some(3), None], context, element)
}

fn ring(model: &Model, capacity: usize, sequences: usize, spare: usize) -> HybridCache {
    HybridCache::new(model, Room { capacity, sequences, spare }).unwrap()
}

#[test]
fn two_rings_and_two_whole_pasts_to_the_byte() {
    for (element, width) in [(Element::F32, 4), (Element::Bf16, 2), (Element::F16, 2)] {
        let model = model(4096, element);
        for (capacity, sequences, spare) in [(10, 1, 0), (16, 1, 9), (100, 3, 0), (4096, 1, 5)] {
            let cache = ring(&model, capacity, sequences, spare);
            let places = (16 + spare).min(capacity);
            let numbers = NUMBERS * (2 * places + 2 * capacity);
            assert_eq!(cache.allocated_bytes(), sequences * numbers * width);
            assert_eq!(cache.allocated_bytes(), sequences * cache.bytes_at(capacity));
            assert_eq!(cache.bytes_per_token(), 2 * NUMBERS * width);
            if capacity > 1000 {
                // Full windows: one more token is one more in the layers that see everything.
                let grown = cache.bytes_at(1001) - cache.bytes_at(1000);
                assert_eq!(grown, cache.bytes_per_token());
            }
            assert_eq!(cache.bytes_at(3), 4 * NUMBERS * width * 3, "nothing is full yet");
        }
    }
    let settings = Settings { capacity: 64, prefill_chunk: None, threads: None };
    let decoder = (RING.start)(model(64, Element::Bf16), settings).unwrap();
    assert_eq!(decoder.kv_bytes_per_token(), 2 * NUMBERS * 2);
}

#[test]
fn memory_is_flat_where_every_layer_has_a_window() {
    let model = random(&[Some(16); 3], &[None, Some(0), None], 1 << 20, Element::Bf16);
    let bytes = |capacity| ring(&model, capacity, 1, 4).allocated_bytes();
    assert_eq!(bytes(20), 2 * NUMBERS * 2 * 20);
    assert_eq!([bytes(100), bytes(10_000), bytes(1 << 20)], [bytes(20); 3]);
    assert_eq!(ring(&model, 100, 1, 4).bytes_per_token(), 0);
    // And stays so while a text goes through it, in one chunk that is longer than the ring.
    let mut cache = ring(&model, 200, 1, 4);
    run(&model, &mut cache, 0, &text(150));
    assert_eq!(cache.allocated_bytes(), bytes(20));
}

#[test]
fn a_ring_is_rolled_back_by_one_token_more_than_its_spare_places_and_no_further() {
    let model = model(128, Element::F32);
    let says = |cache: &mut HybridCache, length, words: &str| {
        assert_eq!(cache.truncate(0, length).unwrap_err().to_string(), words);
    };
    let mut cache = ring(&model, 128, 1, 5);
    let tokens = text(50);
    run(&model, &mut cache, 0, &tokens);
    says(
        &mut cache,
        51,
        "length to truncate sequence 0 to is 51, expected at most 50, what it holds",
    );
    let too_far = "length to truncate sequence 0 to is 43, expected 0, or 44 to 50: \
         the rings no longer hold the windows of tokens before 44";
    says(&mut cache, 43, too_far);
    assert_eq!(cache.len(0), 50, "as it was");
    for length in [48, 44] {
        cache.truncate(0, length).unwrap();
        cache.check_integrity().unwrap();
        let other = run(&model, &mut cache, length, &[9, 8]);
        let expected = naive(&model, &[&tokens[..length], &[9, 8]].concat());
        assert_eq!(other.row(0), expected.row(length));
        assert_eq!(other.row(1), expected.row(length + 1));
        cache.truncate(0, length).unwrap();
    }
    // What has been let go stays so: the rollback is counted from where the sequence once was.
    let now = "length to truncate sequence 0 to is 43, expected 0, or 44 to 44: \
         the rings no longer hold the windows of tokens before 44";
    says(&mut cache, 43, now);
    cache.reset(0).unwrap();
    assert_eq!(cache.len(0), 0);
    // Nothing has been let go before the ring is full: any rollback will do.
    run(&model, &mut cache, 0, &tokens[..21]);
    cache.truncate(0, 1).unwrap();
    let found = run(&model, &mut cache, 1, &tokens[1..50]);
    assert_eq!(found.row(48), naive(&model, &tokens).row(49));
    // Without spare places, by one token.
    let mut tight = ring(&model, 128, 1, 0);
    run(&model, &mut tight, 0, &tokens);
    tight.truncate(0, 48).unwrap_err();
    tight.truncate(0, 49).unwrap();
    let found = run(&model, &mut tight, 49, &tokens[49..]);
    assert_eq!(found.row(0), naive(&model, &tokens).row(49));
    for (cache, words) in [
        (cache.truncate(1, 0), "sequence is 1, expected below 1, the number of sequences kept"),
        (cache.reset(7), "sequence is 7, expected below 1, the number of sequences kept"),
    ] {
        assert_eq!(cache.unwrap_err().to_string(), words);
    }
}

#[test]
fn passes_that_do_not_fit_are_refused_and_change_nothing() {
    let model = model(64, Element::F32);
    let mut cache = ring(&model, 40, 2, 0);
    let tokens = text(41);
    run(&model, &mut cache, 0, &tokens[..30]);
    let pass = |sequence, start, tokens: &[u32]| Span::new(sequence, start, tokens, Want::Last);
    let mut sees_too_far = pass(0, 30, &[1]);
    sees_too_far.sees = vec![Visible { range: 5..6, also: vec![30] }];
    let mut stays_near = pass(0, 30, &[1]);
    stays_near.sees = vec![Visible { range: 20..31, also: vec![] }];
    for (spans, words) in [
        (vec![pass(2, 0, &[1])], "sequence is 2, expected below 2, the number of sequences kept"),
        (vec![pass(0, 29, &[1])], "start of sequence 0 is 29, expected 30, what it holds"),
        (
            vec![pass(0, 30, &tokens[30..41])],
            "the cache of sequence 0 holds 40 tokens; 41 were asked for",
        ),
        (vec![pass(1, 0, &[1]); 2], "spans of sequence 1 in one pass is two, expected one"),
        (
            vec![pass(1, 0, &[1, 2]), sees_too_far],
            "first slot of sequence 0 seen in layer 0 is 5, expected at least 14, the first still held",
        ),
        (vec![pass(0, 30, &[1, 40])], "token is 40, expected an id below the vocabulary's 40"),
    ] {
        let error = model.forward(&Pass { spans }, &mut cache).unwrap_err();
        assert_eq!(error.to_string(), words);
        assert_eq!((cache.len(0), cache.len(1)), (30, 0));
    }
    let found = run(&model, &mut cache, 30, &tokens[30..40]);
    assert_eq!(found.row(9), naive(&model, &tokens).row(39));
    cache.truncate(0, 0).unwrap();
    cache.truncate(0, 0).unwrap();
    assert_eq!(run(&model, &mut cache, 0, &[3]), naive(&model, &[3]));
    stays_near.sequence = 1;
    model.forward(&Pass::one(stays_near), &mut cache).unwrap_err();
}

#[test]
fn a_pass_that_fails_half_way_leaves_rings_as_they_were() {
    // Keys that overflow f16 stop the pass in a late layer, when others have made theirs.
    let windows = [Some(4), Some(4), None];
    let mut model = Arc::into_inner(random(&windows, &[None; 3], 64, Element::F16)).unwrap();
    let mut cache = ring(&model, 64, 1, 0);
    let tokens = text(20);
    run(&model, &mut cache, 0, &tokens[..15]);
    let norm = model.blocks[2].attention_norm.replace(vec![1e30; 24]);
    let pass = Pass::one(Span::new(0, 15, &tokens[..9], Want::Last));
    let said = model.forward(&pass, &mut cache).unwrap_err().to_string();
    assert!(said.contains("layer 2") && said.contains("finite"), "{said}");
    model.blocks[2].attention_norm = norm;
    cache.check_integrity().unwrap();
    // One token by itself: what the failed pass meant to keep would still be there behind it.
    run(&model, &mut cache, 15, &tokens[15..16]);
    let found = run(&model, &mut cache, 16, &tokens[16..]);
    assert_eq!(found.row(3), naive(&model, &tokens).row(19));
}

#[test]
fn a_decoder_over_a_ring_feeds_all_tokens_or_none() {
    // Once the ring has come round, no chunk can be taken back.
    let model = random(&[Some(4), None], &[None; 2], 64, Element::F32);
    let cache = ring(&model, 64, 1, 0);
    let mut decoder = CachedDecoder::new(Arc::clone(&model), cache, Some(3)).unwrap();
    decoder.feed(&text(12)).unwrap();
    let said = decoder.feed(&[1, 2, 3, 4, 5, 6, 7, 8, 99]).unwrap_err().to_string();
    assert_eq!(said, "token is 99, expected an id below the vocabulary's 40");
    assert_eq!(decoder.len(), 12);
    let expected = naive(&model, &[&text(12)[..], &[9]].concat());
    assert_eq!(decoder.feed(&[9]).unwrap(), expected.row(12).to_vec());
}

#[test]
fn who_shares_with_less_sight_is_served_and_who_has_none_to_share_with_is_refused() {
    // Not a model that `HybridConfig` lets through, but one that can be put together.
    let windows = [Some(3), Some(3), Some(3)];
    let with = |own: [Option<usize>; 3]| {
        let shares = [None, Some(0), Some(0)];
        let mut model = Arc::into_inner(random(&windows, &shares, 64, Element::F32)).unwrap();
        model.blocks.iter_mut().zip(own).for_each(|(block, window)| block.window = window);
        model
    };
    for own in [[Some(2), Some(9), Some(5)], [Some(2), None, Some(3)]] {
        let model = with(own);
        let mut cache = ring(&model, 30, 1, 0);
        let places = own[1].unwrap_or(30);
        assert_eq!(cache.allocated_bytes(), NUMBERS * 4 * places);
        let tokens = text(30);
        run(&model, &mut cache, 0, &tokens[..20]);
        assert_eq!(
            run(&model, &mut cache, 20, &tokens[20..]).row(9),
            naive(&model, &tokens).row(29)
        );
    }
    let mut model = with([None; 3]);
    model.blocks.remove(0);
    let room = Room { capacity: 8, sequences: 1, spare: 0 };
    let said = HybridCache::new(&model, room).err().unwrap().to_string();
    assert!(said.contains("layer 0's keys and values is none"), "{said}");
}

#[test]
fn a_place_that_is_no_number_is_noticed() {
    let model = model(64, Element::F32);
    let room = Room { capacity: 64, sequences: 1, spare: 0 };
    let cache = HybridCache::over(&model, room, |window, shape: KvShape, places| {
        let mut store = ContiguousStore::new(shape, places, 1)?;
        if window.is_some() {
            let place = kv_cache::Place { sequence: 0, layer: 0, kv_head: 1, slot: 9 };
            store.write(place, &[1.0; 8], &[f32::NAN; 8]);
        }
        Ok(store)
    });
    let said = cache.unwrap().check_integrity().unwrap_err().to_string();
    assert_eq!(said, "place 9 of layer 0, sequence 0 is NaN, expected a finite number");
}
