//! A cache of codes behind the seams that every cache has.

use super::codec::Codec;
use super::held::Held;
use super::slab::Slab;
use crate::reading::attend_reading;
use kv_cache::{ContiguousStore, KvCache, KvShape, Place, Store};
use naive_decode::{Attention, Error, Isa, LayerSpec, Pass, Result, Span};
use ndarray::{Array2, Array3, ArrayView3, s};
use std::ops::Range;

/// How a cache keeps what it keeps. Codecs must be made for the widths of the cache's keys and values.
pub struct Scheme {
    /// Codes of keys.
    pub keys: Box<dyn Codec>,
    /// Codes of values.
    pub values: Box<dyn Codec>,
    /// What is not coded yet.
    pub recent: Recent,
}

/// Tokens that stay in full precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recent {
    /// So many latest keys are never seen as codes, besides those that do not fill a tile yet.
    pub keys: usize,
    /// The same for values.
    pub values: usize,
    /// Where any rows are kept in full precision: by how many tokens a sequence can always be rolled
    /// back. A code cannot be undone, so their rows have to be kept that much longer.
    pub rollback: usize,
}

impl Recent {
    /// Everything is coded when it is written, and a row sees its own key and value as their codes.
    pub const NONE: Recent = Recent { keys: 0, values: 0, rollback: 0 };
}

/// How many of a sequence's first tokens a row sees as codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coded {
    pub(super) keys: usize,
    pub(super) values: usize,
}

impl Scheme {
    // ANCHOR: coded
    /// What the `n`th row of a sequence sees as codes: whole tiles before the recent tokens. It depends
    /// on `n` alone, so it does not matter in which chunks the rows came.
    fn coded(&self, n: usize) -> Coded {
        let tiles =
            |codec: &dyn Codec, recent| n.saturating_sub(recent) / codec.tokens() * codec.tokens();
        Coded {
            keys: tiles(&*self.keys, self.recent.keys),
            values: tiles(&*self.values, self.recent.values),
        }
    }
    // ANCHOR_END: coded

    /// Rows before a new one that may have to be there in full precision; none if all are coded at once.
    fn rows_waiting(&self) -> usize {
        let Recent { keys, values, .. } = self.recent;
        (keys + self.keys.tokens()).max(values + self.values.tokens()) - 1
    }
}

/// Attention over codes.
///
/// Invariants, for every sequence of length n: tiles up to `coded(n)` are written in every layer, and
/// rows from there on, and from `oldest` on, wait in full precision.
pub struct QuantizedCache {
    scheme: Scheme,
    shape: KvShape,
    capacity: usize,
    isa: Isa,
    keys: Slab,
    values: Slab,
    /// The latest rows as they were made; row of slot `s` in slot `s % capacity` of this store. None if
    /// rows are coded as they are written.
    waiting: Option<ContiguousStore>,
    /// Rows of the pass at hand that will wait once it is done. A pass that fails must not touch those
    /// that wait already.
    pending: Vec<Pending>,
    lengths: Vec<usize>,
    /// First slot whose row still waits in full precision.
    oldest: Vec<usize>,
}

/// Rows of one span and layer, `[rows, kv_heads, D]`.
struct Pending {
    sequence: usize,
    layer: usize,
    start: usize,
    keys: Array3<f32>,
    values: Array3<f32>,
}

impl QuantizedCache {
    /// Room for `sequences` sequences of `capacity` tokens each.
    ///
    /// # Errors
    /// If values are not kept beside their keys (`value_dim` 0): they would be lost with more than
    /// attention can bear, and no method here is made for that.
    pub fn new(
        scheme: Scheme,
        shape: KvShape,
        capacity: usize,
        sequences: usize,
        isa: Isa,
    ) -> Result<Self> {
        if shape.value_dim == 0 {
            let expected = "at least 1: values that are part of their keys are not quantised here";
            return Err(Error::invalid("value width", 0, expected));
        }
        let slab = |codec: &dyn Codec| {
            Slab::new(codec, (shape.layers, shape.kv_heads), capacity, sequences)
        };
        let rows = match scheme.rows_waiting() {
            0 => 0,
            rows => (rows + scheme.recent.rollback).min(capacity),
        };
        Ok(QuantizedCache {
            keys: slab(&*scheme.keys),
            values: slab(&*scheme.values),
            waiting: (rows > 0).then(|| ContiguousStore::new(shape, rows, sequences)),
            pending: Vec::new(),
            lengths: vec![0; sequences],
            oldest: vec![0; sequences],
            scheme,
            shape,
            capacity,
            isa,
        })
    }

    pub(super) fn key_codes(&self) -> (&dyn Codec, &Slab) {
        (&*self.scheme.keys, &self.keys)
    }

    pub(super) fn value_codes(&self) -> (&dyn Codec, &Slab) {
        (&*self.scheme.values, &self.values)
    }

    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// Rows that wait in full precision.
    pub(super) fn waiting(&self) -> &ContiguousStore {
        self.waiting.as_ref().expect("rows that are not coded wait")
    }

    /// Where a slot's row waits.
    pub(super) fn line(&self, slot: usize) -> usize {
        slot % self.waiting().capacity()
    }

    fn check(&self, sequence: usize, length: usize) -> Result<()> {
        if sequence >= self.lengths.len() {
            let expected = format!("below {}, the number of sequences kept", self.lengths.len());
            return Err(Error::invalid("sequence", sequence, expected));
        }
        if length > self.capacity {
            let what = format!("the cache of sequence {sequence}");
            return Err(Error::Capacity { what, capacity: self.capacity, asked: length });
        }
        Ok(())
    }

    /// Codes every tile that is full, and old enough, once the span is done.
    fn encode(
        &mut self,
        layer: usize,
        span: &Span,
        keys: ArrayView3<f32>,
        values: ArrayView3<f32>,
    ) {
        let (from, to) = (self.scheme.coded(span.start), self.scheme.coded(span.end()));
        let (sequence, start) = (span.sequence, span.start);
        let row = |slot: usize, kv_head: usize, key: &mut [f32], value: &mut [f32]| match slot
            .checked_sub(start)
        {
            Some(fresh) => {
                let (k, v) =
                    (keys.slice(s![fresh, kv_head, ..]), values.slice(s![fresh, kv_head, ..]));
                key.iter_mut().zip(k).for_each(|(to, from)| *to = *from);
                value.iter_mut().zip(v).for_each(|(to, from)| *to = *from);
            }
            None => {
                let waiting = self.waiting.as_ref().expect("rows that are not coded wait");
                let place = Place { sequence, layer, kv_head, slot: slot % waiting.capacity() };
                waiting.key(place, key);
                waiting.value(place, value);
            }
        };
        let KvShape { kv_heads, key_dim, value_dim, .. } = self.shape;
        let (mut key, mut value) = (vec![0.0; key_dim], vec![0.0; value_dim]);
        for kv_head in 0..kv_heads {
            let head = (sequence, layer, kv_head);
            let tokens = self.scheme.keys.tokens();
            let mut rows = vec![0.0; tokens * key_dim];
            for tile in from.keys / tokens..to.keys / tokens {
                for (slot, to) in (tile * tokens..).zip(rows.chunks_exact_mut(key_dim)) {
                    row(slot, kv_head, to, &mut value);
                }
                self.scheme.keys.encode(&rows, self.keys.tile_mut(head, tile));
            }
            let tokens = self.scheme.values.tokens();
            let mut rows = vec![0.0; tokens * value_dim];
            for tile in from.values / tokens..to.values / tokens {
                for (slot, to) in (tile * tokens..).zip(rows.chunks_exact_mut(value_dim)) {
                    row(slot, kv_head, &mut key, to);
                }
                self.scheme.values.encode(&rows, self.values.tile_mut(head, tile));
            }
        }
    }

    /// Rows of a span in runs that see the same tokens as codes.
    fn runs(&self, span: &Span) -> Vec<(Range<usize>, Coded)> {
        if self.waiting.is_none() {
            return vec![(0..span.rows(), self.scheme.coded(span.end()))];
        }
        let mut runs: Vec<(Range<usize>, Coded)> = Vec::new();
        for row in 0..span.rows() {
            let coded = self.scheme.coded(span.start + row + 1);
            match runs.last_mut() {
                Some((rows, same)) if *same == coded => rows.end = row + 1,
                _ => runs.push((row..row + 1, coded)),
            }
        }
        runs
    }
}

/// Some rows of a span as a span.
fn part(span: &Span, rows: Range<usize>) -> Span {
    Span {
        sequence: span.sequence,
        start: span.start + rows.start,
        tokens: span.tokens[rows.clone()].to_vec(),
        positions: span.positions[rows.clone()].to_vec(),
        sees: span.sees[rows].to_vec(),
        want: span.want,
    }
}

/// Does something to rows of every head: `[rows, heads, D]` → `[rows, heads, W]`.
fn by_head(rows: ArrayView3<f32>, change: impl FnOnce(Array2<f32>) -> Array2<f32>) -> Array3<f32> {
    let (n, heads, dim) = rows.dim();
    let contiguous = rows.as_standard_layout().into_owned();
    let flat = contiguous.into_shape_with_order((n * heads, dim)).expect("contiguous");
    let changed = change(flat);
    let width = changed.ncols();
    changed.into_shape_with_order((n, heads, width)).expect("as many rows as before")
}

impl Attention for QuantizedCache {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        for (i, span) in pass.spans.iter().enumerate() {
            self.check(span.sequence, span.end())?;
            let held = self.lengths[span.sequence];
            if span.start != held {
                let what = format!("start of sequence {}", span.sequence);
                return Err(Error::invalid(what, span.start, format!("{held}, what it holds")));
            }
            if pass.spans[..i].iter().any(|earlier| earlier.sequence == span.sequence) {
                let what = format!("spans of sequence {} in one pass", span.sequence);
                return Err(Error::invalid(what, "two", "one"));
            }
            if self.waiting.is_some() && span.sees.iter().any(|sees| !sees.also.is_empty()) {
                let what = format!("visible slots of sequence {}", span.sequence);
                let expected = "a plain run: branches of a draft cannot be coded in one tile";
                return Err(Error::invalid(what, "a draft tree", expected));
            }
        }
        self.pending.clear();
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
        let mut keys = by_head(k, |rows| self.scheme.keys.turn(rows));
        let mut values = by_head(v, |rows| self.scheme.values.turn(rows));
        if let Some(waiting) = &self.waiting {
            // As they will be read in later passes.
            let capacity = waiting.capacity();
            for rows in [&mut keys, &mut values] {
                self.shape.element.round(rows.as_slice_mut().expect("contiguous"));
            }
            for (span, rows) in pass.spans_with_rows().filter(|_| layer.kv_layer == layer.index) {
                let last = rows.end.saturating_sub(capacity).max(rows.start)..rows.end;
                let start = span.end() - last.len();
                let tail = |rows: &Array3<f32>| rows.slice(s![last.clone(), .., ..]).to_owned();
                let (keys, values) = (tail(&keys), tail(&values));
                let (sequence, layer) = (span.sequence, layer.index);
                self.pending.push(Pending { sequence, layer, start, keys, values });
            }
        }
        let queries = by_head(q, |rows| self.scheme.keys.turn_queries(rows));
        let mut sums = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let keys = keys.slice(s![rows.clone(), .., ..]);
            let values = values.slice(s![rows.clone(), .., ..]);
            // A layer that shares an earlier one's keys and values finds them written.
            if layer.kv_layer == layer.index {
                self.encode(layer.index, span, keys, values);
            }
            for (run, coded) in self.runs(span) {
                let held = Held {
                    cache: self,
                    sequence: span.sequence,
                    layer: layer.kv_layer,
                    coded,
                    start: span.start,
                    keys,
                    values,
                };
                let place = rows.start + run.start..rows.start + run.end;
                let q = queries.slice(s![place.clone(), .., ..]);
                let out = sums.slice_mut(s![place, .., ..]);
                attend_reading(self.isa, layer, &part(span, run), q, &held, out, None);
            }
        }
        Ok(by_head(sums.view(), |rows| self.scheme.values.turn_back(rows)))
    }

    fn commit(&mut self, pass: &Pass) {
        if let Some(waiting) = &mut self.waiting {
            let capacity = waiting.capacity();
            for Pending { sequence, layer, start, keys, values } in self.pending.drain(..) {
                for (slot, (k, v)) in (start..).zip(keys.outer_iter().zip(values.outer_iter())) {
                    for (kv_head, (k, v)) in k.outer_iter().zip(v.outer_iter()).enumerate() {
                        let place = Place { sequence, layer, kv_head, slot: slot % capacity };
                        let (k, v) = (k.to_slice(), v.to_slice());
                        waiting.write(place, k.expect("contiguous"), v.expect("contiguous"));
                    }
                }
            }
            for span in &pass.spans {
                let oldest = &mut self.oldest[span.sequence];
                *oldest = (*oldest).max(span.end().saturating_sub(capacity));
            }
        }
        for span in &pass.spans {
            self.lengths[span.sequence] = span.end();
        }
    }
}

impl KvCache for QuantizedCache {
    fn len(&self, sequence: usize) -> usize {
        self.lengths[sequence]
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    // ANCHOR: truncate
    /// Where rows wait to be coded, a sequence can be emptied, or rolled back by [`Recent::rollback`]
    /// tokens. Further back, rows that ought to be in full precision again are gone.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.check(sequence, length)?;
        let held = self.lengths[sequence];
        if length > held {
            let what = format!("length to truncate sequence {sequence} to");
            return Err(Error::invalid(what, length, format!("at most {held}, what it holds")));
        }
        // The next rows will see, or code, everything from here on.
        let Coded { keys, values } = self.scheme.coded(length);
        let oldest = self.oldest[sequence];
        if keys.min(values) < oldest && length > 0 && length < held {
            let first = (length..held).find(|&longer| {
                let Coded { keys, values } = self.scheme.coded(longer);
                keys.min(values) >= oldest
            });
            let what = format!("length to truncate sequence {sequence} to");
            let first = first.unwrap_or(held);
            let expected = format!("0 or at least {first}: of earlier tokens only codes are left");
            return Err(Error::invalid(what, length, expected));
        }
        self.lengths[sequence] = length;
        if length == 0 {
            self.oldest[sequence] = 0;
        }
        Ok(())
    }
    // ANCHOR_END: truncate

    /// Bytes of codes and of what they share, rounded up; the window of rows in full precision is as
    /// large for one token as for a thousand, and is in [`KvCache::allocated_bytes`] only.
    fn bytes_per_token(&self) -> usize {
        let heads = self.shape.layers * self.shape.kv_heads;
        let bytes = |codec: &dyn Codec| (heads * codec.bytes()).div_ceil(codec.tokens());
        bytes(&*self.scheme.keys) + bytes(&*self.scheme.values)
    }

    fn allocated_bytes(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, ContiguousStore::allocated_bytes);
        self.keys.allocated_bytes() + self.values.allocated_bytes() + waiting
    }
}
