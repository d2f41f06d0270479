//! The contiguous cache: one slab per sequence, set aside in full before the first token.

use crate::store::{KvShape, Place, Store};
use half::{bf16, f16};
use naive_decode::Element;

/// Keys and values in one allocation of exactly `2 · L · H_kv · D · bytes · capacity · sequences`.
///
/// Layout: `[sequences][layers][key, value][kv_heads][capacity][head_dim]`, so that all keys of one
/// head follow each other in memory and a step reads them straight through. The slab itself never
/// grows. The price is paid up front: a sequence that stops early has reserved what it
/// never used (rung 05 takes that up).
pub struct ContiguousStore {
    shape: KvShape,
    capacity: usize,
    sequences: usize,
    slab: Slab,
}

/// The numbers, in the type that keys and values are rounded to anyway.
enum Slab {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
}

/// Which half of a layer's share of the slab.
#[derive(Clone, Copy)]
enum Half {
    Key,
    Value,
}

impl ContiguousStore {
    // ANCHOR: new
    /// Sets aside room for `sequences` sequences of `capacity` tokens each.
    pub fn new(shape: KvShape, capacity: usize, sequences: usize) -> Self {
        let count = 2 * shape.layers * shape.kv_heads * shape.head_dim * capacity * sequences;
        let slab = match shape.element {
            Element::F32 => Slab::F32(vec![0.0; count]),
            Element::Bf16 => Slab::Bf16(vec![bf16::ZERO; count]),
            Element::F16 => Slab::F16(vec![f16::ZERO; count]),
        };
        ContiguousStore { shape, capacity, sequences, slab }
    }
    // ANCHOR_END: new

    // ANCHOR: index
    /// Index of the first number of a key or value.
    fn index(&self, place: Place, half: Half) -> usize {
        // A place past the end of one head would be the start of the next: never let it pass.
        assert!(
            place.sequence < self.sequences
                && place.layer < self.shape.layers
                && place.kv_head < self.shape.kv_heads
                && place.slot < self.capacity,
            "{place:?} is outside the cache"
        );
        let layer = place.sequence * self.shape.layers + place.layer;
        let head = (2 * layer + half as usize) * self.shape.kv_heads + place.kv_head;
        (head * self.capacity + place.slot) * self.shape.head_dim
    }
    // ANCHOR_END: index

    fn put(&mut self, at: usize, from: &[f32]) {
        match &mut self.slab {
            Slab::F32(slab) => slab[at..][..from.len()].copy_from_slice(from),
            Slab::Bf16(slab) => narrow(&mut slab[at..], from, bf16::from_f32),
            Slab::F16(slab) => narrow(&mut slab[at..], from, f16::from_f32),
        }
    }

    fn get(&self, at: usize, copy: &mut [f32]) {
        match &self.slab {
            Slab::F32(slab) => copy.copy_from_slice(&slab[at..][..copy.len()]),
            Slab::Bf16(slab) => widen(&slab[at..], copy, bf16::to_f32),
            Slab::F16(slab) => widen(&slab[at..], copy, f16::to_f32),
        }
    }
}

fn narrow<T>(to: &mut [T], from: &[f32], convert: fn(f32) -> T) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = convert(from));
}

fn widen<T: Copy>(from: &[T], to: &mut [f32], convert: fn(T) -> f32) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = convert(from));
}

impl Store for ContiguousStore {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn sequences(&self) -> usize {
        self.sequences
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let (k, v) = (self.index(place, Half::Key), self.index(place, Half::Value));
        self.put(k, key);
        self.put(v, value);
    }

    fn key(&self, place: Place, copy: &mut [f32]) {
        self.get(self.index(place, Half::Key), copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        self.get(self.index(place, Half::Value), copy);
    }

    /// Nothing to do: what lies past a sequence's length is never read before it is written again.
    fn truncate(&mut self, _sequence: usize, _length: usize) {}

    fn allocated_bytes(&self) -> usize {
        let count = match &self.slab {
            Slab::F32(slab) => slab.capacity(),
            Slab::Bf16(slab) => slab.capacity(),
            Slab::F16(slab) => slab.capacity(),
        };
        count * self.shape.element.bytes()
    }
}
