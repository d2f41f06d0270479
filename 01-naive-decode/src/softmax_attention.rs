//! Attention from the textbook, in the order of operations that every later rung must reproduce.
//!
//! For each query: all scores, the largest, the weights, the weighted sum of the values. Three
//! choices make the result independent of how the work is later cut up.
//!
//! * Softmax is taken in base 2 relative to an *integer* maximum (Stevens et al. 2021). Moving it
//!   multiplies by a power of two, which is exact.
//! * Weighted values are added in order of position; weights are added in [`LANES`] interleaved
//!   partial sums by position.
//! * Every [`SPLIT`] positions a new partial result begins, and partial results are joined in
//!   order. A long context can so be shared out among threads, here and on any later rung.

use crate::attention::LayerSpec;
use crate::kernels::{Isa, multiply_rows, softmax_weights};
use crate::numerics::{LANES, power_of_two};
use crate::pass::{Span, Visible};
use ndarray::{Array3, ArrayView1, ArrayView3, ArrayViewMut3, s};
use rayon::prelude::*;
use std::ops::Range;

/// Positions in one partial result.
pub const SPLIT: usize = 512;

/// Rows of a span that one task takes together, so that each tile of keys is fetched once for all.
const ROWS_PER_TASK: usize = 16;

/// Below this many multiply-adds, waking another thread costs more than it saves.
const SERIAL_WORK: usize = 1 << 16;

/// Somewhere that keys and values of one sequence and one layer can be read from.
///
/// Slots are read in whole tiles: besides those that a row sees, up to fifteen before the first and
/// any up to the last that a neighbouring row sees. They are given weight zero.
pub trait KeyValues: Sync {
    /// Number of key-value heads.
    fn kv_heads(&self) -> usize;
    /// Copies the key in `slot`; `copy` has the key's width.
    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]);
    /// Copies the value in `slot`; `copy` has the value's width.
    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]);
}

/// Attention of one span's rows: `q [rows, heads, D]` → `out [rows, heads, D_v]`.
///
/// Query heads come in groups of `heads / kv_heads` neighbours, each group sharing one key-value
/// head (Ainslie et al. 2023); its keys and values are fetched once for the group.
///
/// # Panics
/// If the number of query heads is not a multiple of the number of key-value heads.
pub fn attend_span(
    isa: Isa,
    layer: LayerSpec,
    span: &Span,
    q: ArrayView3<f32>,
    source: &impl KeyValues,
    mut out: ArrayViewMut3<f32>,
) {
    let heads = q.dim().1;
    assert!(heads.is_multiple_of(source.kv_heads()), "whole groups of query heads");
    let group = heads / source.kv_heads();
    // ANCHOR: group
    let tasks: Vec<(usize, Range<usize>)> = (0..source.kv_heads())
        .flat_map(|kv_head| together(&span.sees).map(move |rows| (kv_head, rows)))
        .collect();
    let run = |(kv_head, rows): &(usize, Range<usize>)| {
        let heads = kv_head * group..(kv_head + 1) * group;
        let queries = q.slice(s![rows.clone(), heads, ..]);
        // ANCHOR_END: group
        let sees = &span.sees[rows.clone()];
        let places: Vec<_> = sees.iter().map(|sees| sees.places(layer.window)).collect();
        let value_dim = out.dim().2;
        match sees {
            [sees] if !sees.also.is_empty() => {
                let line = Line { source, sees };
                attend_group(isa, layer, queries, &places, *kv_head, &line, value_dim)
            }
            _ => attend_group(isa, layer, queries, &places, *kv_head, source, value_dim),
        }
    };
    let serial = q.len() * span.end() < SERIAL_WORK;
    let results: Vec<Array3<f32>> =
        if serial { tasks.iter().map(run).collect() } else { tasks.par_iter().map(run).collect() };
    for ((kv_head, rows), result) in tasks.into_iter().zip(results) {
        out.slice_mut(s![rows, kv_head * group..(kv_head + 1) * group, ..]).assign(&result);
    }
}

/// Rows that one task takes: neighbours share each tile of keys, a row of a draft tree is alone.
fn together(sees: &[Visible]) -> impl Iterator<Item = Range<usize>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let rest = &sees[first..];
        let plain = rest.iter().take(ROWS_PER_TASK).take_while(|sees| sees.also.is_empty()).count();
        let rows = first..first + plain.max(1);
        first = rows.end.min(sees.len());
        (!rest.is_empty()).then_some(rows)
    })
}

/// The slots that one row of a draft tree sees, in line, as if its branch stood alone.
///
/// Which partial sum a weight joins, and which split a position falls into, goes by the place in
/// this line and not by the slot: other branches may lie between, and must not change a bit.
struct Line<'a, S> {
    source: &'a S,
    sees: &'a Visible,
}

impl<S: KeyValues> KeyValues for Line<'_, S> {
    fn kv_heads(&self) -> usize {
        self.source.kv_heads()
    }

    fn key(&self, kv_head: usize, place: usize, copy: &mut [f32]) {
        self.source.key(kv_head, self.sees.slot(place), copy);
    }

    fn value(&self, kv_head: usize, place: usize, copy: &mut [f32]) {
        self.source.value(kv_head, self.sees.slot(place), copy);
    }
}

/// One key-value head against the queries `[rows, group, D]` that share it.
fn attend_group(
    isa: Isa,
    layer: LayerSpec,
    queries: ArrayView3<f32>,
    visible: &[Range<usize>],
    kv_head: usize,
    source: &impl KeyValues,
    value_dim: usize,
) -> Array3<f32> {
    let (rows, group, key_dim) = queries.dim();
    let end = visible.iter().map(|seen| seen.end).max().unwrap_or(0);
    let start = visible.iter().map(|seen| seen.start).min().unwrap_or(0);
    if start == end {
        return Array3::zeros((rows, group, value_dim)); // nobody sees anything
    }
    let mut joined: Vec<Partial> = (0..rows * group).map(|_| Partial::empty(value_dim)).collect();
    for split in start / SPLIT..end.div_ceil(SPLIT) {
        // A window may begin late in a split. Whole tiles before it are not fetched: a ring no longer
        // has them. Lanes stay where they were.
        let first = (split * SPLIT).max(start / LANES * LANES);
        let slots = first..((split + 1) * SPLIT).min(end);
        let tiles = Tiles::fetch(source, kv_head, slots.clone(), key_dim, value_dim);
        let mut join = |first: usize, partials: &[Partial]| {
            for (whole, part) in joined[first..].iter_mut().zip(partials) {
                whole.join(part);
            }
        };
        let query =
            |i: usize| (queries.slice_move(s![i / group, i % group, ..]), &visible[i / group]);
        let all = rows * group;
        let eights = all / 8 * 8;
        let fours = all / 4 * 4;
        for first in (0..eights).step_by(8) {
            join(first, &tiles.attend::<8>(isa, layer, std::array::from_fn(|i| query(first + i))));
        }
        for first in (eights..fours).step_by(4) {
            join(first, &tiles.attend::<4>(isa, layer, std::array::from_fn(|i| query(first + i))));
        }
        for first in fours..all {
            join(first, &tiles.attend::<1>(isa, layer, [query(first)]));
        }
    }
    let values = joined.iter().flat_map(Partial::finish).collect();
    Array3::from_shape_vec((rows, group, value_dim), values).expect("one value row per query")
}

/// An attention result that is not divided by its sum of weights yet.
pub struct Partial {
    /// Weights are relative to `2^maximum`.
    pub maximum: i32,
    /// Sum of the weights.
    pub sum: f32,
    /// Weighted sum of the values, `[D_v]`.
    pub values: Vec<f32>,
}

impl Partial {
    /// What the weights of a query that has seen nothing are relative to. No score is lower: whatever
    /// has been seen counts.
    pub const LOWEST: i32 = i32::MIN;

    /// What a query that has seen nothing yet knows.
    pub fn empty(value_dim: usize) -> Self {
        Partial { maximum: Partial::LOWEST, sum: 0.0, values: vec![0.0; value_dim] }
    }

    // ANCHOR: join
    /// Brings both to the larger maximum, which is exact, and adds.
    pub fn join(&mut self, other: &Partial) {
        if other.sum == 0.0 {
            return; // saw nothing in its split
        }
        let maximum = self.maximum.max(other.maximum);
        let mine = power_of_two(self.maximum.saturating_sub(maximum));
        let theirs = power_of_two(other.maximum.saturating_sub(maximum));
        self.maximum = maximum;
        self.sum = self.sum * mine + other.sum * theirs;
        for (a, b) in self.values.iter_mut().zip(&other.values) {
            *a = *a * mine + b * theirs;
        }
    }
    // ANCHOR_END: join

    /// Divides by the sum of weights. A query that saw nothing is answered with zeros.
    pub fn finish(&self) -> impl Iterator<Item = f32> {
        let sum = if self.sum == 0.0 { 1.0 } else { self.sum };
        self.values.iter().map(move |v| v / sum)
    }
}

/// The keys and values of one split, laid out for the inner loop.
struct Tiles {
    slots: Range<usize>,
    key_dim: usize,
    value_dim: usize,
    /// `[slots / 16][D][16 slots]`: a tile of keys is a panel whose outputs are scores.
    keys: Vec<[f32; LANES]>,
    /// `[D_v / 16][slots][16 dims]`: a panel whose inputs are weights.
    values: Vec<[f32; LANES]>,
}

impl Tiles {
    fn fetch(
        source: &impl KeyValues,
        kv_head: usize,
        slots: Range<usize>,
        key_dim: usize,
        value_dim: usize,
    ) -> Self {
        let n = slots.len();
        let mut keys = vec![[0.0; LANES]; n.div_ceil(LANES) * key_dim];
        let mut values = vec![[0.0; LANES]; value_dim.div_ceil(LANES) * n];
        let mut key = vec![0.0; key_dim];
        let mut value = vec![0.0; value_dim];
        for (i, slot) in slots.clone().enumerate() {
            source.key(kv_head, slot, &mut key);
            let tile = &mut keys[i / LANES * key_dim..][..key_dim];
            tile.iter_mut().zip(&key).for_each(|(lanes, &v)| lanes[i % LANES] = v);
            source.value(kv_head, slot, &mut value);
            for (panel, part) in value.chunks(LANES).enumerate() {
                values[panel * n + i][..part.len()].copy_from_slice(part);
            }
        }
        Tiles { slots, key_dim, value_dim, keys, values }
    }

    /// One bit for each of the split's slots, sixteen to a tile: what the query may look at.
    fn mask(&self, visible: &Range<usize>) -> Vec<u16> {
        (self.slots.clone().step_by(LANES))
            .map(|first| low_bits(visible.end, first) & !low_bits(visible.start, first))
            .collect()
    }

    // ANCHOR: attend
    /// `R` queries against this split, each seeing slots of its own.
    fn attend<const R: usize>(
        &self,
        isa: Isa,
        layer: LayerSpec,
        queries: [(ArrayView1<f32>, &Range<usize>); R],
    ) -> [Partial; R] {
        let mut q = vec![[0.0; R]; self.key_dim];
        for (r, (query, _)) in queries.iter().enumerate() {
            q.iter_mut().zip(query).for_each(|(q, &v)| q[r] = v);
        }
        // scores: `[R][tiles][LANES]`
        let tiles = self.slots.len().div_ceil(LANES);
        let mut scores = vec![[0.0; LANES]; R * tiles];
        for (t, panel) in self.keys.chunks_exact(self.key_dim).enumerate() {
            let mut sums = [[0.0; LANES]; R];
            multiply_rows(isa, &q, panel, &mut sums);
            for (r, sums) in sums.iter().enumerate() {
                scores[r * tiles + t] = *sums;
            }
        }
        layer.score(isa, scores.as_flattened_mut());
        // weights: `[slots][R]`
        let mut weights = vec![[0.0; R]; self.slots.len()];
        let mut partials = std::array::from_fn(|_| Partial::empty(self.value_dim));
        for (r, (_, visible)) in queries.into_iter().enumerate() {
            let row = &mut scores[r * tiles..][..tiles];
            (partials[r].maximum, partials[r].sum) = softmax_weights(isa, row, &self.mask(visible));
            let row = row.as_flattened();
            weights.iter_mut().zip(row).for_each(|(w, &v)| w[r] = v);
        }
        for (p, panel) in self.values.chunks_exact(self.slots.len()).enumerate() {
            let mut sums = [[0.0; LANES]; R];
            multiply_rows(isa, &weights, panel, &mut sums);
            let dims = p * LANES..((p + 1) * LANES).min(self.value_dim);
            for (partial, sums) in partials.iter_mut().zip(&sums) {
                partial.values[dims.clone()].copy_from_slice(&sums[..dims.len()]);
            }
        }
        partials
    }
    // ANCHOR_END: attend
}

/// Bits of the lanes whose slots, counted from `first`, lie below `end`.
#[inline]
pub fn low_bits(end: usize, first: usize) -> u16 {
    match end.saturating_sub(first) {
        lanes @ 0..LANES => (1 << lanes) - 1,
        _ => u16::MAX,
    }
}
