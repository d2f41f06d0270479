//! Fresh memory that cannot be mistaken for anything.

use super::{name, walk};
use crate::faults::{executor, store};
use crate::{Place, Store};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};

/// A fresh cache of zeros forgives a missing write: a key of zeros is a key like any other. Filled
/// with NaN, whatever was not written shows.
pub struct Poisoned;

impl Poisoned {
    /// Fills every place of a store with NaN.
    pub fn fill(store: &mut dyn Store) {
        let nan = vec![f32::NAN; store.shape().head_dim];
        for sequence in 0..store.sequences() {
            for place in places(store, sequence, store.capacity()) {
                store.write(place, &nan, &nan);
            }
        }
    }

    /// None of the first `length` tokens of a sequence is still NaN.
    ///
    /// # Errors
    /// Names the first that is.
    pub fn verify(store: &dyn Store, sequence: usize, length: usize) -> Result<()> {
        let mut key = vec![0.0; store.shape().head_dim];
        for place in places(store, sequence, length) {
            store.key(place, &mut key);
            if key.iter().any(|number| number.is_nan()) {
                let expected = "a key: this token has been fed, and was never written";
                return Err(Error::invalid(name("what is", place), "NaN", expected));
            }
        }
        Ok(())
    }

    /// Runs the prompt over a poisoned store with `fault` in it.
    ///
    /// # Errors
    /// As [`Poisoned::verify`].
    pub fn guard(bench: &Bench, fault: impl Fn(Box<dyn Store>) -> Box<dyn Store>) -> Result<()> {
        let mut fresh = store(&bench.model, 1);
        Poisoned::fill(&mut fresh);
        let mut executor = executor(&bench.model, fault(Box::new(fresh)));
        walk(bench, &mut executor)?;
        Poisoned::verify(executor.attention.store(), 0, bench.prompt.len())
    }
}

/// Every place of a sequence's first `length` tokens, slot by slot.
fn places(store: &dyn Store, sequence: usize, length: usize) -> Vec<Place> {
    let shape = store.shape();
    let layers = move |slot| (0..shape.layers).map(move |layer| (slot, layer));
    (0..length)
        .flat_map(layers)
        .flat_map(|(slot, layer)| {
            (0..shape.kv_heads).map(move |kv_head| Place { sequence, layer, kv_head, slot })
        })
        .collect()
}
