//! One layer's keys and values: the last of them, or all.

use super::past::PastAndPresent;
use kv_cache::{Place, Store};
use naive_decode::{Error, Isa, LayerSpec, Pass, Result, Span, Visible, attend_span};
use ndarray::{Array3, ArrayView3, s};

/// A store of as many places as a ring has; token `i` of a sequence is in place `i mod places`.
pub(super) struct Layer<S> {
    /// How far the layer's rows see; everything if not said, and then the store has room for all.
    window: Option<usize>,
    store: S,
    fresh: Vec<Fresh>,
}

/// Rows of the pass that is under way, as many of the last as a ring can hold.
struct Fresh {
    sequence: usize,
    /// Slot of the first.
    slot: usize,
    /// `[rows, kv_heads, D]`
    k: Array3<f32>,
    /// `[rows, kv_heads, D_v]`
    v: Array3<f32>,
}

impl<S: Store> Layer<S> {
    pub(super) fn new(window: Option<usize>, store: S) -> Self {
        Layer { window, store, fresh: Vec::new() }
    }

    pub(super) fn window(&self) -> Option<usize> {
        self.window
    }

    pub(super) fn places(&self) -> usize {
        self.store.capacity()
    }

    pub(super) fn bytes_per_token(&self) -> usize {
        self.store.shape().bytes_per_token()
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.store.allocated_bytes()
    }

    // ANCHOR: held
    /// First token that is still held of a sequence that has been `longest` tokens long.
    fn first_held(&self, longest: usize) -> usize {
        longest.saturating_sub(self.places())
    }

    /// Shortest length, but for 0, that such a sequence can be rolled back to: what the next token's
    /// window holds besides itself must still be there.
    pub(super) fn shortest(&self, longest: usize) -> usize {
        match self.first_held(longest) {
            0 => 0,
            first => first + self.window.unwrap_or(0).saturating_sub(1),
        }
    }
    // ANCHOR_END: held

    /// Refuses rows that would look at what the ring has let go.
    pub(super) fn check_visible(
        &self,
        layer: LayerSpec,
        span: &Span,
        longest: usize,
    ) -> Result<()> {
        let held = self.first_held(longest);
        let first_seen = |sees: &Visible| {
            let mut places = sees.places(layer.window);
            places.next().map(|place| sees.slot(place))
        };
        match span.sees.iter().filter_map(first_seen).find(|&slot| slot < held) {
            None => Ok(()),
            Some(slot) => {
                let (sequence, index) = (span.sequence, layer.index);
                let what = format!("first slot of sequence {sequence} seen in layer {index}");
                Err(Error::invalid(what, slot, format!("at least {held}, the first still held")))
            }
        }
    }

    /// Holds the rows that will be kept if the pass succeeds: `k [rows, kv_heads, D]`,
    /// `v [rows, kv_heads, D_v]`.
    pub(super) fn hold_fresh(&mut self, pass: &Pass, k: ArrayView3<f32>, v: ArrayView3<f32>) {
        for (span, mut rows) in pass.spans_with_rows() {
            // Earlier rows of a long chunk would be overwritten by its later ones.
            let skipped = rows.len().saturating_sub(self.places());
            rows.start += skipped;
            let own = |x: ArrayView3<f32>| {
                x.slice(s![rows.clone(), .., ..]).as_standard_layout().into_owned()
            };
            let (sequence, slot) = (span.sequence, span.start + skipped);
            self.fresh.push(Fresh { sequence, slot, k: own(k), v: own(v) });
        }
    }

    pub(super) fn drop_fresh(&mut self) {
        self.fresh.clear();
    }

    // ANCHOR: keep
    /// Moves the held rows into the ring, each to the place of the token that it displaces.
    pub(super) fn keep_fresh(&mut self) {
        let places = self.places();
        for Fresh { sequence, slot, k, v } in self.fresh.drain(..) {
            for (slot, (k, v)) in (slot..).zip(k.outer_iter().zip(v.outer_iter())) {
                for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                    let place = Place { sequence, layer: 0, kv_head, slot: slot % places };
                    let contiguous = "heads are contiguous";
                    let (k, v) = (k.to_slice().expect(contiguous), v.to_slice().expect(contiguous));
                    self.store.write(place, k, v);
                }
            }
        }
    }
    // ANCHOR_END: keep

    /// `q [rows, heads, D]` → `[rows, heads, D_v]`: the past from the ring, the pass's own rows
    /// from `k` and `v`.
    pub(super) fn attend(
        &self,
        isa: Isa,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Array3<f32> {
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let past = PastAndPresent {
                store: &self.store,
                sequence: span.sequence,
                start: span.start,
                k: k.slice(s![rows.clone(), .., ..]),
                v: v.slice(s![rows.clone(), .., ..]),
            };
            let q = q.slice(s![rows.clone(), .., ..]);
            attend_span(isa, layer, span, q, &past, out.slice_mut(s![rows, .., ..]));
        }
        out
    }

    /// No place of a sequence holds anything but finite numbers.
    pub(super) fn check_finite(&self, index: usize, sequence: usize) -> Result<()> {
        let shape = self.store.shape();
        let (mut key, mut value) = (vec![0.0f32; shape.key_dim], vec![0.0f32; shape.value_dim]);
        for kv_head in 0..shape.kv_heads {
            for slot in 0..self.places() {
                let place = Place { sequence, layer: 0, kv_head, slot };
                self.store.key(place, &mut key);
                self.store.value(place, &mut value);
                if let Some(odd) = key.iter().chain(&value).find(|number| !number.is_finite()) {
                    let what = format!("place {slot} of layer {index}, sequence {sequence}");
                    return Err(Error::invalid(what, odd, "a finite number"));
                }
            }
        }
        Ok(())
    }
}
