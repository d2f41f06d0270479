//! Guards against faults that leave every key alone. A value is as much a part of an answer as a key.

use kv_cache::faults::guards::{Checksummed, Poisoned, ReadBack, Shadow};
use kv_cache::{ContiguousStore, KvShape, Place, Store, forward_store};
use naive_decode::Result;
use naive_decode::break_it::Bench;
use std::sync::LazyLock;

static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::embedded().unwrap());

/// Where the faults are.
const PLACE: Place = Place { sequence: 0, layer: 3, kv_head: 1, slot: 7 };

/// Writes every key, and at one place another value than it is given.
struct WrongValue {
    store: Box<dyn Store>,
    /// Makes what is written of what was there and what should be.
    wrong: fn(before: f32, value: f32) -> f32,
}

impl Store for WrongValue {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let mut written = value.to_vec();
        if place == PLACE {
            self.store.value(place, &mut written);
            for (number, value) in written.iter_mut().zip(value) {
                *number = (self.wrong)(*number, *value);
            }
        }
        self.store.write(place, key, &written);
    }
}

fn with(wrong: fn(f32, f32) -> f32) -> impl Fn(Box<dyn Store>) -> Box<dyn Store> {
    move |store| Box::new(WrongValue { store, wrong })
}

fn assert_refuses(verdict: Result<()>, words: &[&str]) {
    let said = verdict.unwrap_err().to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn a_value_that_did_not_arrive_is_read_back() {
    let here = "value in slot 7 of layer 3, head 1, sequence 0";
    assert_refuses(ReadBack::guard(&BENCH, with(|before, _| before)), &[here, "just written"]);
    assert_refuses(ReadBack::guard(&BENCH, with(|_, value| -value)), &[here, "number 0"]);
    ReadBack::guard(&BENCH, with(|_, value| value)).unwrap();
}

#[test]
fn a_value_that_was_never_written_is_still_nan() {
    let words = ["slot 7 of layer 3, head 1, sequence 0", "NaN", "a value", "never written"];
    assert_refuses(Poisoned::guard(&BENCH, with(|before, _| before)), &words);
    Poisoned::guard(&BENCH, with(|_, value| value)).unwrap();
}

#[test]
fn the_other_two_see_values_as_well() {
    let shadow = Shadow::guard(&BENCH, with(|_, value| -value));
    assert_refuses(shadow, &["answer of layer 3", "second cache"]);
    let shape = KvShape::of(&BENCH.model);
    let fresh = || Box::new(ContiguousStore::new(shape, BENCH.model.context(), 1).unwrap());
    let summed = Checksummed::guard(&BENCH, with(|_, value| -value)(fresh()));
    assert_refuses(summed, &["slot 7 of layer 3, head 1", "as written"]);
    Checksummed::guard(&BENCH, with(|_, value| value)(fresh())).unwrap();
}
