//! Quantised caches as caches: chunks, rollback, several sequences, bytes, refusals.

use gqa_mla::quantized::{Codec, Kivi, QuantizedCache, Recent, Scheme, methods};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape};
use naive_decode::{
    Config, Element, LayerSpec, LoadOptions, Model, Pass, Result, Span, Visible, Want,
};
use ndarray::Array3;
use proptest::prelude::*;
use std::sync::LazyLock;

const CONTEXT: usize = 200;
const VOCABULARY: u32 = 40;

fn model(kv_element: Element) -> Model {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 32,
        "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 200}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Model::random(config, 3, LoadOptions { kv_element, ..LoadOptions::default() }).unwrap()
}

static MODEL: LazyLock<Model> = LazyLock::new(|| model(Element::F32));

/// A cache to try: its name, and an empty one for so many sequences.
type Try = (&'static str, Box<dyn Fn(usize) -> Box<dyn KvCache>>);

/// Every method, and one with all that no method has together.
fn caches() -> Vec<Try> {
    let mut caches: Vec<Try> = methods()
        .into_iter()
        .map(|method| -> Try {
            let make = move |n| (method.make)(&MODEL, CONTEXT, n).unwrap();
            (method.name, Box::new(make))
        })
        .collect();
    let small = |n| -> Box<dyn KvCache> {
        let shape = KvShape::of(&MODEL);
        let kivi = Kivi { bits: 4, group: 4, residual: 12, rollback: 5 };
        let scheme = kivi.scheme(shape).unwrap();
        Box::new(QuantizedCache::new(scheme, shape, CONTEXT, n, MODEL.isa).unwrap())
    };
    caches.push(("KIVI with a small window", Box::new(small)));
    caches.push(("tiles and windows", Box::new(|n| exact(&MODEL, 7, 3, 4, 5, 6, n))));
    caches
}

/// Codes that lose nothing: the numbers themselves.
struct Exact {
    tokens: usize,
    dim: usize,
}

impl Codec for Exact {
    fn tokens(&self) -> usize {
        self.tokens
    }
    fn bytes(&self) -> usize {
        self.tokens * self.dim * 4
    }
    fn encode(&self, rows: &[f32], tile: &mut [u8]) {
        for (bytes, x) in tile.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
            *bytes = x.to_le_bytes();
        }
    }
    fn numbers(&self, tile: &[u8], token: usize, numbers: &mut [f32]) -> f32 {
        let bytes = &tile.as_chunks::<4>().0[token * self.dim..];
        numbers.iter_mut().zip(bytes).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
        1.0
    }
}

fn exact(
    model: &Model,
    key_tokens: usize,
    value_tokens: usize,
    keys: usize,
    values: usize,
    rollback: usize,
    sequences: usize,
) -> Box<dyn KvCache> {
    let shape = KvShape::of(model);
    let scheme = Scheme {
        keys: Box::new(Exact { tokens: key_tokens, dim: shape.key_dim }),
        values: Box::new(Exact { tokens: value_tokens, dim: shape.value_dim }),
        recent: Recent { keys, values, rollback },
    };
    Box::new(QuantizedCache::new(scheme, shape, CONTEXT, sequences, model.isa).unwrap())
}

fn text(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 7 + i * seed + seed) % VOCABULARY).collect()
}

/// Feeds tokens in chunks; the bits of all their logits.
fn feed(model: &Model, cache: &mut dyn KvCache, sequence: usize, chunks: &[&[u32]]) -> Vec<u32> {
    let mut bits = Vec::new();
    for chunk in chunks {
        let span = Span::new(sequence, cache.len(sequence), chunk, Want::All);
        let logits = model.forward(&Pass::one(span), cache).unwrap();
        bits.extend(logits.iter().map(|x| x.to_bits()));
    }
    bits
}

fn fed_at_once(make: &dyn Fn(usize) -> Box<dyn KvCache>, tokens: &[u32]) -> Vec<u32> {
    feed(&MODEL, &mut *make(1), 0, &[tokens])
}

// --- The cache around the codes ----------------------------------------------------------------

#[test]
fn codes_that_lose_nothing_give_the_bits_of_a_plain_cache() {
    for element in [Element::F32, Element::Bf16] {
        let model = model(element);
        let store = ContiguousStore::new(KvShape::of(&model), CONTEXT, 1);
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
    let store = ContiguousStore::new(KvShape::of(&MODEL), CONTEXT, 1);
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
    let store = ContiguousStore::new(KvShape::of(&MODEL), CONTEXT, 1);
    let tokens = text(3, 32);
    let vocabulary = VOCABULARY as usize;
    let expected = feed(&MODEL, &mut Cached::new(store, MODEL.isa), 0, &[&tokens]);
    let found = fed_at_once(&make, &tokens);
    assert_eq!(found[..31 * vocabulary], expected[..31 * vocabulary]);
    assert_ne!(found[31 * vocabulary..], expected[31 * vocabulary..]);
}

// --- Chunks, rollback, sequences ---------------------------------------------------------------

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
            for &(sequence, action, size, seed) in &steps {
                let held = &mut texts[sequence];
                let before = held.len();
                match action {
                    0 => {
                        let length = before.saturating_sub(size);
                        match cache.truncate(sequence, length) {
                            Ok(()) => held.truncate(length),
                            // Nothing is lost by asking.
                            Err(_) => prop_assert!(size > 5 && length > 0, "{name} by {size}"),
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
            }
        }
    }
}

#[test]
fn as_many_tokens_as_promised_can_always_be_rolled_back() {
    let shape = KvShape::of(&MODEL);
    for rollback in [0, 1, 5, 40] {
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

// --- Bytes and refusals ------------------------------------------------------------------------

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
