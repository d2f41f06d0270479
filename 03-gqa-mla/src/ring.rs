//! A cache that keeps of each layer what that layer can still look at.
//!
//! A layer with a window of `W` never again asks for what lies more than `W` tokens back. Its keys
//! and values live in a *ring*: token `i` in place `i mod C`, where `C` is `W` and a few spare
//! places. The newest token takes the place of the oldest, and memory stays what it is however long
//! the text grows. Nothing else changes: keys were turned by their positions before they were
//! written, and attention asks for slots, not places. A layer that sees everything is a ring that
//! never comes round.
//!
//! | File | Holds |
//! |---|---|
//! | `makers.rs` | which layers make keys and values, and how far their readers see |
//! | `layer.rs` | the ring of one layer |
//! | `past.rs` | a ring and the rows of the pass as one line of slots |

mod layer;
mod makers;
mod past;

use kv_cache::{ContiguousStore, KvCache, KvShape, Lengths, Store};
use layer::Layer;
pub use makers::{Maker, makers};
use naive_decode::{Attention, Error, Isa, KvSize, LayerSpec, Model, Pass, Result};
use ndarray::{Array3, ArrayView3};

/// How much a [`HybridCache`] sets aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most tokens of one sequence.
    pub capacity: usize,
    /// Sequences.
    pub sequences: usize,
    /// Places in each ring beyond its window. A sequence can be rolled back by as many tokens and one
    /// more from the longest it has been: the next token's window has that token itself in it.
    pub spare: usize,
}

/// Attention over rings and whole pasts, as each layer needs.
///
/// Within a pass, attention reads the past from the rings and the pass's own rows where they are.
/// They move into the rings in `commit`: a pass that fails leaves everything as it was, and one
/// that is longer than a window needs no larger ring.
///
/// Invariant: each layer that makes keys and values holds what the next token of every sequence sees
/// before it: the last `window - 1` tokens, or all of them if it has no window or they are fewer.
pub struct HybridCache<S = ContiguousStore> {
    /// By layer; none for one that shares another's.
    layers: Vec<Option<Layer<S>>>,
    lengths: Lengths,
    /// Longest that each sequence has been since it was last empty: what decides which tokens the
    /// rings have let go.
    longest: Vec<usize>,
    isa: Isa,
}

impl HybridCache {
    /// An empty cache for a model's layers, in the element type that the model rounds to.
    ///
    /// # Errors
    /// If the first layer makes no keys and values: such a model cannot run; or if there is no memory for so many.
    pub fn new(model: &Model, room: Room) -> Result<Self> {
        HybridCache::over(model, room, |_, shape, places| {
            ContiguousStore::new(shape, places, room.sequences)
        })
    }
}

impl<S: Store> HybridCache<S> {
    /// An empty cache over stores of one's own: `store(window, shape, places)` makes that of one
    /// layer, for `room.sequences` sequences. Its places must read as finite numbers from the
    /// beginning.
    ///
    /// # Errors
    /// As [`HybridCache::new`].
    pub fn over(
        model: &Model,
        room: Room,
        store: impl Fn(Option<usize>, KvShape, usize) -> Result<S>,
    ) -> Result<Self> {
        let element = model.kv_element;
        let layer = |Maker { size, window }| {
            let KvSize { heads: kv_heads, key_dim, value_dim } = size;
            let shape = KvShape { layers: 1, kv_heads, key_dim, value_dim, element };
            let ring = window.map_or(usize::MAX, |window| window.max(1).saturating_add(room.spare));
            Ok(Layer::new(window, store(window, shape, ring.min(room.capacity))?))
        };
        let layers = makers(model)?.into_iter().map(|made| made.map(layer).transpose());
        Ok(HybridCache {
            layers: layers.collect::<Result<_>>()?,
            lengths: Lengths::new(room.sequences, room.capacity),
            longest: vec![0; room.sequences],
            isa: model.isa,
        })
    }

    /// Bytes that a sequence of `length` tokens, up to the capacity, needs: all of it in layers
    /// that see everything, a ring at most in the others.
    pub fn bytes_at(&self, length: usize) -> usize {
        let bytes = |layer: &Layer<S>| layer.bytes_per_token() * length.min(layer.places());
        self.layers.iter().flatten().map(bytes).sum()
    }

    /// Whether the invariants hold: lengths that fit, rings that hold their windows, and no place
    /// that would spoil a sum by not being a finite number.
    ///
    /// # Errors
    /// Names the first that does not.
    pub fn check_integrity(&self) -> Result<()> {
        for (sequence, &longest) in self.longest.iter().enumerate() {
            let (now, capacity) = (self.lengths.of(sequence), self.lengths.capacity());
            if now > longest || longest > capacity {
                let found = format!("{now}, and has been {longest}");
                let expected = format!("no longer than it has been, and at most {capacity}");
                return Err(Error::invalid(
                    format!("length of sequence {sequence}"),
                    found,
                    expected,
                ));
            }
            for (index, layer) in self.layers.iter().enumerate() {
                let Some(layer) = layer else { continue };
                if now > 0 && now < layer.shortest(longest) {
                    let what = format!("length of sequence {sequence} in layer {index}");
                    let expected = format!("at least {}: its ring", layer.shortest(longest));
                    return Err(Error::invalid(what, now, expected));
                }
                layer.check_finite(index, sequence)?;
            }
        }
        Ok(())
    }
}

impl<S: Store> KvCache for HybridCache<S> {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    // ANCHOR: truncate
    /// Refuses, too, where a ring would have to bring back what it has let go.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        let now = self.lengths.check_truncate(sequence, length)?;
        let longest = self.longest[sequence];
        let shortest = self.layers.iter().flatten().map(|layer| layer.shortest(longest)).max();
        let shortest = shortest.unwrap_or(0);
        if 0 < length && length < shortest {
            let expected = format!(
                "0, or {shortest} to {now}: the rings no longer hold the windows of tokens before {shortest}"
            );
            let what = format!("length to truncate sequence {sequence} to");
            return Err(Error::invalid(what, length, expected));
        }
        self.lengths.truncate(sequence, length);
        if length == 0 {
            self.longest[sequence] = 0;
        }
        Ok(())
    }
    // ANCHOR_END: truncate

    /// What one more token costs once all windows are full: its keys and values in the layers that
    /// see everything. The rings then cost what they cost; see [`HybridCache::bytes_at`].
    fn bytes_per_token(&self) -> usize {
        let whole = self.layers.iter().flatten().filter(|layer| layer.window().is_none());
        whole.map(Layer::bytes_per_token).sum()
    }

    /// Rings and whole pasts. The rows of a pass that is under way are the pass's own.
    fn allocated_bytes(&self) -> usize {
        self.layers.iter().flatten().map(Layer::allocated_bytes).sum()
    }
}

impl<S: Store> Attention for HybridCache<S> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)?;
        // What a pass that failed has left behind.
        self.layers.iter_mut().flatten().for_each(Layer::drop_fresh);
        Ok(())
    }

    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let Some(Some(kept)) = self.layers.get_mut(layer.kv_layer) else {
            let expected = "a layer that makes its own";
            return Err(Error::invalid("layer of keys and values", layer.kv_layer, expected));
        };
        for span in &pass.spans {
            kept.check_visible(layer, span, self.longest[span.sequence])?;
        }
        if layer.kv_layer == layer.index {
            kept.hold_fresh(pass, k, v);
        }
        Ok(kept.attend(self.isa, layer, pass, q, k, v))
    }

    fn commit(&mut self, pass: &Pass) {
        self.layers.iter_mut().flatten().for_each(Layer::keep_fresh);
        self.lengths.commit(pass);
        for span in &pass.spans {
            let longest = &mut self.longest[span.sequence];
            *longest = (*longest).max(span.end());
        }
    }
}
