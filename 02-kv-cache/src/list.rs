//! The list cache: growing lists as in microGPT, but two for each sequence, layer and key-value head.

use crate::store::{KvShape, Place, Store};
use naive_decode::Element;

/// Keys and values as lists that grow by one entry a token.
///
/// Nothing is set aside for tokens that do not come. But every key is an allocation of its own,
/// somewhere in memory, with book-keeping of its own, and reading a layer's keys means chasing them.
pub struct ListStore {
    shape: KvShape,
    capacity: usize,
    /// `[sequences][layers][kv_heads]`, each a list over tokens.
    lists: Vec<Lists>,
}

/// One head of one layer: a key `[D]` and a value `[D_v]` per token.
#[derive(Clone, Default)]
struct Lists {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl ListStore {
    /// Empty lists for `sequences` sequences of at most `capacity` tokens.
    ///
    /// Lists keep f32 whatever the model rounds to: a value that bf16 can hold, f32 can too.
    pub fn new(shape: KvShape, capacity: usize, sequences: usize) -> Self {
        let shape = KvShape { element: Element::F32, ..shape };
        let lists = vec![Lists::default(); sequences * shape.layers * shape.kv_heads];
        ListStore { shape, capacity, lists }
    }

    fn index(&self, place: Place) -> usize {
        // A head or layer too many would be the next one's first: never let it pass.
        assert!(
            place.sequence < self.sequences()
                && place.layer < self.shape.layers
                && place.kv_head < self.shape.kv_heads,
            "{place:?} is outside the cache"
        );
        (place.sequence * self.shape.layers + place.layer) * self.shape.kv_heads + place.kv_head
    }
}

impl Store for ListStore {
    fn shape(&self) -> KvShape {
        self.shape
    }

    fn sequences(&self) -> usize {
        self.lists.len() / (self.shape.layers * self.shape.kv_heads)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    // ANCHOR: write
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let index = self.index(place);
        let Lists { keys, values } = &mut self.lists[index];
        // A value without room of its own is the beginning of its key.
        let value = &value[..self.shape.value_dim];
        for (list, new) in [(keys, key), (values, value)] {
            // One more token is one more entry. A gap can only be a fault's doing; it reads as
            // zeros, as a fresh slab would.
            if list.len() < place.slot {
                list.resize(place.slot, vec![0.0; new.len()]);
            }
            match list.get_mut(place.slot) {
                None => list.push(new.to_vec()),
                Some(entry) => entry.copy_from_slice(new),
            }
        }
    }
    // ANCHOR_END: write

    fn key(&self, place: Place, copy: &mut [f32]) {
        copy_or_zero(&self.lists[self.index(place)].keys, place.slot, copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        let Lists { keys, values } = &self.lists[self.index(place)];
        copy_or_zero(if self.shape.value_dim > 0 { values } else { keys }, place.slot, copy);
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        let per_sequence = self.shape.layers * self.shape.kv_heads;
        for lists in &mut self.lists[sequence * per_sequence..][..per_sequence] {
            lists.keys.truncate(length);
            lists.values.truncate(length);
        }
    }

    fn allocated_bytes(&self) -> usize {
        let numbers = |list: &Vec<Vec<f32>>| list.iter().map(Vec::capacity).sum::<usize>();
        self.lists.iter().map(|l| numbers(&l.keys) + numbers(&l.values)).sum::<usize>()
            * size_of::<f32>()
    }
}

fn copy_or_zero(list: &[Vec<f32>], slot: usize, copy: &mut [f32]) {
    match list.get(slot) {
        Some(kept) => copy.copy_from_slice(&kept[..copy.len()]),
        None => copy.fill(0.0),
    }
}
