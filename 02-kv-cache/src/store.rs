//! Where keys and values are kept: the one thing that the caches of this rung differ in.

use naive_decode::{Element, KvSize, Model};

/// The sizes of a model's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Layers that there is room for.
    pub layers: usize,
    /// Key-value heads per layer.
    pub kv_heads: usize,
    /// Width of a key.
    pub key_dim: usize,
    /// Width of a value; 0 if a value is the beginning of its key, and is not kept beside it.
    pub value_dim: usize,
    /// Type of one number.
    pub element: Element,
}

impl KvShape {
    /// The shape of a model's keys and values, with room for every layer, those that share an earlier one's included, as for
    /// the first that makes some.
    ///
    /// # Panics
    /// If no layer makes keys and values: such a model cannot run.
    pub fn of(model: &Model) -> Self {
        let first = model.blocks.iter().find_map(|block| block.projection.kv());
        let KvSize { heads, key_dim, value_dim } = first.expect("some layer makes keys and values");
        let (layers, element) = (model.blocks.len(), model.kv_element);
        KvShape { layers, kv_heads: heads, key_dim, value_dim, element }
    }

    /// The same with room for those layers alone that make keys and values: what share an earlier one's keep nothing.
    ///
    /// # Panics
    /// If no layer does.
    pub fn of_makers(model: &Model) -> Self {
        let makers = model.blocks.iter().filter(|block| block.projection.kv().is_some());
        KvShape { layers: makers.count(), ..KvShape::of(model) }
    }

    // ANCHOR: size
    /// `L · H_kv · (D + D_v) · bytes`: what one token costs for as long as it is remembered.
    ///
    /// With values as wide as keys it is the well-known `2 · L · H_kv · D · bytes`. Queries are not kept: a query is asked once, in the step
    /// that made it, and no later step refers to it.
    pub fn bytes_per_token(&self) -> usize {
        self.layers * self.kv_heads * (self.key_dim + self.value_dim) * self.element.bytes()
    }
    // ANCHOR_END: size

    /// Bytes for `tokens` tokens of each of `sequences` sequences. More than can be counted is more than there is, and is
    /// refused when it is set aside.
    pub fn bytes(&self, tokens: usize, sequences: usize) -> usize {
        self.bytes_per_token().saturating_mul(tokens).saturating_mul(sequences)
    }
}

// ANCHOR: place
/// Which key, or which value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Sequence.
    pub sequence: usize,
    /// Layer.
    pub layer: usize,
    /// Key-value head.
    pub kv_head: usize,
    /// Token, counted from the start of the sequence.
    pub slot: usize,
}
// ANCHOR_END: place

// ANCHOR: seam
/// Keeps keys and values by place.
///
/// Nothing here knows about attention, so a fault in a cache can be told apart from a fault in the
/// reading of it: every break-it of this rung that corrupts a cache is a decorator over this trait.
pub trait Store: Send + Sync {
    /// The sizes it was made for.
    fn shape(&self) -> KvShape;
    /// How many sequences it keeps.
    fn sequences(&self) -> usize;
    /// Most tokens that one sequence can have.
    fn capacity(&self) -> usize;
    /// Writes one head's key and value.
    ///
    /// # Panics
    /// If there is no such sequence, layer or head, or no such slot in a slab; [`crate::Cached`] checks
    /// sequence and slot before it writes.
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]);
    /// Copies the key at a place that has been written.
    fn key(&self, place: Place, copy: &mut [f32]);
    /// Copies the value at a place that has been written.
    fn value(&self, place: Place, copy: &mut [f32]);
    /// Forgets the tokens of a sequence from `length` on.
    fn truncate(&mut self, sequence: usize, length: usize);
    /// Bytes set aside for keys and values at this moment, used or not.
    fn allocated_bytes(&self) -> usize;
}
// ANCHOR_END: seam

/// In an `impl` of [`Store`] for a decorator over another store, which is the field `$inner`: the methods that are handed on
/// as they are.
#[macro_export]
macro_rules! forward_store {
    ($inner:tt: $($method:ident)+) => { $($crate::forward_store! { @$method $inner })+ };
    (@shape $inner:tt) => {
        fn shape(&self) -> $crate::KvShape {
            $crate::Store::shape(&self.$inner)
        }
    };
    (@sequences $inner:tt) => {
        fn sequences(&self) -> usize {
            $crate::Store::sequences(&self.$inner)
        }
    };
    (@capacity $inner:tt) => {
        fn capacity(&self) -> usize {
            $crate::Store::capacity(&self.$inner)
        }
    };
    (@write $inner:tt) => {
        fn write(&mut self, place: $crate::Place, key: &[f32], value: &[f32]) {
            $crate::Store::write(&mut self.$inner, place, key, value);
        }
    };
    (@key $inner:tt) => {
        fn key(&self, place: $crate::Place, copy: &mut [f32]) {
            $crate::Store::key(&self.$inner, place, copy);
        }
    };
    (@value $inner:tt) => {
        fn value(&self, place: $crate::Place, copy: &mut [f32]) {
            $crate::Store::value(&self.$inner, place, copy);
        }
    };
    (@truncate $inner:tt) => {
        fn truncate(&mut self, sequence: usize, length: usize) {
            $crate::Store::truncate(&mut self.$inner, sequence, length);
        }
    };
    (@allocated_bytes $inner:tt) => {
        fn allocated_bytes(&self) -> usize {
            $crate::Store::allocated_bytes(&self.$inner)
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_formula_gives_the_published_figures() {
        let shape = |layers, kv_heads, dim| KvShape {
            layers,
            kv_heads,
            key_dim: dim,
            value_dim: dim,
            element: Element::Bf16,
        };
        // Llama-2-70B, and a 12-layer model of width 768 with 12 heads.
        assert_eq!(shape(80, 8, 128).bytes(4096, 1), 1_342_177_280);
        assert_eq!(shape(80, 8, 128).bytes_per_token(), 327_680);
        assert_eq!(shape(12, 12, 64).bytes(4096, 1), 144 << 20);
    }
}
