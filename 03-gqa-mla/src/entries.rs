//! Keys and values of one head as growing lists from which single entries can be taken out.

use half::{bf16, f16};
use kv_cache::KvShape;
use naive_decode::Element;

/// Entries of one key-value head of one layer, in the type that the model rounds them to.
///
/// Invariant: keys hold `len · D` numbers and values `len · D_v`.
#[derive(Clone)]
pub(crate) struct Entries {
    key_dim: usize,
    value_dim: usize,
    len: usize,
    keys: Numbers,
    values: Numbers,
}

#[derive(Clone)]
enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    F16(Vec<f16>),
}

/// Runs the same code on whichever list it is.
macro_rules! on_list {
    ($numbers:expr, $list:ident => $code:expr) => {
        match $numbers {
            Numbers::F32($list) => $code,
            Numbers::Bf16($list) => $code,
            Numbers::F16($list) => $code,
        }
    };
}

impl Entries {
    /// No entries, and nothing set aside.
    pub(crate) fn new(shape: KvShape) -> Self {
        let numbers = || match shape.element {
            Element::F32 => Numbers::F32(Vec::new()),
            Element::Bf16 => Numbers::Bf16(Vec::new()),
            Element::F16 => Numbers::F16(Vec::new()),
        };
        let (key_dim, value_dim) = (shape.key_dim, shape.value_dim);
        Entries { key_dim, value_dim, len: 0, keys: numbers(), values: numbers() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets aside room for exactly `entries` in all, if there is less.
    pub(crate) fn reserve(&mut self, entries: usize) {
        for (numbers, dim) in [(&mut self.keys, self.key_dim), (&mut self.values, self.value_dim)] {
            on_list!(numbers, list => list.reserve_exact((entries * dim).saturating_sub(list.len())));
        }
    }

    /// Gives back what is set aside for more than `entries`.
    pub(crate) fn shrink_to(&mut self, entries: usize) {
        for (numbers, dim) in [(&mut self.keys, self.key_dim), (&mut self.values, self.value_dim)] {
            on_list!(numbers, list => list.shrink_to(entries * dim));
        }
    }

    /// Appends a key `[D]` and a value, of which the first `D_v` numbers are kept.
    pub(crate) fn push(&mut self, key: &[f32], value: &[f32]) {
        self.keys.extend(key);
        // A value without room of its own is the beginning of its key.
        self.values.extend(&value[..self.value_dim]);
        self.len += 1;
    }

    /// Copies the key in a place.
    pub(crate) fn key(&self, place: usize, copy: &mut [f32]) {
        self.keys.get(place * self.key_dim, copy);
    }

    /// Copies the value in a place.
    pub(crate) fn value(&self, place: usize, copy: &mut [f32]) {
        match self.value_dim {
            0 => self.keys.get(place * self.key_dim, copy),
            dim => self.values.get(place * dim, copy),
        }
    }

    /// Drops all entries but those in `places`, ascending; they move together.
    pub(crate) fn keep(&mut self, places: &[usize]) {
        self.keys.keep(places, self.key_dim);
        self.values.keep(places, self.value_dim);
        self.len = places.len();
    }

    /// Bytes set aside.
    pub(crate) fn bytes(&self) -> usize {
        [&self.keys, &self.values].iter().map(|numbers| numbers.bytes()).sum()
    }
}

impl Numbers {
    fn extend(&mut self, from: &[f32]) {
        match self {
            Numbers::F32(list) => list.extend(from),
            Numbers::Bf16(list) => list.extend(from.iter().map(|&v| bf16::from_f32(v))),
            Numbers::F16(list) => list.extend(from.iter().map(|&v| f16::from_f32(v))),
        }
    }

    fn get(&self, at: usize, copy: &mut [f32]) {
        match self {
            Numbers::F32(list) => copy.copy_from_slice(&list[at..][..copy.len()]),
            Numbers::Bf16(list) => {
                copy.iter_mut().zip(&list[at..]).for_each(|(to, from)| *to = from.to_f32());
            }
            Numbers::F16(list) => {
                copy.iter_mut().zip(&list[at..]).for_each(|(to, from)| *to = from.to_f32());
            }
        }
    }

    fn keep(&mut self, places: &[usize], dim: usize) {
        on_list!(self, list => {
            for (to, from) in places.iter().enumerate() {
                list.copy_within(from * dim..(from + 1) * dim, to * dim);
            }
            list.truncate(places.len() * dim);
        });
    }

    fn bytes(&self) -> usize {
        match self {
            Numbers::F32(list) => list.capacity() * size_of::<f32>(),
            Numbers::Bf16(list) => list.capacity() * size_of::<bf16>(),
            Numbers::F16(list) => list.capacity() * size_of::<f16>(),
        }
    }
}
