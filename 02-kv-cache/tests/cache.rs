//! What a cache costs, what it refuses, and that keys and values are all it needs.

use kv_cache::{
    CONTIGUOUS, Cached, CachedDecoder, ContiguousStore, KvCache, KvShape, LISTS, ListStore, Place,
    Store, forward_kv_cache, forward_store,
};
use ladder_tests::watched::{Watched, largest_while};
use naive_decode::{
    Attention, Config, Decoder, Element, Error, LoadOptions, Logits, Model, NaiveAttention,
    NaiveDecoder, Pass, Result, Settings, Span, Visible, Want, forward_attention,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[global_allocator]
static ALLOCATOR: Watched = Watched;

const ELEMENTS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];

const SHAPE: KvShape =
    KvShape { layers: 3, kv_heads: 2, key_dim: 8, value_dim: 8, element: Element::F32 };

fn model(kv_element: Element) -> Arc<Model> {
    let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 24, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32,
        "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}"#;
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { kv_element, ..LoadOptions::default() };
    Arc::new(Model::random(config, 3, options).unwrap())
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).map(|i| (i * i + 3) % 40).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

fn run(model: &Model, cache: &mut dyn Attention, start: usize, tokens: &[u32]) -> Logits {
    model.forward(&Pass::one(Span::new(0, start, tokens, Want::Last)), cache).unwrap()
}

// --- Size --------------------------------------------------------------------------------------

#[test]
fn a_slab_is_as_large_as_the_formula_says_to_the_byte() {
    for element in ELEMENTS {
        for (layers, kv_heads, head_dim) in [(1, 1, 2), (3, 2, 8), (6, 2, 32), (5, 7, 10)] {
            for (capacity, sequences) in [(1, 1), (100, 1), (33, 4), (0, 1)] {
                let shape =
                    KvShape { layers, kv_heads, key_dim: head_dim, value_dim: head_dim, element };
                let width = match element {
                    Element::F32 => 4,
                    Element::Bf16 | Element::F16 => 2,
                };
                let formula = 2 * layers * kv_heads * head_dim * capacity * sequences * width;
                let new = || ContiguousStore::new(shape, capacity, sequences).unwrap();
                let (store, asked_for) = largest_while(new);
                assert_eq!(asked_for, formula, "{shape:?} {capacity} {sequences}");
                assert_eq!(store.allocated_bytes(), formula, "{shape:?} {capacity} {sequences}");
                assert_eq!(shape.bytes(capacity, sequences), formula);
            }
        }
    }
}

#[test]
fn writing_asks_for_no_memory_in_a_slab_and_for_every_token_in_lists() {
    let (key, value) = ([1.0_f32; 8], [2.0_f32; 8]);
    for element in ELEMENTS {
        let shape = KvShape { element, ..SHAPE };
        let mut slab = ContiguousStore::new(shape, 20, 1).unwrap();
        let mut lists = ListStore::new(shape, 20, 1);
        for slot in 0..20 {
            let place = Place { sequence: 0, layer: 1, kv_head: 1, slot };
            let ((), asked_for) = largest_while(|| slab.write(place, &key, &value));
            assert_eq!(asked_for, 0);
            // A key or a value at least; now and then a longer list for them.
            let ((), asked_for) = largest_while(|| lists.write(place, &key, &value));
            assert!(asked_for >= size_of_val(&key), "{asked_for}");
        }
    }
}

#[test]
fn a_slab_keeps_its_size_and_lists_grow_by_a_token_at_a_time() {
    for element in ELEMENTS {
        let model = model(element);
        let shape = KvShape::of(&model);
        let mut slab = Cached::new(ContiguousStore::new(shape, 20, 1).unwrap(), model.isa);
        let mut lists = Cached::new(ListStore::new(shape, 20, 1), model.isa);
        for (held, token) in prompt(20).into_iter().enumerate() {
            run(&model, &mut slab, held, &[token]);
            run(&model, &mut lists, held, &[token]);
            assert_eq!(slab.allocated_bytes(), shape.bytes(20, 1));
            // Lists keep f32 in any case.
            assert_eq!(lists.allocated_bytes(), 2 * 3 * 2 * 8 * 4 * (held + 1));
            assert_eq!(lists.bytes_per_token() * (held + 1), lists.allocated_bytes());
        }
        assert_eq!(model.kv_bytes_per_token(), slab.bytes_per_token());
    }
}

// --- Refusals ----------------------------------------------------------------------------------

#[test]
fn refusals_say_what_is_full_and_how_full() {
    for rung in [LISTS, CONTIGUOUS] {
        let settings = Settings { capacity: 10, prefill_chunk: Some(4), threads: None };
        let mut decoder = (rung.start)(model(Element::F32), settings).unwrap();
        assert_eq!(decoder.capacity(), 10);
        decoder.feed(&prompt(7)).unwrap();
        let says = |error: naive_decode::Error, words: &str| assert_eq!(error.to_string(), words);
        let full = decoder.feed(&prompt(4)).unwrap_err();
        says(full, "the cache of sequence 0 holds 10 tokens; 11 were asked for");
        says(decoder.feed(&[]).unwrap_err(), "tokens to feed is none, expected at least one");
        // An unknown token is refused before any of them is fed.
        let unknown = decoder.feed(&[1, 2, 40]).unwrap_err();
        says(unknown, "token is 40, expected an id below the vocabulary's 40");
        decoder.feed(&prompt(3)).unwrap();
        decoder.feed(&[1]).unwrap_err();
    }
}

#[test]
fn a_cache_that_outlasts_the_models_context_is_not_what_is_full() {
    let model = model(Element::F32);
    let store = ContiguousStore::new(KvShape::of(&model), 100, 1).unwrap();
    let cache = Cached::new(store, model.isa);
    let mut decoder = CachedDecoder::new(model, cache, None).unwrap();
    decoder.feed(&prompt(60)).unwrap();
    let full = decoder.feed(&prompt(5)).unwrap_err().to_string();
    assert_eq!(full, "the model's context holds 64 tokens; 65 were asked for");
    decoder.feed(&prompt(4)).unwrap();
}

#[test]
fn a_cache_that_was_cut_to_the_models_context_is_not_what_is_full() {
    let settings = Settings { capacity: 100, prefill_chunk: None, threads: None };
    let mut decoder = (CONTIGUOUS.start)(model(Element::F32), settings).unwrap();
    let full = decoder.feed(&prompt(65)).unwrap_err().to_string();
    assert_eq!(full, "the model's context holds 64 tokens; 65 were asked for");
}

#[test]
fn a_refused_feed_leaves_the_sequence_as_it_was() {
    let model = model(Element::Bf16);
    for rung in [LISTS, CONTIGUOUS] {
        for chunk in [None, Some(1), Some(2), Some(3)] {
            let settings = Settings { capacity: 12, prefill_chunk: chunk, threads: None };
            let mut decoder = (rung.start)(model.clone(), settings).unwrap();
            let mut naive = NaiveDecoder::new(model.clone());
            for decoder in [decoder.as_mut(), &mut naive] {
                decoder.feed(&prompt(5)).unwrap();
                decoder.feed(&[7, 7, 7, 7, 99]).unwrap_err();
            }
            decoder.feed(&[7; 8]).unwrap_err();
            let found = decoder.feed(&[1, 2]).unwrap();
            let expected = naive.feed(&[1, 2]).unwrap();
            assert_eq!(bits(&found), bits(&expected), "{}, chunk {chunk:?}", rung.change);
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let settings = Settings { capacity: 10, prefill_chunk: Some(0), threads: None };
    let error = (CONTIGUOUS.start)(model(Element::F32), settings).err().unwrap();
    assert_eq!(error.to_string(), "prefill chunk is 0, expected at least 1 token");
    // No cache is larger than what the model accepts.
    let settings = Settings { capacity: 1_000_000_000_000, prefill_chunk: None, threads: None };
    assert_eq!((CONTIGUOUS.start)(model(Element::F32), settings).unwrap().capacity(), 64);
}

/// Rather than the end of the program.
#[test]
fn a_slab_that_no_memory_holds_is_refused() {
    for element in ELEMENTS {
        let shape = KvShape { element, ..SHAPE };
        for (capacity, sequences) in [(usize::MAX, 1), (1 << 40, 1 << 40), (1 << 50, 1)] {
            let said = ContiguousStore::new(shape, capacity, sequences).err().unwrap().to_string();
            let bytes = shape.bytes(capacity, sequences);
            assert_eq!(
                said,
                format!(
                    "bytes of the slab is {bytes}, expected no more than the system has to give"
                )
            );
        }
    }
    assert_eq!(SHAPE.bytes(usize::MAX, 2), usize::MAX);
}

#[test]
fn sequences_that_are_not_there_are_refused() {
    let model = model(Element::F32);
    let mut cache = Cached::new(ContiguousStore::new(SHAPE, 8, 2).unwrap(), model.isa);
    let pass = |sequence, start| Pass::one(Span::new(sequence, start, &[1], Want::Last));
    for (error, words) in [
        (cache.truncate(2, 0), "sequence is 2, expected below 2, the number of sequences kept"),
        (cache.reset(9), "sequence is 9, expected below 2, the number of sequences kept"),
        (
            cache.truncate(1, 1),
            "length to truncate sequence 1 to is 1, expected at most 0, what it holds",
        ),
        (
            model.forward(&pass(2, 0), &mut cache).map(drop),
            "sequence is 2, expected below 2, the number of sequences kept",
        ),
        (
            model.forward(&pass(0, 3), &mut cache).map(drop),
            "start of sequence 0 is 3, expected 0, what it holds",
        ),
        (
            model
                .forward(&Pass { spans: vec![pass(1, 0).spans[0].clone(); 2] }, &mut cache)
                .map(drop),
            "spans of sequence 1 in one pass is two, expected one",
        ),
    ] {
        assert_eq!(error.unwrap_err().to_string(), words);
    }
}

/// Whether reading the key, reading the value and writing each panic.
fn refuses<S: Store>(new: impl Fn() -> S, place: Place) -> bool {
    let panics = |act: &dyn Fn(&mut S)| catch_unwind(AssertUnwindSafe(|| act(&mut new()))).is_err();
    panics(&|store| store.key(place, &mut [0.0; 8]))
        && panics(&|store| store.value(place, &mut [0.0; 8]))
        && panics(&|store| store.write(place, &[0.0; 8], &[0.0; 8]))
}

#[test]
fn a_place_that_is_not_there_panics_and_reads_no_neighbour() {
    let origin = Place { sequence: 0, layer: 0, kv_head: 0, slot: 0 };
    let slab = || ContiguousStore::new(SHAPE, 8, 2).unwrap();
    let lists = || ListStore::new(SHAPE, 8, 2);
    assert!(!refuses(slab, origin) && !refuses(lists, origin));
    // But for the last, each would be within the allocation: somebody else's numbers.
    for place in [
        Place { kv_head: 2, ..origin },
        Place { layer: 3, ..origin },
        Place { sequence: 2, ..origin },
    ] {
        assert!(refuses(slab, place), "slab, {place:?}");
        assert!(refuses(lists, place), "lists, {place:?}");
    }
    // Lists have no neighbour in this direction.
    assert!(refuses(slab, Place { slot: 8, ..origin }));
}

#[test]
fn every_place_is_its_own() {
    let places = || {
        (0..2 * 3 * 2 * 5).map(|i| Place {
            sequence: i / 30,
            layer: i / 10 % 3,
            kv_head: i / 5 % 2,
            slot: i % 5,
        })
    };
    let mut stores: [Box<dyn Store>; 2] = [
        Box::new(ListStore::new(SHAPE, 5, 2)),
        Box::new(ContiguousStore::new(SHAPE, 5, 2).unwrap()),
    ];
    for store in &mut stores {
        // Numbers that bf16 could hold too, one per place.
        for (i, place) in places().enumerate() {
            store.write(place, &[i as f32; 8], &[-(i as f32); 8]);
        }
        for (i, place) in places().enumerate() {
            let (mut key, mut value) = ([0.0; 8], [0.0; 8]);
            store.key(place, &mut key);
            store.value(place, &mut value);
            assert_eq!((key, value), ([i as f32; 8], [-(i as f32); 8]), "{place:?}");
        }
    }
}

// --- Keys and values, and no queries -----------------------------------------------------------

#[test]
fn keys_and_values_are_all_that_a_sequence_leaves_behind() {
    // Whatever another cache is given, it is through these: no query, no score, no hidden row.
    let model = model(Element::F16);
    let shape = KvShape::of(&model);
    let text = prompt(15);
    let mut first = Cached::new(ContiguousStore::new(shape, 16, 1).unwrap(), model.isa);
    run(&model, &mut first, 0, &text);
    let mut second = Cached::new(ListStore::new(shape, 16, 1), model.isa);
    let (mut key, mut value) = ([0.0; 8], [0.0; 8]);
    for i in 0..3 * 2 * text.len() {
        let (layer, kv_head, slot) = (i / 2 / text.len(), i / text.len() % 2, i % text.len());
        let place = Place { sequence: 0, layer, kv_head, slot };
        first.store().key(place, &mut key);
        first.store().value(place, &mut value);
        second.store_mut().write(place, &key, &value);
    }
    second.commit(&Pass::one(Span::new(0, 0, &text, Want::Nothing)));
    let [a, b] = [&mut first as &mut dyn Attention, &mut second]
        .map(|cache| run(&model, cache, 15, &[4]).into_raw_vec_and_offset().0);
    let whole = run(&model, &mut NaiveAttention::new(model.isa), 0, &[&text[..], &[4]].concat());
    assert_eq!(bits(&a), bits(&b));
    assert_eq!(bits(&a), bits(whole.as_slice().unwrap()));
}

/// Counts what attention reads.
struct Counting {
    store: ContiguousStore,
    keys: AtomicUsize,
    values: AtomicUsize,
    written: usize,
}

impl Store for Counting {
    forward_store!(store: shape sequences capacity truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.written += 1;
        self.store.write(place, key, value);
    }
    fn key(&self, place: Place, copy: &mut [f32]) {
        self.keys.fetch_add(1, Relaxed);
        self.store.key(place, copy);
    }
    fn value(&self, place: Place, copy: &mut [f32]) {
        self.values.fetch_add(1, Relaxed);
        self.store.value(place, copy);
    }
}

#[test]
fn a_step_writes_one_token_and_reads_every_key_and_value_once() {
    let model = model(Element::F32);
    let store = ContiguousStore::new(KvShape::of(&model), 20, 1).unwrap();
    let (keys, values) = Default::default();
    let mut cache = Cached::new(Counting { store, keys, values, written: 0 }, model.isa);
    for (held, token) in prompt(20).into_iter().enumerate() {
        // One row sees everything there is: decoding needs no mask.
        assert_eq!(Span::new(0, held, &[token], Want::Last).sees, [Visible::until(held + 1)]);
        run(&model, &mut cache, held, &[token]);
        let Counting { keys, values, written, .. } = cache.store_mut();
        let counted = (std::mem::take(written), *keys.get_mut(), *values.get_mut());
        // Layers times key-value heads; query heads that share a key do not read it twice.
        assert_eq!(counted, (3 * 2, 3 * 2 * (held + 1), 3 * 2 * (held + 1)));
        (*keys.get_mut(), *values.get_mut()) = (0, 0);
    }
}

#[test]
fn what_is_not_a_number_is_found_where_it_will_be_read() {
    let model = model(Element::F32);
    let store = ContiguousStore::new(KvShape::of(&model), 20, 1).unwrap();
    let mut cache = Cached::new(store, model.isa);
    run(&model, &mut cache, 0, &prompt(5));
    let place = |slot| Place { sequence: 0, layer: 2, kv_head: 1, slot };
    cache.store_mut().write(place(5), &[f32::NAN; 8], &[0.0; 8]);
    cache.check_integrity().unwrap();
    cache.store_mut().write(place(4), &[0.0; 8], &[f32::INFINITY; 8]);
    let said = cache.check_integrity().unwrap_err().to_string();
    assert!(said.contains("layer: 2, kv_head: 1, slot: 4 } is inf, expected a finite"), "{said}");
}

// --- The decoder -------------------------------------------------------------------------------

#[test]
fn rolling_back_and_going_another_way_is_as_if_one_had_never_been_there() {
    let model = model(Element::F32);
    let store = ContiguousStore::new(KvShape::of(&model), 30, 1).unwrap();
    let cache = Cached::new(store, model.isa);
    let mut decoder = CachedDecoder::new(model.clone(), cache, Some(4)).unwrap();
    assert!(decoder.is_empty());
    let text = prompt(25);
    decoder.feed(&text).unwrap();
    for length in [20, 19, 3, 0] {
        decoder.truncate(length).unwrap();
        assert_eq!(decoder.len(), length);
        let found = decoder.feed(&[9, 8, 7]).unwrap();
        let mut naive = NaiveDecoder::new(model.clone());
        let expected = naive.feed(&[&text[..length], &[9, 8, 7]].concat()).unwrap();
        assert_eq!(bits(&found), bits(&expected), "after {length} tokens");
        decoder.truncate(length).unwrap();
    }
    decoder.truncate(1).unwrap_err();
}

/// Refuses every pass after so many.
struct Failing {
    cache: Cached<ContiguousStore>,
    passes_left: usize,
    takes_back: bool,
}

impl Failing {
    fn decoder(model: &Arc<Model>, passes_left: usize, takes_back: bool) -> CachedDecoder<Self> {
        let store = ContiguousStore::new(KvShape::of(model), 30, 1).unwrap();
        let cache = Cached::new(store, model.isa);
        let failing = Failing { cache, passes_left, takes_back };
        CachedDecoder::new(model.clone(), failing, Some(4)).unwrap()
    }
}

impl Attention for Failing {
    forward_attention!(cache: attend commit);

    fn begin(&mut self, pass: &Pass) -> Result<()> {
        let left = self.passes_left.checked_sub(1);
        self.passes_left = left.ok_or_else(|| Error::invalid("passes", 0, "at least 1"))?;
        self.cache.begin(pass)
    }
}

impl KvCache for Failing {
    forward_kv_cache!(cache: len capacity bytes_per_token allocated_bytes);

    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        match self.takes_back {
            true => self.cache.truncate(sequence, length),
            false => Err(Error::invalid("length to truncate to", length, "none")),
        }
    }
}

#[test]
fn chunks_before_one_that_fails_are_taken_back() {
    let model = model(Element::F32);
    let mut decoder = Failing::decoder(&model, 3, true);
    decoder.feed(&prompt(3)).unwrap();
    let said = decoder.feed(&prompt(10)).unwrap_err().to_string();
    assert_eq!(said, "passes is 0, expected at least 1");
    assert_eq!(decoder.len(), 3, "two chunks of four went through");
    decoder.executor.attention.passes_left = 1;
    let found = decoder.feed(&[5, 6]).unwrap();
    let expected = NaiveDecoder::new(model).feed(&[&prompt(3)[..], &[5, 6]].concat()).unwrap();
    assert_eq!(bits(&found), bits(&expected));
}

#[test]
fn a_cache_that_takes_nothing_back_is_no_reason_to_hide_why_a_pass_failed() {
    let model = model(Element::F32);
    let mut decoder = Failing::decoder(&model, 2, false);
    let said = decoder.feed(&[1, 2, 3, 4, 5, 40]).unwrap_err().to_string();
    assert_eq!(said, "token is 40, expected an id below the vocabulary's 40");
    assert_eq!(decoder.len(), 0, "the first chunk alone would have gone through");
    let said = decoder.feed(&prompt(10)).unwrap_err().to_string();
    assert_eq!(said, "passes is 0, expected at least 1");
    assert_eq!(decoder.len(), 8);
}

#[test]
fn each_token_goes_through_the_model_once() {
    let model = model(Element::F32);
    let settings = Settings { capacity: 40, prefill_chunk: Some(6), threads: None };
    for rung in [LISTS, CONTIGUOUS] {
        let mut decoder = (rung.start)(model.clone(), settings).unwrap();
        decoder.feed(&prompt(20)).unwrap();
        (0..10).for_each(|token| drop(decoder.feed(&[token]).unwrap()));
        assert_eq!(decoder.rows(), 30);
    }
    let mut naive = NaiveDecoder::new(model);
    naive.feed(&prompt(20)).unwrap();
    (0..10).for_each(|token| drop(naive.feed(&[token]).unwrap()));
    assert_eq!(naive.rows(), (20..=30).sum::<usize>());
}
