//! What chapter 2 of the book says, made to come true: the answers of its quiz, the figures that it
//! counts with, the solutions of its exercises.

use embedded_models::TARGET;
use kv_cache::faults::guards::{Checksummed, Poisoned, Shadow};
use kv_cache::{
    CONTIGUOUS, Cached, CachedDecoder, ContiguousStore, KvCache, KvShape, ListStore, Place,
    RopeScaling, Store,
};
use naive_decode::roofline::{ElementBytes, Rows, Shape};
use naive_decode::{
    Config, CpuExecutor, Decoder, Element, Executor, LoadOptions, Logits, Model, NaiveDecoder,
    Pass, Request, Result, Rope, Sampler, Sampling, Settings, Span, Want, argmax, generate,
};
use ndarray::Array2;
use std::f64::consts::TAU;
use std::sync::Arc;

// --- Models and caches to try things on ----------------------------------------------------------

/// As small as a Llama can be.
fn smallest(context: usize) -> Arc<Model> {
    let json = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16,
            "vocab_size": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": {context}}}"#
    );
    let config = Config::from_json("config.json", json.as_bytes()).unwrap();
    Arc::new(Model::random(config, 1, LoadOptions::default()).unwrap())
}

/// The embedded target's shape with random weights: what holds of it holds whatever was learnt.
fn target() -> Arc<Model> {
    Arc::new(Model::random(target_config(), 1, LoadOptions::default()).unwrap())
}

fn target_config() -> Config {
    Config::from_json("config.json", TARGET.config).unwrap()
}

fn text(length: u32) -> Vec<u32> {
    (0..length).map(|i| 5 + i * 37 % 2000).collect()
}

fn slab(model: &Model, capacity: usize) -> Cached<ContiguousStore> {
    let shape = KvShape::of(&model.config, model.kv_element);
    Cached::new(ContiguousStore::new(shape, capacity, 1), model.isa)
}

fn decoder<A: KvCache>(model: &Arc<Model>, cache: A) -> CachedDecoder<A> {
    CachedDecoder::new(model.clone(), cache, None).unwrap()
}

fn key(store: &impl Store, layer: usize, kv_head: usize, slot: usize) -> Vec<f32> {
    let mut key = vec![0.0; store.shape().head_dim];
    store.key(Place { sequence: 0, layer, kv_head, slot }, &mut key);
    key
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

/// Rows that go through `decoder` while `tokens` tokens are generated after a prompt of `prompt`.
fn rows_to_generate(decoder: &mut dyn Decoder, prompt: usize, tokens: usize) -> usize {
    let prompt = (0..prompt as u32).map(|i| i % 32).collect();
    let sampler = Sampler::new(Sampling::default()).unwrap();
    let request = Request { prompt, tokens, end_tokens: vec![] };
    let steps = generate(decoder, sampler, request).unwrap();
    assert_eq!(steps.map(Result::unwrap).count(), tokens);
    decoder.rows()
}

// --- Rows ----------------------------------------------------------------------------------------

/// Says yes to every pass, at once.
struct Instant;

impl Executor for Instant {
    fn execute(&mut self, pass: &Pass) -> Result<Logits> {
        Ok(Array2::zeros((pass.wanted().len(), 32)))
    }
}

#[test]
fn a_thousand_tokens_after_a_prompt_of_five_hundred() {
    let mut naive = NaiveDecoder::over(Instant, 1_500);
    assert_eq!(rows_to_generate(&mut naive, 500, 1_000), 999_500);
    let model = smallest(1_500);
    let mut cached = decoder(&model, slab(&model, 1_500));
    assert_eq!(rows_to_generate(&mut cached, 500, 1_000), 1_499);
    assert_eq!((999_500.0_f64 / 1_499.0).round(), 667.0);
}

#[test]
fn what_a_cache_saves_depends_on_prompt_and_answer() {
    let times_fewer = |prompt: usize, tokens: usize| {
        let mut naive = NaiveDecoder::over(Instant, 2_000);
        let cached = prompt + tokens - 1;
        rows_to_generate(&mut naive, prompt, tokens) as f64 / cached as f64
    };
    assert_eq!(times_fewer(1_000, 1), 1.0);
    assert_eq!(times_fewer(1_000, 10).round(), 10.0);
    assert_eq!(times_fewer(1_000, 100).round(), 95.0);
    assert_eq!(times_fewer(10, 1_000).round(), 505.0);
}

#[test]
fn rows_are_not_flops() {
    let shape = Shape::from(&target_config());
    let flops = |rows: Rows| shape.forward(rows, ElementBytes::F32).flops;
    let naive: u64 = (500..1_500).map(|length| flops(Rows::naive(length))).sum();
    let cached =
        flops(Rows::naive(500)) + (500..1_499).map(|held| flops(Rows::decode(held))).sum::<u64>();
    let times_fewer = naive as f64 / cached as f64;
    assert_eq!(times_fewer.round(), 571.0);

    let attention = |rows: Rows| shape.attention(rows, ElementBytes::F32).flops;
    let naive: u64 = (500..1_500).map(|length| attention(Rows::naive(length))).sum();
    let cached = attention(Rows::naive(500))
        + (500..1_499).map(|held| attention(Rows::decode(held))).sum::<u64>();
    assert_eq!((naive as f64 / cached as f64).round(), 482.0);

    // Llama-2-70B's matrices, whose head is small beside its layers.
    let shape = Shape {
        hidden_size: 8192,
        layers: 80,
        heads: 64,
        kv_heads: 8,
        head_dim: 128,
        intermediate_size: 28_672,
        vocab_size: 32_000,
        tied_head: false,
    };
    let matrices = |rows: Rows| {
        let (whole, attention) =
            (shape.forward(rows, ElementBytes::BF16), shape.attention(rows, ElementBytes::BF16));
        whole.flops - 80 * attention.flops
    };
    let naive: u64 = (500..1_500).map(|length| matrices(Rows::naive(length))).sum();
    let cached = matrices(Rows::naive(500))
        + (500..1_499).map(|held| matrices(Rows::decode(held))).sum::<u64>();
    assert_eq!((naive as f64 / cached as f64).round(), 665.0);
}

#[test]
fn a_cache_saves_arithmetic_and_no_bytes() {
    let shape = Shape::from(&target_config());
    let bytes = ElementBytes { activation: 0, ..ElementBytes::F32 };
    let naive = shape.forward(Rows::naive(1_025), bytes);
    let cached = shape.forward(Rows::decode(1_024), bytes);
    let tenths = |value: f64| (10.0 * value).round() / 10.0;
    assert_eq!(naive.weight_bytes, cached.weight_bytes);
    assert_eq!(tenths(cached.weight_bytes as f64 / 1e6), 19.0);
    assert_eq!(tenths(cached.kv_bytes as f64 / 1e6), 3.1);
    assert_eq!(tenths(naive.flops as f64 / 1e9), 11.9);
    assert_eq!(tenths(cached.flops as f64 / 1e6), 15.8);
    assert_eq!(tenths(cached.arithmetic_intensity()), 0.7);
    assert_eq!((naive.flops as f64 / naive.weight_bytes as f64 / 100.0).round(), 6.0);
}

// --- Building ------------------------------------------------------------------------------------

#[test]
fn the_slab_of_the_embedded_model() {
    let shape = KvShape::of(&target_config(), Element::F32);
    assert_eq!(shape.bytes_per_token(), 3_072);
    let store = ContiguousStore::new(shape, 512, 1);
    assert_eq!(store.allocated_bytes(), 1_572_864);
    // Queries would be twice as much again: eight heads where keys and values have two each.
    let queries = shape.layers * target_config().heads * shape.head_dim * shape.element.bytes();
    assert_eq!(queries, 6_144);
}

#[test]
fn chunks_change_no_bit() {
    let model = target();
    let prompt = text(100);
    let after = |chunk| {
        let settings = Settings { capacity: 100, prefill_chunk: chunk };
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

// --- Breaking ------------------------------------------------------------------------------------

/// Slots of two tokens exchanged: keys and values, in every layer and head.
fn exchange(store: &mut impl Store, a: usize, b: usize) {
    let shape = store.shape();
    for i in 0..shape.layers * shape.kv_heads {
        let at = |slot| {
            let (layer, kv_head) = (i / shape.kv_heads, i % shape.kv_heads);
            Place { sequence: 0, layer, kv_head, slot }
        };
        let read = |store: &dyn Store, slot| {
            let mut both = [vec![0.0; shape.head_dim], vec![0.0; shape.head_dim]];
            store.key(at(slot), &mut both[0]);
            store.value(at(slot), &mut both[1]);
            both
        };
        let (of_a, of_b) = (read(store, a), read(store, b));
        store.write(at(a), &of_b[0], &of_b[1]);
        store.write(at(b), &of_a[0], &of_a[1]);
    }
}

#[test]
fn a_slot_is_a_place_to_keep_things_and_not_a_position() {
    let model = target();
    let prompt = text(64);
    let mut clean = decoder(&model, slab(&model, 65));
    let mut exchanged = decoder(&model, slab(&model, 65));
    clean.feed(&prompt).unwrap();
    exchanged.feed(&prompt).unwrap();
    exchange(exchanged.executor.attention.store_mut(), 3, 41);
    let (clean, exchanged) = (clean.feed(&[7]).unwrap(), exchanged.feed(&[7]).unwrap());
    assert!(bits(&clean) != bits(&exchanged));
    let largest = clean.iter().zip(&exchanged).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-3, "{largest}");
    assert_eq!(argmax(&exchanged).unwrap(), argmax(&clean).unwrap());
}

/// Writes every key and value one slot too far.
struct Shifted(ContiguousStore);

impl Store for Shifted {
    fn shape(&self) -> KvShape {
        self.0.shape()
    }
    fn sequences(&self) -> usize {
        self.0.sequences()
    }
    fn capacity(&self) -> usize {
        self.0.capacity()
    }
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.0.write(Place { slot: place.slot + 1, ..place }, key, value);
    }
    fn key(&self, place: Place, copy: &mut [f32]) {
        self.0.key(place, copy);
    }
    fn value(&self, place: Place, copy: &mut [f32]) {
        self.0.value(place, copy);
    }
    fn truncate(&mut self, sequence: usize, length: usize) {
        self.0.truncate(sequence, length);
    }
    fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }
}

#[test]
fn a_shifted_row_sees_zeros_and_never_itself() {
    let model = target();
    let shape = KvShape::of(&model.config, model.kv_element);
    let store = Shifted(ContiguousStore::new(shape, 65, 1));
    let mut clean = decoder(&model, slab(&model, 65));
    let mut shifted = decoder(&model, Cached::new(store, model.isa));
    clean.feed(&text(11)).unwrap();
    shifted.feed(&text(11)).unwrap();
    // Row 10 reads slots 0 to 10. In layer 0, where a key is made from its token alone:
    let clean = |slot| key(clean.executor.attention.store(), 0, 0, slot);
    let shifted = |slot| key(shifted.executor.attention.store(), 0, 0, slot);
    assert_eq!(shifted(0), vec![0.0; 32]);
    for slot in 1..=10 {
        assert_eq!(shifted(slot), clean(slot - 1));
    }
}

#[test]
fn moving_a_whole_text_changes_only_rounding() {
    let model = target();
    let run = |moved: usize| {
        let mut span = Span::new(0, 0, &text(64), Want::Last);
        span.positions.iter_mut().for_each(|position| *position += moved);
        model.forward(&Pass::one(span), &mut slab(&model, 64)).unwrap().row(0).to_vec()
    };
    let (here, there) = (run(0), run(40));
    assert!(bits(&here) != bits(&there));
    let largest = here.iter().zip(&there).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-2, "{largest}");
    assert_eq!(argmax(&there).unwrap(), argmax(&here).unwrap());
}

// --- Past the trained length ---------------------------------------------------------------------

#[test]
fn pairs_that_never_finish_a_turn() {
    let config = target_config();
    let rope = Rope::new(config.rope_theta, config.head_dim, 1);
    let turns = |frequency: &f64| frequency * config.trained_context as f64 / TAU;
    let unfinished = rope.frequencies().iter().filter(|f| turns(f) < 1.0).count();
    assert_eq!(unfinished, 8);
    assert_eq!(rope.frequencies().len(), 16);
    assert_eq!(turns(&rope.frequencies()[0]).round(), 81.0);
    assert!((turns(&rope.frequencies()[15]) - 0.0145).abs() < 1e-4);
}

#[test]
fn interpolation_blurs_neighbours() {
    let frequencies =
        |scaling: RopeScaling| scaling.rope(&target_config(), 1).frequencies().to_vec();
    let linear = frequencies(RopeScaling::Linear { factor: 4.0 });
    assert_eq!(linear[0], 0.25);
    let ntk = frequencies(RopeScaling::Ntk { factor: 4.0 });
    assert_eq!(ntk[0], 1.0);
    let yarn = frequencies(RopeScaling::yarn(4.0, 512));
    assert_eq!(yarn[..2], Rope::new(10_000.0, 32, 1).frequencies()[..2]);
    // What each pair is slowed by, as the chapter's table has it.
    let plain = Rope::new(10_000.0, 32, 1).frequencies().to_vec();
    let slowed = |by: &[f64], pair: usize| (100.0 * plain[pair] / by[pair]).round() / 100.0;
    assert_eq!([0, 4, 8, 12, 15].map(|pair| slowed(&ntk, pair)), [1.0, 1.45, 2.09, 3.03, 4.0]);
    assert_eq!([0, 4, 8, 12, 15].map(|pair| slowed(&yarn, pair)), [1.0, 1.47, 4.0, 4.0, 4.0]);
    // The slowest pair, which has to be slowed in any case, is slowed alike by all three.
    for slowest in [linear[15], ntk[15], yarn[15]] {
        assert!((slowest / linear[15] - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_factor_of_one_is_no_scaling() {
    let plain = Rope::new(10_000.0, 32, 1).frequencies().to_vec();
    let largest_difference = |scaling: RopeScaling| {
        let scaled = scaling.rope(&target_config(), 1);
        let pairs = scaled.frequencies().iter().zip(&plain);
        pairs.map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max)
    };
    assert_eq!(largest_difference(RopeScaling::Linear { factor: 1.0 }), 0.0);
    assert_eq!(largest_difference(RopeScaling::Ntk { factor: 1.0 }), 0.0);
    assert!(largest_difference(RopeScaling::yarn(1.0, 512)) < 1e-15);
}

// --- Exercises -----------------------------------------------------------------------------------

#[test]
fn a_list_cache_grows_and_a_slab_does_not() {
    let model = target();
    let shape = KvShape::of(&model.config, model.kv_element);
    let mut lists = decoder(&model, Cached::new(ListStore::new(shape, 512, 1), model.isa));
    let mut slab = decoder(&model, slab(&model, 512));
    let tokens = text(100);
    lists.feed(&tokens).unwrap();
    slab.feed(&tokens).unwrap();
    assert_eq!(lists.executor.attention.allocated_bytes(), 100 * 3_072);
    assert_eq!(slab.executor.attention.allocated_bytes(), 512 * 3_072);
}

/// The slab with all heads of a token side by side.
struct TokenByToken {
    shape: KvShape,
    capacity: usize,
    slab: Vec<f32>,
}

impl TokenByToken {
    fn new(shape: KvShape, capacity: usize) -> Self {
        TokenByToken { shape, capacity, slab: vec![0.0; shape.bytes(capacity, 1) / 4] }
    }

    fn index(&self, place: Place, half: usize) -> usize {
        let half = 2 * place.layer + half;
        ((half * self.capacity + place.slot) * self.shape.kv_heads + place.kv_head)
            * self.shape.head_dim
    }
}

impl Store for TokenByToken {
    fn shape(&self) -> KvShape {
        self.shape
    }
    fn sequences(&self) -> usize {
        1
    }
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let (k, v) = (self.index(place, 0), self.index(place, 1));
        self.slab[k..][..key.len()].copy_from_slice(key);
        self.slab[v..][..value.len()].copy_from_slice(value);
    }
    fn key(&self, place: Place, copy: &mut [f32]) {
        copy.copy_from_slice(&self.slab[self.index(place, 0)..][..copy.len()]);
    }
    fn value(&self, place: Place, copy: &mut [f32]) {
        copy.copy_from_slice(&self.slab[self.index(place, 1)..][..copy.len()]);
    }
    fn truncate(&mut self, _sequence: usize, _length: usize) {}
    fn allocated_bytes(&self) -> usize {
        4 * self.slab.len()
    }
}

#[test]
fn another_order_changes_no_bit() {
    let model = target();
    let shape = KvShape::of(&model.config, model.kv_element);
    let mut usual = decoder(&model, slab(&model, 70));
    let mut other = decoder(&model, Cached::new(TokenByToken::new(shape, 70), model.isa));
    for tokens in [&text(60)[..], &[7], &[8]] {
        assert_eq!(bits(&other.feed(tokens).unwrap()), bits(&usual.feed(tokens).unwrap()));
    }
}

/// In one layer, keys are written where values belong, and values where keys belong.
struct Swapped<S>(S);

impl<S: Store> Store for Swapped<S> {
    fn shape(&self) -> KvShape {
        self.0.shape()
    }
    fn sequences(&self) -> usize {
        self.0.sequences()
    }
    fn capacity(&self) -> usize {
        self.0.capacity()
    }
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        match place.layer {
            3 => self.0.write(place, value, key),
            _ => self.0.write(place, key, value),
        }
    }
    fn key(&self, place: Place, copy: &mut [f32]) {
        self.0.key(place, copy);
    }
    fn value(&self, place: Place, copy: &mut [f32]) {
        self.0.value(place, copy);
    }
    fn truncate(&mut self, sequence: usize, length: usize) {
        self.0.truncate(sequence, length);
    }
    fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }
}

#[test]
fn who_notices_that_keys_and_values_are_swapped() {
    let model = target();
    let shape = KvShape::of(&model.config, model.kv_element);
    let fresh = || ContiguousStore::new(shape, 64, 1);
    let feed = |cache: &mut dyn naive_decode::Attention| {
        model.forward(&Pass::one(Span::new(0, 0, &text(20), Want::Last)), cache)
    };

    let place = Place { sequence: 0, layer: 3, kv_head: 0, slot: 0 };
    let mut read_back = Swapped(fresh());
    read_back.write(place, &[1.0; 32], &[2.0; 32]);
    assert_eq!(key(&read_back, 3, 0, 0), [2.0; 32]);

    let mut summed = Cached::new(Checksummed::new(Swapped(fresh())), model.isa);
    feed(&mut summed).unwrap();
    assert!(summed.store().verify(0, 20).unwrap_err().to_string().contains("layer 3"));

    let mut poisoned = fresh();
    Poisoned::fill(&mut poisoned);
    let mut poisoned = Cached::new(Swapped(poisoned), model.isa);
    feed(&mut poisoned).unwrap();
    assert!(Poisoned::verify(poisoned.store(), 0, 20).is_ok(), "NaN does not notice");

    let judge = Cached::new(ListStore::new(shape, 64, 1), model.isa);
    let mut shadow = Shadow::new(Cached::new(Swapped(fresh()), model.isa), judge);
    assert!(feed(&mut shadow).unwrap_err().to_string().contains("layer 3"));

    let found = feed(&mut Cached::new(Swapped(fresh()), model.isa)).unwrap();
    let attention = naive_decode::NaiveAttention::new(model.isa);
    let naive = CpuExecutor { model: model.clone(), attention };
    let mut naive = NaiveDecoder::over(naive, 64);
    assert!(bits(found.as_slice().unwrap()) != bits(&naive.feed(&text(20)).unwrap()));
}
