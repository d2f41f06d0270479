//! Solutions of the exercises.

use super::{bits, decoder, key, slab, target, text};
use kv_cache::faults::guards::{Checksummed, Poisoned, Shadow};
use kv_cache::{Cached, ContiguousStore, KvCache, KvShape, ListStore, Place, Store, forward_store};
use naive_decode::{CpuExecutor, Decoder, NaiveDecoder, Pass, Span, Want};

#[test]
fn a_list_cache_grows_and_a_slab_does_not() {
    let model = target();
    let shape = KvShape::of(&model);
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
            * self.shape.key_dim
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
    let shape = KvShape::of(&model);
    let mut usual = decoder(&model, slab(&model, 70));
    let mut other = decoder(&model, Cached::new(TokenByToken::new(shape, 70), model.isa));
    for tokens in [&text(60)[..], &[7], &[8]] {
        assert_eq!(bits(&other.feed(tokens).unwrap()), bits(&usual.feed(tokens).unwrap()));
    }
}

/// In one layer, keys are written where values belong, and values where keys belong.
struct Swapped<S>(S);

impl<S: Store> Store for Swapped<S> {
    forward_store!(0: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        match place.layer {
            3 => self.0.write(place, value, key),
            _ => self.0.write(place, key, value),
        }
    }
}

#[test]
fn who_notices_that_keys_and_values_are_swapped() {
    let model = target();
    let shape = KvShape::of(&model);
    let fresh = || ContiguousStore::new(shape, 64, 1).unwrap();
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
