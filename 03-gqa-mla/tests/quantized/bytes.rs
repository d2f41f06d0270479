//! Bytes, and refusals.

use crate::world::{CONTEXT, Exact, MODEL, caches, feed, text};
use gqa_mla::quantized::{QuantizedCache, Recent, Scheme, methods};
use kv_cache::{KvCache, KvShape};
use naive_decode::{Pass, Result, Span, Want};

#[test]
fn bytes_are_what_the_formulas_say() {
    // Of one token, layer and head, D = 32: its key and its value.
    let expected = [
        ("INT8", 32 + 2, 32 + 2, 0),
        ("FP8 E4M3", 32, 32, 0),
        // Codes, and a scale and a zero point for every 32 numbers; 64 tokens' rows in f32.
        ("KIVI 4 bits", 16 + 4, 16 + 4, 64),
        ("KIVI 2 bits", 8 + 4, 8 + 4, 64),
        // Codes of 2.5 bits, a length; the rest's length, signs.
        ("TurboQuant 3.5 bits", 10 + 2 + 2 + 4, 14 + 2, 0),
        ("TurboQuant 2.5 bits", 6 + 2 + 2 + 4, 10 + 2, 0),
        ("TurboQuant 3.5 bits, no signs", 14 + 2, 14 + 2, 0),
        ("TurboQuant 2.5 bits, no signs", 10 + 2, 10 + 2, 0),
    ];
    assert_eq!(methods().len(), expected.len());
    let heads = 2 * 2;
    for (method, (name, key, value, window)) in methods().iter().zip(expected) {
        assert_eq!(method.name, name);
        for (capacity, sequences) in [(64, 1), (192, 3)] {
            let cache = (method.make)(&MODEL, capacity, sequences).unwrap();
            assert_eq!(cache.bytes_per_token(), heads * (key + value), "{name}");
            let window = heads * window * (32 + 32) * 4;
            let expected = sequences * (capacity * cache.bytes_per_token() + window);
            assert_eq!(cache.allocated_bytes(), expected, "{name}, {capacity} tokens");
            assert_eq!(cache.capacity(), capacity);
        }
    }
    // Tiles that capacity does not fill are not set aside.
    let cache = (methods()[2].make)(&MODEL, 100, 1).unwrap();
    assert_eq!(cache.allocated_bytes(), heads * (96 * 20 + 100 * 20 + 64 * 64 * 4));
}

#[test]
fn bits_that_are_kept() {
    let numbers = (2 * 2 * (32 + 32)) as f64;
    let bits = |name: &str| {
        let method = methods().into_iter().find(|method| method.name == name).unwrap();
        let cache = (method.make)(&MODEL, 64, 1).unwrap();
        8.0 * cache.bytes_per_token() as f64 / numbers
    };
    assert_eq!(bits("INT8"), 8.5);
    assert_eq!(bits("FP8 E4M3"), 8.0);
    assert_eq!(bits("KIVI 4 bits"), 5.0);
    assert_eq!(bits("KIVI 2 bits"), 3.0);
    assert_eq!(bits("TurboQuant 3.5 bits"), 4.25);
    assert_eq!(bits("TurboQuant 2.5 bits"), 3.25);
    assert_eq!(bits("TurboQuant 2.5 bits, no signs"), 3.0);
}

#[test]
fn nothing_is_allocated_while_decoding() {
    for (name, make) in caches() {
        let mut cache = make(1);
        let before = cache.allocated_bytes();
        feed(&MODEL, &mut *cache, 0, &[&text(1, 100), &[3], &[4]]);
        assert_eq!(cache.allocated_bytes(), before, "{name}");
    }
}

#[test]
fn refusals_are_those_of_every_cache() {
    for (name, make) in caches() {
        let mut cache = make(2);
        let run = |cache: &mut dyn KvCache, spans: Vec<Span>| -> Result<()> {
            MODEL.forward(&Pass { spans }, cache).map(drop)
        };
        let span =
            |sequence, start, length| Span::new(sequence, start, &text(1, length), Want::Last);
        run(&mut *cache, vec![span(0, 0, 10)]).unwrap();
        for (error, words) in [
            (cache.truncate(2, 0), "sequence is 2, expected below 2, the number of sequences kept"),
            (
                cache.truncate(0, 11),
                "length to truncate sequence 0 to is 11, expected at most 10, what it holds",
            ),
            (
                run(&mut *cache, vec![span(2, 0, 1)]),
                "sequence is 2, expected below 2, the number of sequences kept",
            ),
            (
                run(&mut *cache, vec![span(0, 3, 1)]),
                "start of sequence 0 is 3, expected 10, what it holds",
            ),
            (
                run(&mut *cache, vec![span(1, 0, 1), span(1, 0, 1)]),
                "spans of sequence 1 in one pass is two, expected one",
            ),
        ] {
            assert_eq!(error.unwrap_err().to_string(), words, "{name}");
        }
        let begun = cache.begin(&Pass::one(span(0, 10, CONTEXT - 9)));
        let words = "the cache of sequence 0 holds 200 tokens; 201 were asked for";
        assert_eq!(begun.unwrap_err().to_string(), words, "{name}");
    }
}

#[test]
fn values_that_are_part_of_their_keys_are_refused() {
    let shape = KvShape { value_dim: 0, ..KvShape::of(&MODEL) };
    let scheme = Scheme {
        keys: Box::new(Exact { tokens: 1, dim: 32 }),
        values: Box::new(Exact { tokens: 1, dim: 0 }),
        recent: Recent::NONE,
    };
    let error = QuantizedCache::new(scheme, shape, 10, 1, MODEL.isa).err().unwrap();
    let words = "value width is 0, expected at least 1: values that are part of their keys are not \
                 quantised here";
    assert_eq!(error.to_string(), words);
}

/// Rather than the end of the program.
#[test]
fn codes_that_no_memory_holds_are_refused() {
    for method in methods() {
        for (capacity, sequences) in [(usize::MAX, 1), (1 << 40, 1 << 40), (1 << 50, 1)] {
            let said = (method.make)(&MODEL, capacity, sequences).err().unwrap().to_string();
            let words =
                ["bytes of the codes is ", ", expected no more than the system has to give"];
            assert!(words.iter().all(|word| said.contains(word)), "{}: {said}", method.name);
        }
    }
}
