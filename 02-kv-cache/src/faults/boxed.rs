//! A store behind a pointer is a store: a break-it can then choose at run time whether its fault is in.

use crate::{KvShape, Place, Store};

impl Store for Box<dyn Store> {
    fn shape(&self) -> KvShape {
        (**self).shape()
    }

    fn sequences(&self) -> usize {
        (**self).sequences()
    }

    fn capacity(&self) -> usize {
        (**self).capacity()
    }

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        (**self).write(place, key, value);
    }

    fn key(&self, place: Place, copy: &mut [f32]) {
        (**self).key(place, copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        (**self).value(place, copy);
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        (**self).truncate(sequence, length);
    }

    fn allocated_bytes(&self) -> usize {
        (**self).allocated_bytes()
    }
}
