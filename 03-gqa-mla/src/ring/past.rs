//! A ring and the rows of the pass as one line of slots.

use kv_cache::{Place, Store};
use naive_decode::KeyValues;
use ndarray::{ArrayView3, ArrayViewMut1, s};

/// One sequence as attention reads it: slots below `start` from the ring, the others from the pass.
///
/// Attention reads whole tiles of slots, up to fifteen before the first that is visible. The ring
/// may have let those go; in their places are other tokens, finite numbers whose weight is zero.
pub(super) struct PastAndPresent<'a, S> {
    pub(super) store: &'a S,
    pub(super) sequence: usize,
    /// Slot of the pass's first row.
    pub(super) start: usize,
    /// `[rows, kv_heads, D]`
    pub(super) k: ArrayView3<'a, f32>,
    /// `[rows, kv_heads, D_v]`
    pub(super) v: ArrayView3<'a, f32>,
}

impl<S: Store> PastAndPresent<'_, S> {
    // ANCHOR: place
    fn place(&self, kv_head: usize, slot: usize) -> Place {
        let slot = slot % self.store.capacity();
        Place { sequence: self.sequence, layer: 0, kv_head, slot }
    }
    // ANCHOR_END: place
}

impl<S: Store> KeyValues for PastAndPresent<'_, S> {
    fn kv_heads(&self) -> usize {
        self.k.dim().1
    }

    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        match slot.checked_sub(self.start) {
            Some(row) => ArrayViewMut1::from(copy).assign(&self.k.slice(s![row, kv_head, ..])),
            None => self.store.key(self.place(kv_head, slot), copy),
        }
    }

    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        match slot.checked_sub(self.start) {
            Some(row) => ArrayViewMut1::from(copy).assign(&self.v.slice(s![row, kv_head, ..])),
            None => self.store.value(self.place(kv_head, slot), copy),
        }
    }
}
