//! The contiguous cache: one slab per sequence, set aside in full before the first token.

use crate::store::{KvShape, Place, Store};
use bytemuck::allocation::try_zeroed_vec;
use half::{bf16, f16};
use naive_decode::{Element, Error, Result};

/// Keys and values in one allocation of exactly [`KvShape::bytes`].
///
/// Layout: `[sequences][layers]`, in each layer `[kv_heads][capacity][D]` of keys and then
/// `[kv_heads][capacity][D_v]` of values, so that all keys of one head follow each other in memory and a step reads them straight through. The slab itself never
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

impl ContiguousStore {
    // ANCHOR: new
    /// Sets aside room for `sequences` sequences of `capacity` tokens each.
    ///
    /// # Errors
    /// If the system does not give that much.
    pub fn new(shape: KvShape, capacity: usize, sequences: usize) -> Result<Self> {
        let bytes = shape.bytes(capacity, sequences);
        let count = bytes / shape.element.bytes();
        // Where memory is refused, `vec!` would end the program.
        let slab = match shape.element {
            Element::F32 => try_zeroed_vec(count).map(Slab::F32),
            Element::Bf16 => try_zeroed_vec(count).map(Slab::Bf16),
            Element::F16 => try_zeroed_vec(count).map(Slab::F16),
        };
        let slab = slab.map_err(|()| {
            Error::invalid("bytes of the slab", bytes, "no more than the system has to give")
        })?;
        Ok(ContiguousStore { shape, capacity, sequences, slab })
    }
    // ANCHOR_END: new

    // ANCHOR: index
    /// Indices of the first number of a key and of its value.
    fn index(&self, place: Place) -> (usize, usize) {
        // A place past the end of one head would be the start of the next: never let it pass.
        assert!(
            place.sequence < self.sequences
                && place.layer < self.shape.layers
                && place.kv_head < self.shape.kv_heads
                && place.slot < self.capacity,
            "{place:?} is outside the cache"
        );
        let KvShape { layers, kv_heads, key_dim, value_dim, .. } = self.shape;
        let per_layer = kv_heads * self.capacity * (key_dim + value_dim);
        let keys = (place.sequence * layers + place.layer) * per_layer;
        let values = keys + kv_heads * self.capacity * key_dim;
        let row = place.kv_head * self.capacity + place.slot;
        let key = keys + row * key_dim;
        // A value without room of its own is the beginning of its key.
        (key, if value_dim == 0 { key } else { values + row * value_dim })
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
        let (k, v) = self.index(place);
        self.put(k, key);
        if self.shape.value_dim > 0 {
            self.put(v, value);
        }
    }

    fn key(&self, place: Place, copy: &mut [f32]) {
        self.get(self.index(place).0, copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        self.get(self.index(place).1, copy);
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
