//! A store that looks whether a write arrived.

use super::{name, walk};
use crate::faults::{executor, store};
use crate::{Place, Store};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};

/// Reads every key back as soon as it has been written, and remembers the first that was not there.
pub struct ReadBack<S> {
    store: S,
    first: Result<()>,
}

impl ReadBack<Box<dyn Store>> {
    /// Runs the prompt over a store with `fault` in it.
    ///
    /// # Errors
    /// Names the first key that did not arrive.
    pub fn guard(bench: &Bench, fault: impl Fn(Box<dyn Store>) -> Box<dyn Store>) -> Result<()> {
        let store = fault(Box::new(store(&bench.model, 1)));
        let mut executor = executor(&bench.model, ReadBack { store, first: Ok(()) });
        walk(bench, &mut executor)?;
        std::mem::replace(&mut executor.attention.store_mut().first, Ok(()))
    }
}

impl<S: Store> Store for ReadBack<S> {
    forward_store!(store);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.store.write(place, key, value);
        let mut found = vec![0.0; key.len()];
        self.store.key(place, &mut found);
        let differs = |(found, written): (&f32, &f32)| found.to_bits() != written.to_bits();
        if let (Ok(()), Some(i)) = (&self.first, found.iter().zip(key).position(differs)) {
            let what = format!("number {i} of the {}", name("key", place));
            let expected = format!("{:.6}, just written there", key[i]);
            self.first = Err(Error::invalid(what, format!("{:.6}", found[i]), expected));
        }
    }

    fn key(&self, place: Place, copy: &mut [f32]) {
        self.store.key(place, copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        self.store.value(place, copy);
    }
}
