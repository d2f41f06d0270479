//! A store that knows what was written to it.

use super::{name, walk};
use crate::faults::executor;
use crate::{Place, Store, forward_store};
use naive_decode::break_it::Bench;
use naive_decode::{Error, Result};

/// Keeps a checksum of every key and value written. [`Checksummed::verify`] then finds whatever
/// changed behind its back. Sixteen bytes for each head of a token (a sum, and whether there is one),
/// and a pass over the cache as often as one likes.
pub struct Checksummed<S> {
    store: S,
    /// `[sequences][layers][kv_heads][capacity]`, of what was last written there, if anything was.
    sums: Vec<Option<u64>>,
}

impl<S: Store> Checksummed<S> {
    /// Checksums over a store that nothing has been written to.
    pub fn new(store: S) -> Self {
        let shape = store.shape();
        let places = store.sequences() * shape.layers * shape.kv_heads * store.capacity();
        Checksummed { store, sums: vec![None; places] }
    }

    fn index(&self, place: Place) -> usize {
        let shape = self.store.shape();
        let head = (place.sequence * shape.layers + place.layer) * shape.kv_heads + place.kv_head;
        head * self.store.capacity() + place.slot
    }

    /// Every key and value of the first `length` tokens of a sequence is as it was written.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn verify(&self, sequence: usize, length: usize) -> Result<()> {
        let shape = self.store.shape();
        let (mut key, mut value) = (vec![0.0; shape.key_dim], vec![0.0; shape.value_dim]);
        for layer in 0..shape.layers {
            for kv_head in 0..shape.kv_heads {
                for slot in 0..length {
                    let place = Place { sequence, layer, kv_head, slot };
                    self.store.key(place, &mut key);
                    self.store.value(place, &mut value);
                    let (found, written) = (checksum(&key, &value), self.sums[self.index(place)]);
                    if written != Some(found) {
                        let expected = match written {
                            Some(sum) => format!("{sum:016x}, as written"),
                            None => "nothing: it was never written".into(),
                        };
                        let what = name("checksum of key and value", place);
                        return Err(Error::invalid(what, format!("{found:016x}"), expected));
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the prompt over `store` and verifies the cache.
    ///
    /// # Errors
    /// As [`Checksummed::verify`].
    pub fn guard(bench: &Bench, store: S) -> Result<()> {
        let mut executor = executor(&bench.model, Checksummed::new(store));
        walk(bench, &mut executor)?;
        executor.attention.store().verify(0, bench.prompt.len())
    }
}

impl<S: Store> Store for Checksummed<S> {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let index = self.index(place);
        self.store.write(place, key, value);
        // A value that is the beginning of its key is not kept beside it.
        let kept = &value[..self.store.shape().value_dim];
        self.sums[index] = Some(checksum(key, kept));
    }
}

/// FNV-1a over the bits. Not for adversaries: for accidents.
fn checksum(key: &[f32], value: &[f32]) -> u64 {
    key.iter().chain(value).fold(0xcbf2_9ce4_8422_2325, |sum, number| {
        (sum ^ u64::from(number.to_bits())).wrapping_mul(0x0100_0000_01b3)
    })
}
