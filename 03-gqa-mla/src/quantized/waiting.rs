//! Rows in full precision: those that wait to be coded, and those of the pass at hand.

use kv_cache::{ContiguousStore, KvShape, Place, Store};
use naive_decode::{Error, Pass, Result, Span};
use ndarray::{Array3, ArrayView3, s};
use std::ops::Range;

/// The latest rows of every sequence, layer and head as they were made.
pub(super) struct Waiting {
    /// The row of slot `i` is in slot `i % capacity` of this store.
    store: ContiguousStore,
    /// Rows of the pass at hand that will wait once it is done. A pass that fails must not touch those
    /// that wait already.
    pending: Vec<Pending>,
    /// First slot of each sequence whose row is still there.
    oldest: Vec<usize>,
}

/// The last rows of one span and layer, `[rows, kv_heads, D]`.
struct Pending {
    sequence: usize,
    layer: usize,
    start: usize,
    keys: Array3<f32>,
    values: Array3<f32>,
}

impl Waiting {
    /// Room for the latest `rows` rows of each sequence.
    ///
    /// # Errors
    /// As [`ContiguousStore::new`].
    pub(super) fn new(shape: KvShape, rows: usize, sequences: usize) -> Result<Self> {
        let store = ContiguousStore::new(shape, rows, sequences)?;
        Ok(Waiting { store, pending: Vec::new(), oldest: vec![0; sequences] })
    }

    /// A pass begins; what an earlier one that failed has left is dropped.
    pub(super) fn begin(&mut self) {
        self.pending.clear();
    }

    /// Puts by what will wait of a span's rows; `rows` of all the pass's `keys` and `values` are its own.
    pub(super) fn hold(
        &mut self,
        layer: usize,
        span: &Span,
        rows: Range<usize>,
        keys: &Array3<f32>,
        values: &Array3<f32>,
    ) {
        let last = rows.end.saturating_sub(self.store.capacity()).max(rows.start)..rows.end;
        let tail = |rows: &Array3<f32>| rows.slice(s![last.clone(), .., ..]).to_owned();
        self.pending.push(Pending {
            sequence: span.sequence,
            layer,
            start: span.end() - last.len(),
            keys: tail(keys),
            values: tail(values),
        });
    }

    /// The pass is done: its rows wait in the place of the oldest.
    pub(super) fn commit(&mut self, pass: &Pass) {
        for Pending { sequence, layer, start, keys, values } in std::mem::take(&mut self.pending) {
            for (slot, (k, v)) in (start..).zip(keys.outer_iter().zip(values.outer_iter())) {
                for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                    let place = self.place(Place { sequence, layer, kv_head, slot });
                    let contiguous = "heads are contiguous";
                    let (k, v) = (k.to_slice(), v.to_slice());
                    self.store.write(place, k.expect(contiguous), v.expect(contiguous));
                }
            }
        }
        for span in &pass.spans {
            let oldest = &mut self.oldest[span.sequence];
            *oldest = (*oldest).max(span.end().saturating_sub(self.store.capacity()));
        }
    }

    /// First slot of a sequence whose row is still there.
    pub(super) fn oldest(&self, sequence: usize) -> usize {
        self.oldest[sequence]
    }

    /// A sequence is empty: no row of it is missing.
    pub(super) fn reset(&mut self, sequence: usize) {
        self.oldest[sequence] = 0;
    }

    pub(super) fn sequences(&self) -> usize {
        self.oldest.len()
    }

    /// Whether the rows of a sequence's `slots`, its last, are all there.
    pub(super) fn check_integrity(&self, sequence: usize, slots: Range<usize>) -> Result<()> {
        let oldest = self.oldest[sequence];
        if !slots.is_empty() && slots.start < oldest {
            let what = format!("oldest row of sequence {sequence} in full precision");
            return Err(Error::invalid(what, oldest, format!("at most {}", slots.start)));
        }
        if slots.len() > self.store.capacity() {
            let what = format!("rows of sequence {sequence} that are not coded");
            let expected = format!("at most {}, as many as wait", self.store.capacity());
            return Err(Error::invalid(what, slots.len(), expected));
        }
        Ok(())
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.store.allocated_bytes()
    }

    /// Where the row of a slot is.
    fn place(&self, place: Place) -> Place {
        Place { slot: place.slot % self.store.capacity(), ..place }
    }
}

/// One sequence and layer in full precision, as far as it is there.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) waiting: Option<&'a Waiting>,
    pub(super) sequence: usize,
    pub(super) layer: usize,
    /// Slot of the pass's first row.
    pub(super) start: usize,
    /// The pass's rows, `[rows, kv_heads, D]`.
    pub(super) keys: ArrayView3<'a, f32>,
    /// `[rows, kv_heads, D_v]`
    pub(super) values: ArrayView3<'a, f32>,
}

impl Rows<'_> {
    /// Copies the key of a slot that is not coded, or not yet.
    pub(super) fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        match slot.checked_sub(self.start) {
            Some(row) => copy_row(self.keys, row, kv_head, copy),
            None => {
                let (waiting, place) = self.waiting(kv_head, slot);
                waiting.key(place, copy);
            }
        }
    }

    /// Copies the value of a slot that is not coded, or not yet.
    pub(super) fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        match slot.checked_sub(self.start) {
            Some(row) => copy_row(self.values, row, kv_head, copy),
            None => {
                let (waiting, place) = self.waiting(kv_head, slot);
                waiting.value(place, copy);
            }
        }
    }

    fn waiting(&self, kv_head: usize, slot: usize) -> (&ContiguousStore, Place) {
        let Rows { sequence, layer, .. } = *self;
        let waiting = self.waiting.expect("rows that are not coded wait");
        (&waiting.store, waiting.place(Place { sequence, layer, kv_head, slot }))
    }
}

fn copy_row(rows: ArrayView3<f32>, row: usize, kv_head: usize, copy: &mut [f32]) {
    copy.iter_mut().zip(rows.slice(s![row, kv_head, ..])).for_each(|(to, from)| *to = *from);
}
