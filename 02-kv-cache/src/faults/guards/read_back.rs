//! A store that looks whether a write arrived.

use super::{name, walk};
use crate::faults::{executor, store};
use crate::{Place, Store, forward_store};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};

/// Reads every key and value back as soon as they have been written, and remembers the first that was
/// not there.
pub struct ReadBack<S> {
    store: S,
    first: Result<()>,
}

impl ReadBack<Box<dyn Store>> {
    /// Runs the prompt over a store with `fault` in it.
    ///
    /// # Errors
    /// Names the first key or value that did not arrive.
    pub fn guard(bench: &Bench, fault: impl Fn(Box<dyn Store>) -> Box<dyn Store>) -> Result<()> {
        let store = fault(Box::new(store(&bench.model, 1)?));
        let mut executor = executor(&bench.model, ReadBack { store, first: Ok(()) });
        walk(bench, &mut executor)?;
        std::mem::replace(&mut executor.attention.store_mut().first, Ok(()))
    }
}

impl<S> ReadBack<S> {
    /// Remembers the first number that differs, if it is the first at all.
    fn compare(&mut self, what: &str, place: Place, found: &[f32], written: &[f32]) {
        let differs = |(found, written): (&f32, &f32)| found.to_bits() != written.to_bits();
        if let (Ok(()), Some(i)) = (&self.first, found.iter().zip(written).position(differs)) {
            let what = format!("number {i} of the {}", name(what, place));
            let expected = format!("{:.6}, just written there", written[i]);
            self.first = Err(Error::invalid(what, format!("{:.6}", found[i]), expected));
        }
    }
}

impl<S: Store> Store for ReadBack<S> {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.store.write(place, key, value);
        let mut found = vec![0.0; key.len()];
        self.store.key(place, &mut found);
        self.compare("key", place, &found, key);
        found.resize(value.len(), 0.0);
        self.store.value(place, &mut found);
        self.compare("value", place, &found, value);
    }
}
