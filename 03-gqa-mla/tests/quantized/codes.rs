//! A cache around codes: what they lose, and that nothing else is lost.

use crate::world::{CONTEXT, MODEL, VOCABULARY, exact, fed_at_once, feed, model, text};
use gqa_mla::quantized::methods;
use kv_cache::{Cached, ContiguousStore, KvShape};
use naive_decode::Element;

#[test]
fn codes_that_lose_nothing_give_the_bits_of_a_plain_cache() {
    for element in [Element::F32, Element::Bf16] {
        let model = model(element);
        let store = ContiguousStore::new(KvShape::of(&model), CONTEXT, 1).unwrap();
        let mut plain = Cached::new(store, model.isa);
        let tokens = text(3, 120);
        let expected = feed(&model, &mut plain, 0, &[&tokens]);
        for (key_tokens, value_tokens, keys, values, rollback) in
            [(1, 1, 0, 0, 0), (8, 1, 0, 8, 0), (5, 3, 2, 11, 4), (1, 1, 6, 0, 0), (200, 1, 0, 0, 0)]
        {
            for chunk in [1, 7, 50, 120] {
                let mut cache = exact(&model, key_tokens, value_tokens, keys, values, rollback, 1);
                let chunks: Vec<&[u32]> = tokens.chunks(chunk).collect();
                let found = feed(&model, &mut *cache, 0, &chunks);
                assert!(found == expected, "tiles {key_tokens}, {value_tokens}; chunks of {chunk}");
            }
        }
    }
}

#[test]
fn codes_that_lose_something_change_bits_but_not_beyond_reason() {
    let store = ContiguousStore::new(KvShape::of(&MODEL), CONTEXT, 1).unwrap();
    let mut plain = Cached::new(store, MODEL.isa);
    let tokens = text(3, 150);
    let expected = feed(&MODEL, &mut plain, 0, &[&tokens]);
    let numbers = |bits: &[u32]| bits.iter().map(|&b| f32::from_bits(b)).collect::<Vec<_>>();
    let spread = numbers(&expected).iter().map(|x| x * x).sum::<f32>().sqrt();
    for method in methods() {
        let mut cache = (method.make)(&MODEL, CONTEXT, 1).unwrap();
        let found = feed(&MODEL, &mut *cache, 0, &[&tokens]);
        let (a, b) = (numbers(&expected), numbers(&found));
        let off = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt() / spread;
        assert!(off > 0.0, "{} changes nothing", method.name);
        let bits = cache.bytes_per_token() as f32 / 32.0;
        let bound = [(8.0, 0.05), (4.0, 0.4), (0.0, 0.8)].iter().find(|bound| bits >= bound.0);
        let (_, bound) = bound.expect("any number of bits is at least none");
        assert!(off < *bound, "{}: logits are off by {off} of their size", method.name);
    }
}

#[test]
fn a_kivi_row_sees_itself_and_its_window_as_they_are() {
    // As long as nothing has left the window, nothing is lost; the next key tile loses something.
    let make = |n| (methods()[3].make)(&MODEL, CONTEXT, n).unwrap();
    let store = ContiguousStore::new(KvShape::of(&MODEL), CONTEXT, 1).unwrap();
    let tokens = text(3, 32);
    let vocabulary = VOCABULARY as usize;
    let expected = feed(&MODEL, &mut Cached::new(store, MODEL.isa), 0, &[&tokens]);
    let found = fed_at_once(&make, &tokens);
    assert_eq!(found[..31 * vocabulary], expected[..31 * vocabulary]);
    assert_ne!(found[31 * vocabulary..], expected[31 * vocabulary..]);
}
