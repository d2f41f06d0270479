//! Attention with a memory: any [`Store`] made into an [`Attention`].

use crate::lengths::Lengths;
use crate::store::{KvShape, Place, Store};
use naive_decode::{Attention, Error, Isa, KeyValues, LayerSpec, Pass, Result, attend_span};
use ndarray::{Array3, ArrayView3, Axis, s};

/// What anyone who decodes with a cache may do to it between passes.
pub trait KvCache: Attention {
    /// Tokens that a sequence holds.
    ///
    /// # Panics
    /// If there is no such sequence.
    fn len(&self, sequence: usize) -> usize;
    /// Most tokens that a sequence can hold.
    fn capacity(&self) -> usize;
    /// Rolls a sequence back to its first `length` tokens.
    ///
    /// # Errors
    /// If it does not have that many, or there is no such sequence.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()>;
    /// Bytes kept for each token.
    fn bytes_per_token(&self) -> usize;
    /// Bytes set aside for keys and values at this moment, used or not.
    fn allocated_bytes(&self) -> usize;

    /// Empties a sequence, to be used for another.
    ///
    /// # Errors
    /// If there is no such sequence.
    fn reset(&mut self, sequence: usize) -> Result<()> {
        self.truncate(sequence, 0)
    }
}

/// In an `impl` of [`KvCache`] for a decorator over another cache, which is the field `$inner`: the methods that are handed on
/// as they are.
#[macro_export]
macro_rules! forward_kv_cache {
    ($inner:tt: $($method:ident)+) => { $($crate::forward_kv_cache! { @$method $inner })+ };
    (@len $inner:tt) => {
        fn len(&self, sequence: usize) -> usize {
            $crate::KvCache::len(&self.$inner, sequence)
        }
    };
    (@capacity $inner:tt) => {
        fn capacity(&self) -> usize {
            $crate::KvCache::capacity(&self.$inner)
        }
    };
    (@truncate $inner:tt) => {
        fn truncate(&mut self, sequence: usize, length: usize) -> ::naive_decode::Result<()> {
            $crate::KvCache::truncate(&mut self.$inner, sequence, length)
        }
    };
    (@bytes_per_token $inner:tt) => {
        fn bytes_per_token(&self) -> usize {
            $crate::KvCache::bytes_per_token(&self.$inner)
        }
    };
    (@allocated_bytes $inner:tt) => {
        fn allocated_bytes(&self) -> usize {
            $crate::KvCache::allocated_bytes(&self.$inner)
        }
    };
}

/// Attention that writes each new key and value once and reads them in every later pass.
///
/// Invariant: for every sequence, slots `0..lengths.of(sequence)` of the store are written in every
/// layer, and nothing else is read.
pub struct Cached<S> {
    store: S,
    lengths: Lengths,
    isa: Isa,
}

impl<S: Store> Cached<S> {
    /// Attention over a fresh store.
    pub fn new(store: S, isa: Isa) -> Self {
        Cached { lengths: Lengths::new(store.sequences(), store.capacity()), store, isa }
    }

    /// The store, to look at.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, to change. Changing what is written breaks every later answer; that is what the
    /// break-its do.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Whether everything is as it should be between passes: lengths that fit, and nothing to be read
    /// that is not a finite number.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn check_integrity(&self) -> Result<()> {
        self.lengths.check_integrity()?;
        let KvShape { layers, kv_heads, key_dim, value_dim, .. } = self.store.shape();
        let (mut key, mut value) = (vec![0.0; key_dim], vec![0.0; value_dim]);
        for sequence in 0..self.store.sequences() {
            for row in 0..layers * kv_heads * self.lengths.of(sequence) {
                let (head, slot) = (row % (layers * kv_heads), row / (layers * kv_heads));
                let (layer, kv_head) = (head / kv_heads, head % kv_heads);
                let place = Place { sequence, layer, kv_head, slot };
                self.store.key(place, &mut key);
                self.store.value(place, &mut value);
                if let Some(odd) = key.iter().chain(&value).find(|number| !number.is_finite()) {
                    return Err(Error::invalid(format!("{place:?}"), odd, "a finite number"));
                }
            }
        }
        Ok(())
    }
}

impl<S: Store> KvCache for Cached<S> {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    // ANCHOR: truncate
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.lengths.check_truncate(sequence, length)?;
        self.store.truncate(sequence, length);
        self.lengths.truncate(sequence, length);
        Ok(())
    }
    // ANCHOR_END: truncate

    fn bytes_per_token(&self) -> usize {
        self.store.shape().bytes_per_token()
    }

    fn allocated_bytes(&self) -> usize {
        self.store.allocated_bytes()
    }
}

impl<S: Store> Attention for Cached<S> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)
    }

    // ANCHOR: attend
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        // A layer that shares an earlier one's keys and values finds them written.
        if layer.kv_layer == layer.index {
            for (span, rows) in pass.spans_with_rows() {
                for (row, slot) in rows.zip(span.start..) {
                    let (k, v) = (k.index_axis(Axis(0), row), v.index_axis(Axis(0), row));
                    for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                        let place =
                            Place { sequence: span.sequence, layer: layer.index, kv_head, slot };
                        let contiguous = "heads are contiguous";
                        self.store.write(
                            place,
                            k.as_slice().expect(contiguous),
                            v.as_slice().expect(contiguous),
                        );
                    }
                }
            }
        }
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let kept = Kept { store: &self.store, sequence: span.sequence, layer: layer.kv_layer };
            let q = q.slice(s![rows.clone(), .., ..]);
            attend_span(self.isa, layer, span, q, &kept, out.slice_mut(s![rows, .., ..]));
        }
        Ok(out)
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
    }
}

/// One sequence and layer of a store, as attention reads it.
struct Kept<'a, S> {
    store: &'a S,
    sequence: usize,
    layer: usize,
}

impl<S: Store> KeyValues for Kept<'_, S> {
    fn kv_heads(&self) -> usize {
        self.store.shape().kv_heads
    }

    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        let Kept { sequence, layer, .. } = *self;
        self.store.key(Place { sequence, layer, kv_head, slot }, copy);
    }

    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        let Kept { sequence, layer, .. } = *self;
        self.store.value(Place { sequence, layer, kv_head, slot }, copy);
    }
}
