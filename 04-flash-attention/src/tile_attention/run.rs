//! Keys and values of consecutive places, and one split of attention over them.

use super::blocks::Block;
use super::element::TileElement;
use super::line::Line;
use super::source::{Gathered, TileSource};
use super::{columns, scores, values};
use naive_decode::kernels::{soft_cap, softmax_weights};
use naive_decode::numerics::LANES;
use naive_decode::{Isa, Partial, SPLIT};
use std::ops::Range;

/// Consecutive places of one key-value head that lie together, from the beginning of a tile on.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a, E> {
    /// First place; a multiple of sixteen.
    pub first: usize,
    /// `[tiles][D][16 places]`
    pub keys: &'a [[E; LANES]],
    /// `[places][width]`; none if a value is the beginning of its key.
    pub values: &'a [E],
    /// `[places]`: what each key's numbers are to be multiplied by; none unless they are codes.
    pub key_scales: &'a [f32],
    /// The same for values.
    pub value_scales: &'a [f32],
    /// `D`
    pub key_dim: usize,
    /// Numbers of a value, filled up to whole registers; 0 if a value is the beginning of its key.
    pub width: usize,
}

impl<E: TileElement> Run<'_, E> {
    /// One past the last place, whole tiles counted.
    pub fn end(&self) -> usize {
        self.first + self.keys.len() / self.key_dim * LANES
    }

    /// The part before `end`, a multiple of sixteen.
    pub(super) fn until(self, end: usize) -> Self {
        let places = end.clamp(self.first, self.end()) - self.first;
        let scales = if E::SCALED { places } else { 0 };
        Run {
            keys: &self.keys[..places / LANES * self.key_dim],
            values: &self.values[..places * self.width],
            key_scales: &self.key_scales[..scales],
            value_scales: &self.value_scales[..scales],
            ..self
        }
    }

    /// Copies the key and value in a slot of this run.
    pub fn copy_to(&self, slot: usize, copy: Gathered<'_, E>) {
        let place = slot - self.first;
        let tile = &self.keys[place / LANES * self.key_dim..][..self.key_dim];
        for (to, from) in copy.tile.iter_mut().zip(tile) {
            to[copy.lane] = from[place % LANES];
        }
        copy.value.copy_from_slice(&self.values[place * self.width..][..self.width]);
        if let Some((key, value)) = copy.scales {
            (*key, *value) = (self.key_scales[place], self.value_scales[place]);
        }
    }

    /// Those of `places` that are in this run, counted from its beginning.
    fn within(&self, places: &Range<usize>) -> Range<usize> {
        let start = places.start.clamp(self.first, self.end());
        start - self.first..places.end.clamp(start, self.end()) - self.first
    }
}

/// Queries of one task, packed, and what each sees.
pub(super) struct Queries<'a> {
    pub(super) isa: Isa,
    /// Factor on the scores, the change to base 2 in it.
    pub(super) scale: f32,
    /// Bound that scores are bent towards, in base 2 as they are.
    pub(super) score_cap: Option<f32>,
    pub(super) blocks: &'a [Block],
    /// `[blocks][D][R]`
    pub(super) packed: &'a [f32],
    /// Places that each query sees, `[queries]`.
    pub(super) sees: &'a [Range<usize>],
}

/// Room that a thread needs while it works, kept from one task to the next.
#[derive(Default)]
pub(super) struct Room {
    /// `[queries][tiles]`: scores, then weights.
    scores: Vec<[f32; LANES]>,
    /// `[queries][width]`
    sums: Vec<f32>,
    columns: columns::Room,
}

impl Queries<'_> {
    /// Attention over one split of a line; the results are not normalised. `partials` has one entry for
    /// each query, as wide as values are kept.
    pub(super) fn attend<S: TileSource>(
        &self,
        split: usize,
        line: &mut Line<S>,
        room: &mut Room,
        partials: &mut [Partial],
    ) {
        let start = self.sees.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = self.sees.iter().map(|seen| seen.end).max().unwrap_or(0);
        // Lanes are places modulo 16, so a split begins with a whole tile.
        let first = (split * SPLIT).max(start / LANES * LANES);
        let places = first..((split + 1) * SPLIT).min(end).max(first);
        let tiles = places.len().div_ceil(LANES);
        line.gather(&places);
        // Each run, its places, and where their scores stand in a row.
        let runs = line.runs(&places).map(|run| {
            let within = run.within(&places);
            let at = (run.first + within.start).saturating_sub(first);
            (run, within, at)
        });
        room.scores.resize(self.sees.len() * tiles, [0.0; LANES]);
        for (run, within, at) in runs.clone() {
            let keys = within.start / LANES * run.key_dim..within.end.div_ceil(LANES) * run.key_dim;
            let queries = (self.blocks, self.packed);
            let (keys, dim, at) = (&run.keys[keys], run.key_dim, (at / LANES, tiles));
            scores::score(self.isa, self.scale, queries, keys, dim, &mut room.scores, at);
        }
        let row = tiles * LANES;
        multiply(&mut room.scores, row, runs.clone().map(|(run, at, to)| (run.key_scales, at, to)));
        if let Some(cap) = self.score_cap {
            soft_cap(self.isa, room.scores.as_flattened_mut(), cap);
        }
        for (i, (seen, partial)) in self.sees.iter().zip(partials.iter_mut()).enumerate() {
            let mut mask = [0u16; SPLIT / LANES];
            for (mask, first) in mask[..tiles].iter_mut().zip((first..).step_by(LANES)) {
                *mask = low_bits(seen.end, first) & !low_bits(seen.start, first);
            }
            let scores = &mut room.scores[i * tiles..][..tiles];
            (partial.maximum, partial.sum) = softmax_weights(self.isa, scores, &mask[..tiles]);
        }
        let scales = runs.clone().map(|(run, at, to)| (run.value_scales, at, to));
        multiply(&mut room.scores, row, scales);
        let size = line.size();
        match size.value_dim {
            0 => {
                let width = partials[0].values.len().min(size.key_dim);
                self.add_columns(runs, width, row, room, partials);
            }
            _ => self.add_values(runs, row, room, partials),
        }
    }

    /// Weighted values of some runs; weights stand in rows of `row`.
    fn add_values<'a, E: TileElement>(
        &self,
        runs: impl Iterator<Item = (Run<'a, E>, Range<usize>, usize)>,
        row: usize,
        room: &mut Room,
        partials: &mut [Partial],
    ) {
        let Room { scores, sums, .. } = room;
        let width = partials[0].values.len();
        sums.clear();
        sums.resize(partials.len() * width, 0.0);
        for (run, within, at) in runs {
            let kept = &run.values[within.start * width..within.end * width];
            let weights = (scores.as_flattened(), row, at);
            values::add_values(self.isa, self.blocks, weights, kept, width, sums);
        }
        for (partial, sums) in partials.iter_mut().zip(sums.chunks_exact(width)) {
            partial.values.copy_from_slice(sums);
        }
    }

    /// The same where a value is the first `width` numbers of its key.
    fn add_columns<'a, E: TileElement>(
        &self,
        runs: impl Iterator<Item = (Run<'a, E>, Range<usize>, usize)>,
        width: usize,
        row: usize,
        room: &mut Room,
        partials: &mut [Partial],
    ) {
        let Room { scores, columns, .. } = room;
        columns.begin(partials.len(), width);
        for (run, within, at) in runs {
            for (i, place) in within.clone().step_by(LANES).enumerate() {
                let tile = &run.keys[place / LANES * run.key_dim..][..width];
                let weights = (scores.as_flattened(), row, at + i * LANES);
                columns.add(self.isa, weights, (within.end - place).min(LANES), tile);
            }
        }
        for (query, partial) in partials.iter_mut().enumerate() {
            partial.values.iter_mut().zip(columns.sum(query)).for_each(|(to, sum)| *to = sum);
        }
    }
}

/// Multiplies every row of scores, or weights, by the scales of its places, where there are any.
fn multiply<'a>(
    rows: &mut [[f32; LANES]],
    row: usize,
    scales: impl Iterator<Item = (&'a [f32], Range<usize>, usize)>,
) {
    for (scales, within, at) in scales.filter(|(scales, ..)| !scales.is_empty()) {
        let scales = &scales[within];
        for row in rows.as_flattened_mut().chunks_exact_mut(row) {
            row[at..].iter_mut().zip(scales).for_each(|(number, scale)| *number *= scale);
        }
    }
}

/// Bits of the lanes whose places, counted from `first`, lie below `end`.
fn low_bits(end: usize, first: usize) -> u16 {
    match end.saturating_sub(first) {
        lanes @ 0..LANES => (1 << lanes) - 1,
        _ => u16::MAX,
    }
}
