//! A cache of codes behind the seams that every cache has.

use super::codec::Codec;
use super::held::Held;
use super::scheme::{Coded, Scheme};
use super::slab::Slab;
use super::waiting::{Rows, Waiting};
use crate::reading::attend_reading;
use kv_cache::{KvCache, KvShape, Lengths};
use naive_decode::{Attention, Error, Isa, LayerSpec, Pass, Result, Span};
use ndarray::{Array2, Array3, ArrayView3, s};
use std::ops::Range;

/// Attention over codes.
///
/// Invariants, for every sequence of length n and in every layer: tiles up to [`Scheme`]'s `coded(n)` are
/// written, and rows from there on wait in full precision.
pub struct QuantizedCache {
    scheme: Scheme,
    shape: KvShape,
    isa: Isa,
    keys: Slab,
    values: Slab,
    /// None if rows are coded as they are written.
    waiting: Option<Waiting>,
    lengths: Lengths,
}

impl QuantizedCache {
    /// Room for `sequences` sequences of `capacity` tokens each.
    ///
    /// # Errors
    /// If values are not kept beside their keys (`value_dim` 0): a latent that is key and value at once
    /// needs a code that is right for both, and no method here is made for that. Or if the system does not
    /// give that much.
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
        let rows = scheme.rows_waiting().min(capacity);
        Ok(QuantizedCache {
            keys: slab(&*scheme.keys)?,
            values: slab(&*scheme.values)?,
            waiting: (rows > 0).then(|| Waiting::new(shape, rows, sequences)).transpose()?,
            lengths: Lengths::new(sequences, capacity),
            scheme,
            shape,
            isa,
        })
    }

    /// Whether everything is as it should be between passes: lengths that fit, and a row in full precision
    /// for every token whose codes are not seen yet.
    ///
    /// # Errors
    /// Names the sequence, and what is wrong.
    pub fn check_integrity(&self) -> Result<()> {
        self.lengths.check_integrity()?;
        let Some(waiting) = &self.waiting else { return Ok(()) };
        (0..waiting.sequences()).try_for_each(|sequence| {
            let length = self.lengths.of(sequence);
            waiting.check_integrity(sequence, self.scheme.coded(length).first_uncoded()..length)
        })
    }

    /// Puts by the rows that will wait once the pass is done, rounded as they will be read then.
    fn hold(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        keys: &mut Array3<f32>,
        values: &mut Array3<f32>,
    ) {
        let Some(waiting) = &mut self.waiting else { return };
        for rows in [&mut *keys, &mut *values] {
            self.shape.element.round(rows.as_slice_mut().expect("contiguous"));
        }
        if layer.kv_layer == layer.index {
            for (span, rows) in pass.spans_with_rows() {
                waiting.hold(layer.index, span, rows, keys, values);
            }
        }
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
        let waiting = self.waiting.as_ref();
        let rows = Rows { waiting, sequence, layer, start, keys, values };
        let KvShape { kv_heads, key_dim, value_dim, .. } = self.shape;
        let Scheme { keys: key_codec, values: value_codec, .. } = &self.scheme;
        for kv_head in 0..kv_heads {
            let head = (sequence, layer, kv_head);
            let tokens = key_codec.tokens();
            let mut numbers = vec![0.0; tokens * key_dim];
            for tile in from.keys / tokens..to.keys / tokens {
                for (slot, row) in (tile * tokens..).zip(numbers.chunks_exact_mut(key_dim)) {
                    rows.key(kv_head, slot, row);
                }
                key_codec.encode(&numbers, self.keys.tile_mut(head, tile));
            }
            let tokens = value_codec.tokens();
            let mut numbers = vec![0.0; tokens * value_dim];
            for tile in from.values / tokens..to.values / tokens {
                for (slot, row) in (tile * tokens..).zip(numbers.chunks_exact_mut(value_dim)) {
                    rows.value(kv_head, slot, row);
                }
                value_codec.encode(&numbers, self.values.tile_mut(head, tile));
            }
        }
    }

    /// What rows read that see so many tokens as codes.
    fn read<'a>(&'a self, coded: Coded, rows: Rows<'a>) -> Held<'a> {
        let keys = (&*self.scheme.keys, &self.keys);
        let values = (&*self.scheme.values, &self.values);
        Held { isa: self.isa, keys, values, coded, rows }
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
        self.lengths.check_pass(pass)?;
        for span in &pass.spans {
            if self.waiting.is_some() && span.sees.iter().any(|sees| !sees.also.is_empty()) {
                let what = format!("visible slots of sequence {}", span.sequence);
                let expected = "a plain run: branches of a draft cannot be coded in one tile";
                return Err(Error::invalid(what, "a draft tree", expected));
            }
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.begin();
        }
        Ok(())
    }

    // ANCHOR: attend
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
        self.hold(layer, pass, &mut keys, &mut values);
        let queries = by_head(q, |rows| self.scheme.keys.turn_queries(rows));
        let mut sums = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            let keys = keys.slice(s![rows.clone(), .., ..]);
            let values = values.slice(s![rows.clone(), .., ..]);
            // A layer that shares an earlier one's keys and values finds them written.
            if layer.kv_layer == layer.index {
                self.encode(layer.index, span, keys, values);
            }
            let (sequence, start) = (span.sequence, span.start);
            let waiting = self.waiting.as_ref();
            let known = Rows { waiting, sequence, layer: layer.kv_layer, start, keys, values };
            for (run, coded) in self.runs(span) {
                let held = self.read(coded, known);
                let place = rows.start + run.start..rows.start + run.end;
                let q = queries.slice(s![place.clone(), .., ..]);
                let out = sums.slice_mut(s![place, .., ..]);
                attend_reading(self.isa, layer, &part(span, run), q, &held, out, None);
            }
        }
        Ok(by_head(sums.view(), |rows| self.scheme.values.turn_back(rows)))
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        if let Some(waiting) = &mut self.waiting {
            waiting.commit(pass);
        }
        self.lengths.commit(pass);
    }
}

impl KvCache for QuantizedCache {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    // ANCHOR: truncate
    /// Where rows wait to be coded, a sequence can be emptied, or rolled back by [`rollback`](super::Recent::rollback)
    /// tokens. Further back, rows that ought to be in full precision again are gone.
    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        let held = self.lengths.check_truncate(sequence, length)?;
        if let Some(waiting) = &mut self.waiting {
            // The next rows will see, or code, everything from here on.
            let wanted = |length| self.scheme.coded(length).first_uncoded();
            let oldest = waiting.oldest(sequence);
            if length == 0 {
                waiting.reset(sequence);
            } else if length < held && wanted(length) < oldest {
                let first = (length..held).find(|&length| wanted(length) >= oldest);
                let what = format!("length to truncate sequence {sequence} to");
                let first = first.unwrap_or(held);
                let expected =
                    format!("0 or at least {first}: of earlier tokens only codes are left");
                return Err(Error::invalid(what, length, expected));
            }
        }
        self.lengths.truncate(sequence, length);
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
        let waiting = self.waiting.as_ref().map_or(0, Waiting::allocated_bytes);
        self.keys.allocated_bytes() + self.values.allocated_bytes() + waiting
    }
}
