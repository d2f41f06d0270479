//! Building the cache.

use super::{bits, decoder, key, slab, target, target_config, text};
use kv_cache::{CONTIGUOUS, ContiguousStore, KvCache, KvShape, Store};
use naive_decode::{Decoder, Pass, Settings, Span, Want};

#[test]
fn the_slab_of_the_embedded_model() {
    let shape = KvShape::of(&target());
    assert_eq!(shape.bytes_per_token(), 3_072);
    let store = ContiguousStore::new(shape, 512, 1).unwrap();
    assert_eq!(store.allocated_bytes(), 1_572_864);
    // Queries would be twice as much again: eight heads where keys and values have two each.
    let queries = shape.layers * target_config().heads * shape.key_dim * shape.element.bytes();
    assert_eq!(queries, 6_144);
}

#[test]
fn chunks_change_no_bit() {
    let model = target();
    let prompt = text(100);
    let after = |chunk| {
        let settings = Settings { capacity: 100, prefill_chunk: chunk, threads: None };
        bits(&(CONTIGUOUS.start)(model.clone(), settings).unwrap().feed(&prompt).unwrap())
    };
    let whole = after(None);
    assert_eq!(after(Some(7)), whole);
    assert_eq!(after(Some(1)), whole);
}

#[test]
fn a_pass_that_starts_past_the_cache_is_refused() {
    let model = target();
    let mut cache = slab(&model, 64);
    let tokens = text(41);
    model.forward(&Pass::one(Span::new(0, 0, &tokens[..40], Want::Last)), &mut cache).unwrap();
    cache.truncate(0, 30).unwrap();
    let stale = Pass::one(Span::new(0, 40, &tokens[40..], Want::Last));
    let refused = model.forward(&stale, &mut cache).unwrap_err().to_string();
    assert_eq!(refused, "start of sequence 0 is 40, expected 30, what it holds");
    assert_eq!(cache.len(0), 30);
}

#[test]
fn keys_depend_on_the_past_and_never_on_the_future() {
    let model = target();
    let read = |tokens: &[u32], layer, slot| {
        let mut decoder = decoder(&model, slab(&model, 64));
        decoder.feed(tokens).unwrap();
        key(decoder.executor.attention.store(), layer, 0, slot)
    };
    let one = text(20);
    let (mut later, mut earlier) = (one.clone(), one.clone());
    later[15] = 9;
    earlier[5] = 9;
    for layer in 0..6 {
        assert_eq!(read(&one, layer, 10), read(&later, layer, 10), "layer {layer}");
        // In layer 0 a key is made from its token alone; above, from all that the token has seen.
        let same = read(&one, layer, 10) == read(&earlier, layer, 10);
        assert_eq!(same, layer == 0, "layer {layer}");
    }
}
