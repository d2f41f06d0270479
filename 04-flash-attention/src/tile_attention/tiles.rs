//! The tiles of one split, in order, wherever each of them lies.
//!
//! In a slab they lie one after another; in a pool of blocks, where its table says. The kernels take a list of
//! tiles and need not know: they meet as many at once as registers allow, and ask memory for the next ones
//! while they work, which no processor could guess from a table.

use super::element::TileElement;
use super::run::Run;
use naive_decode::SPLIT;
use naive_decode::numerics::LANES;
use std::ops::Range;

/// Most tiles of a split.
const MOST: usize = SPLIT / LANES;

/// Tiles that cover some places, the first of which begins a tile.
pub struct Tiles<'a, E> {
    pub(super) count: usize,
    /// Places asked for of the last tile.
    pub(super) last: usize,
    /// Of each tile `[D][16 places]`.
    keys: [&'a [[E; LANES]]; MOST],
    /// `[16 places][width]`, of the last tile only the places asked for, unless numbers are pairs; none if values are parts
    /// of keys.
    values: [&'a [E]; MOST],
    /// `[16 places]`; none unless numbers are codes.
    key_scales: [&'a [f32]; MOST],
    value_scales: [&'a [f32]; MOST],
}

impl<'a, E: TileElement> Tiles<'a, E> {
    /// The tiles of `places` in `runs`, which cover them in order.
    pub(super) fn of(runs: impl Iterator<Item = Run<'a, E>>, places: &Range<usize>) -> Self {
        let mut tiles = Tiles {
            count: 0,
            last: 0,
            keys: [&[]; MOST],
            values: [&[]; MOST],
            key_scales: [&[]; MOST],
            value_scales: [&[]; MOST],
        };
        for run in runs {
            let scale =
                |scales: &'a [f32], at: Range<usize>| if E::SCALED { &scales[at] } else { &[] };
            let end = places.end.min(run.end());
            for place in (places.start.max(run.first)..end).step_by(LANES) {
                let (i, at) = (tiles.count, place - run.first);
                tiles.last = (end - place).min(LANES);
                let until = at + tiles.last;
                tiles.keys[i] = &run.keys[at / LANES * run.key_dim..][..run.key_dim];
                // What has not been written yet, or is another text's, is a number too, and its weight is zero.
                let values = at..if E::TOGETHER > 1 { at + LANES } else { until };
                tiles.values[i] = &run.values[values.start * run.width..values.end * run.width];
                tiles.key_scales[i] = scale(run.key_scales, at..until);
                tiles.value_scales[i] = scale(run.value_scales, at..until);
                tiles.count += 1;
            }
        }
        tiles
    }

    pub(super) fn keys(&self) -> &[&'a [[E; LANES]]] {
        &self.keys[..self.count]
    }

    pub(super) fn values(&self) -> &[&'a [E]] {
        &self.values[..self.count]
    }

    /// Whether values are kept, and are not the beginnings of keys.
    pub(super) fn have_values(&self) -> bool {
        !self.values[0].is_empty()
    }

    pub(super) fn key_scales(&self) -> &[&'a [f32]] {
        &self.key_scales[..self.count]
    }

    pub(super) fn value_scales(&self) -> &[&'a [f32]] {
        &self.value_scales[..self.count]
    }
}
