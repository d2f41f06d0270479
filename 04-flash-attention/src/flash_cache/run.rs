//! Keys and values of consecutive places, and one split of attention over them.

use super::blocks::Block;
use super::element::TileElement;
use super::{scores, values};
use naive_decode::kernels::softmax_weights;
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
    /// `[16 places][width]`: values cut out of keys.
    values: Vec<f32>,
    /// `[queries][width]`
    sums: Vec<f32>,
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
        let width = partials[0].values.len();
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
        for (i, (seen, partial)) in self.sees.iter().zip(partials.iter_mut()).enumerate() {
            let mut mask = [0u16; SPLIT / LANES];
            for (mask, first) in mask[..tiles].iter_mut().zip((first..).step_by(LANES)) {
                *mask = low_bits(seen.end, first) & !low_bits(seen.start, first);
            }
            let scores = &mut room.scores[i * tiles..][..tiles];
            (partial.maximum, partial.sum) = softmax_weights(self.isa, scores, &mask[..tiles]);
        }
        room.sums.clear();
        room.sums.resize(self.sees.len() * width, 0.0);
        for run in line {
            let within = run.within(&places);
            let at = (run.first + within.start).saturating_sub(first);
            self.add_values(run, within, (at, tiles * LANES), width, room);
        }
        for (partial, sums) in partials.iter_mut().zip(room.sums.chunks_exact(width)) {
            partial.values.copy_from_slice(sums);
        }
    }

    /// Adds weighted values of the run's places `within`; their weights stand from `at` on in rows of
    /// `row`.
    fn add_values<E: TileElement>(
        &self,
        run: &Run<E>,
        within: Range<usize>,
        (at, row): (usize, usize),
        width: usize,
        room: &mut Room,
    ) {
        let Room { scores, values: cut, sums } = room;
        let weights = scores.as_flattened();
        if run.width > 0 {
            let kept = &run.values[within.start * width..within.end * width];
            return values::add_values(
                self.isa,
                self.blocks,
                (weights, row, at),
                kept,
                width,
                sums,
            );
        }
        // Values are the beginnings of keys, whose lanes are places: turned round, a tile at a time,
        // for all queries together.
        cut.resize(LANES * width, 0.0);
        for (i, place) in within.clone().step_by(LANES).enumerate() {
            let tile = &run.keys[place / LANES * run.key_dim..][..run.key_dim];
            for (d, lanes) in tile[..width.min(run.key_dim)].iter().enumerate() {
                lanes.iter().enumerate().for_each(|(p, &v)| cut[p * width + d] = v.widen());
            }
            let cut = &cut[..(within.end - place).min(LANES) * width];
            let weights = (weights, row, at + i * LANES);
            values::add_values(self.isa, self.blocks, weights, cut, width, sums);
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
