//! Fresh memory that cannot be mistaken for anything.

use super::{STEPS, name, walk};
use crate::faults::{executor, store};
use crate::{KvCache, Place, Store};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};

/// A fresh cache of zeros forgives a missing write: a key of zeros is a key like any other. Filled
/// with NaN, whatever was not written shows.
pub struct Poisoned;

impl Poisoned {
    /// Fills every place of a store with NaN.
    pub fn fill(store: &mut dyn Store) {
        let [key, value] = numbers(store, f32::NAN);
        for sequence in 0..store.sequences() {
            for place in places(store, sequence, store.capacity()) {
                store.write(place, &key, &value);
            }
        }
    }

    /// No key and no value of a sequence's first `length` tokens is still NaN.
    ///
    /// # Errors
    /// Names the first that is.
    pub fn verify(store: &dyn Store, sequence: usize, length: usize) -> Result<()> {
        let [mut key, mut value] = numbers(store, 0.0);
        for place in places(store, sequence, length) {
            let refuse_nan = |what: &str, found: &[f32]| {
                if !found.iter().any(|number| number.is_nan()) {
                    return Ok(());
                }
                let expected = format!("a {what}: this token has been fed, and was never written");
                Err(Error::invalid(name("what is", place), "NaN", expected))
            };
            store.key(place, &mut key);
            refuse_nan("key", &key)?;
            store.value(place, &mut value);
            refuse_nan("value", &value)?;
        }
        Ok(())
    }

    /// Runs the prompt over a poisoned store with `fault` in it.
    ///
    /// # Errors
    /// As [`Poisoned::verify`].
    pub fn guard(bench: &Bench, fault: impl Fn(Box<dyn Store>) -> Box<dyn Store>) -> Result<()> {
        let mut fresh = store(&bench.model, 1)?;
        Poisoned::fill(&mut fresh);
        let mut executor = executor(&bench.model, fault(Box::new(fresh)));
        let walked = walk(bench, &mut executor);
        // A pass that read NaN has stopped, in a later layer; what it read is still there to be named.
        let held = executor.attention.len(0);
        let fed = (held + 1).max(bench.prompt.len() - STEPS).min(bench.prompt.len());
        Poisoned::verify(executor.attention.store(), 0, fed)?;
        walked
    }
}

/// A key `[D]` and a value `[D_v]` of one number.
fn numbers(store: &dyn Store, number: f32) -> [Vec<f32>; 2] {
    let shape = store.shape();
    [shape.key_dim, shape.value_dim].map(|width| vec![number; width])
}

/// Every place of a sequence's first `length` tokens, layer by layer as a pass writes them.
fn places(store: &dyn Store, sequence: usize, length: usize) -> Vec<Place> {
    let shape = store.shape();
    let slots = move |layer| (0..length).map(move |slot| (layer, slot));
    (0..shape.layers)
        .flat_map(slots)
        .flat_map(|(layer, slot)| {
            (0..shape.kv_heads).map(move |kv_head| Place { sequence, layer, kv_head, slot })
        })
        .collect()
}
