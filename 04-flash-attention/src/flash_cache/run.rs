//! Keys and values of consecutive places, and one split of attention over them.

use super::blocks::Block;
use super::element::TileElement;
use super::{columns, scores, values};
use naive_decode::kernels::{soft_cap, softmax_weights};
use naive_decode::numerics::LANES;
use naive_decode::{Isa, Partial, SPLIT};
use std::ops::Range;

/// Consecutive places of one key-value head, from the beginning of a tile on.
#[derive(Clone, Copy)]
pub(super) struct Run<'a, E> {
    /// First place.
    pub(super) first: usize,
    /// `[tiles][D][16 places]`
    pub(super) keys: &'a [[E; LANES]],
    /// `[places][width]`; none if a value is the beginning of its key.
    pub(super) values: &'a [E],
    pub(super) key_dim: usize,
    pub(super) width: usize,
}

impl<E: TileElement> Run<'_, E> {
    /// Those of `places` that are in this run, counted from its beginning.
    fn within(&self, places: &Range<usize>) -> Range<usize> {
        let end = self.first + self.keys.len() / self.key_dim * LANES;
        let start = places.start.clamp(self.first, end);
        start - self.first..places.end.clamp(start, end) - self.first
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
    /// Attention over one split of a line of runs; the results are not normalised. `partials` has one
    /// entry for each query, as wide as values are kept.
    pub(super) fn attend<E: TileElement>(
        &self,
        split: usize,
        line: &[Run<E>],
        room: &mut Room,
        partials: &mut [Partial],
    ) {
        let start = self.sees.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = self.sees.iter().map(|seen| seen.end).max().unwrap_or(0);
        // Lanes are places modulo 16, so a split begins with a whole tile.
        let first = (split * SPLIT).max(start / LANES * LANES);
        let places = first..((split + 1) * SPLIT).min(end).max(first);
        let tiles = places.len().div_ceil(LANES);
        room.scores.resize(self.sees.len() * tiles, [0.0; LANES]);
        for run in line {
            let within = run.within(&places);
            let keys = within.start / LANES * run.key_dim..within.end.div_ceil(LANES) * run.key_dim;
            let at = (run.first + within.start).saturating_sub(first) / LANES;
            let queries = (self.blocks, self.packed);
            let (keys, dim) = (&run.keys[keys], run.key_dim);
            scores::score(self.isa, self.scale, queries, keys, dim, &mut room.scores, (at, tiles));
        }
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
        // Each run, its places, and where their weights stand in a row.
        let runs = line.iter().map(|run| {
            let within = run.within(&places);
            let at = (run.first + within.start).saturating_sub(first);
            (run, within, at)
        });
        let row = tiles * LANES;
        match line[0] {
            Run { width: 0, key_dim, .. } => {
                let width = partials[0].values.len().min(key_dim);
                self.add_columns(runs, width, row, room, partials);
            }
            _ => self.add_values(runs, row, room, partials),
        }
    }

    /// Weighted values of some runs; weights stand in rows of `row`.
    fn add_values<'a, E: TileElement>(
        &self,
        runs: impl Iterator<Item = (&'a Run<'a, E>, Range<usize>, usize)>,
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
        runs: impl Iterator<Item = (&'a Run<'a, E>, Range<usize>, usize)>,
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

/// Bits of the lanes whose places, counted from `first`, lie below `end`.
fn low_bits(end: usize, first: usize) -> u16 {
    match end.saturating_sub(first) {
        lanes @ 0..LANES => (1 << lanes) - 1,
        _ => u16::MAX,
    }
}
