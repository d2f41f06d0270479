//! The tiles of one split, in order, wherever each of them lies.
//!
//! In a slab they lie one after another; in a pool of blocks, where its table says. The kernels take a list of
//! tiles and need not know: they meet as many at once as registers allow, and ask memory for the next ones
//! while they work, which no processor could guess from a table.

use super::element::TileElement;
use super::run::Run;
use crate::kernels::{LINE, prefetch};
use naive_decode::SPLIT;
use naive_decode::numerics::LANES;
use std::ops::Range;

/// Most tiles of a split.
pub(super) const MOST: usize = SPLIT / LANES;

/// Queries that wait for memory rather than for the multiplications.
pub(super) const FEW: usize = 4;

/// Cache lines of each tile's values that are asked for long before they are needed.
const FIRST_LINES: usize = 2;

/// Tiles that cover some places, the first of which begins a tile.
pub struct Tiles<'a, E> {
    pub(super) count: usize,
    /// Places asked for of the last tile.
    pub(super) last: usize,
    /// Of each tile `[D][16 places]`.
    keys: [&'a [[E; LANES]]; MOST],
    /// `[16 places][width]`, of the last tile only the places asked for, unless several places lie together; none if
    /// values are parts of keys.
    values: [&'a [E]; MOST],
    /// Of each tile `[16 places]`; ones unless numbers are codes.
    key_scales: [&'a [f32; LANES]; MOST],
    value_scales: [&'a [f32; LANES]; MOST],
}

impl<'a, E: TileElement> Tiles<'a, E> {
    /// The tiles of `places` in `runs`, which cover them in order.
    pub(super) fn of(runs: impl Iterator<Item = Run<'a, E>>, places: &Range<usize>) -> Self {
        let mut tiles = Tiles {
            count: 0,
            last: 0,
            keys: [&[]; MOST],
            values: [&[]; MOST],
            key_scales: [&[1.0; LANES]; MOST],
            value_scales: [&[1.0; LANES]; MOST],
        };
        for run in runs {
            let scales = [run.key_scales, run.value_scales].map(|scales| scales.as_chunks().0);
            let end = places.end.min(run.end);
            for place in (places.start.max(run.first)..end).step_by(LANES) {
                let (i, at) = (tiles.count, place - run.first);
                tiles.last = (end - place).min(LANES);
                let until = at + tiles.last;
                tiles.keys[i] = &run.keys[at / LANES * run.key_dim..][..run.key_dim];
                // What has not been written yet, or is another text's, is a number too, and its weight is zero.
                let values = at..if E::TOGETHER > 1 { at + LANES } else { until };
                tiles.values[i] = &run.values[values.start * run.width..values.end * run.width];
                if E::SCALED {
                    let [of_keys, of_values] = scales.map(|scales| &scales[at / LANES]);
                    (tiles.key_scales[i], tiles.value_scales[i]) = (of_keys, of_values);
                    // They lie elsewhere, and are waited for once all keys have been met.
                    prefetch(of_keys.as_ptr().cast());
                    prefetch(of_values.as_ptr().cast());
                }
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

    /// Asks memory for the beginnings of all values, from where the processor goes on by itself: what it finds out that way
    /// takes none of the few requests that a core can have under way for its first cache. Where memory does not send several
    /// stretches faster than one, keys come later by as much and nothing is gained.
    pub(super) fn ask_for_values(&self) {
        for tile in self.values() {
            let bytes = bytemuck::cast_slice::<E, u8>(tile);
            bytes.chunks(LINE).take(FIRST_LINES).for_each(|line| prefetch(line.as_ptr()));
        }
    }

    /// Whether values are kept, and are not the beginnings of keys.
    pub(super) fn have_values(&self) -> bool {
        !self.values[0].is_empty()
    }

    pub(super) fn key_scales(&self) -> &[&'a [f32; LANES]] {
        &self.key_scales[..self.count]
    }

    pub(super) fn value_scales(&self) -> &[&'a [f32; LANES]] {
        &self.value_scales[..self.count]
    }
}
