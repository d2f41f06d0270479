//! Keys and values of consecutive places, and one split of attention over them.

use super::blocks::Block;
use super::element::TileElement;
use super::line::Line;
use super::source::{Gathered, TileSource};
use super::tiles::{FEW, Tiles};
use super::ways::{Packed, Way, WayRoom};
use crate::kernels::{Simd, memory_sends_several};
use naive_decode::kernels::{Kernel, Vector, soft_cap, softmax_weights};
use naive_decode::numerics::LANES;
use naive_decode::{Isa, Partial, SPLIT, low_bits};
use std::ops::Range;

/// Consecutive places of one key-value head that lie together, from the beginning of a tile on.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a, E> {
    /// First place; a multiple of sixteen.
    pub first: usize,
    /// One past the last, whole tiles counted. Said and not divided out of the keys: it is asked for with every block.
    pub end: usize,
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
    /// The part before `end`, a multiple of sixteen.
    pub(super) fn until(self, end: usize) -> Self {
        if end >= self.end {
            return self;
        }
        let end = end.max(self.first);
        let places = end - self.first;
        let scales = if E::SCALED { places } else { 0 };
        Run {
            end,
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
        copy.fill(
            |d| tile.as_flattened()[E::key_at(LANES, place % LANES, d)],
            |column| self.values[E::value_at(LANES, self.width, place, column)],
            || (self.key_scales[place], self.value_scales[place]),
        );
    }
}

/// Queries of one task, packed, and what each sees.
pub struct Queries<'a> {
    pub(super) isa: Isa,
    pub(super) simd: Simd,
    /// Factor on the scores, the change to base 2 in it.
    pub(super) scale: f32,
    /// Bound that scores are bent towards, in base 2 as they are.
    pub(super) score_cap: Option<f32>,
    pub(super) blocks: &'a [Block],
    pub(super) packed: &'a Packed,
    /// Places that each query sees, `[queries]`.
    pub(super) sees: &'a [Range<usize>],
}

/// Room that a thread needs while it works, kept from one task to the next.
#[derive(Default)]
pub(super) struct Room {
    /// `[queries][tiles]`: scores, then weights.
    scores: Vec<[f32; LANES]>,
    way: WayRoom,
}

/// What queries found in one split. It is not normalised.
#[derive(Default)]
pub(super) struct Found {
    /// Of each query, what its weights are relative to ([`Partial::maximum`]), and their sum.
    pub(super) weights: Vec<(i32, f32)>,
    /// Weighted sums of values, `[queries][width]`.
    pub(super) values: Vec<f32>,
}

impl Found {
    /// Hands on what each query found.
    pub(super) fn copy_to(&self, partials: &mut [Partial]) {
        let width = self.values.len() / self.weights.len();
        let values = self.values.chunks_exact(width);
        for ((partial, &weights), values) in partials.iter_mut().zip(&self.weights).zip(values) {
            (partial.maximum, partial.sum) = weights;
            partial.values.copy_from_slice(values);
        }
    }
}

impl Queries<'_> {
    /// Attention over one split of a line, of values that are kept `width` numbers wide.
    pub(super) fn attend<S: TileSource>(
        &self,
        split: usize,
        line: &mut Line<S>,
        room: &mut Room,
        width: usize,
        found: &mut Found,
    ) {
        let start = self.sees.iter().map(|seen| seen.start).min().unwrap_or(0);
        let end = self.sees.iter().map(|seen| seen.end).max().unwrap_or(0);
        // Lanes are places modulo 16, so a split begins with a whole tile.
        let first = (split * SPLIT).max(start / LANES * LANES);
        let places = first..((split + 1) * SPLIT).min(end).max(first);
        line.gather(&places);
        let tiles = Tiles::of(line.runs(&places), &places);
        if self.sees.len() <= FEW && memory_sends_several() {
            tiles.ask_for_values();
        }
        room.scores.resize(self.sees.len() * tiles.count, [0.0; LANES]);
        if tiles.count > 0 {
            <S::Element as TileElement>::Way::score(self, &tiles, &mut room.scores);
        }
        if S::Element::SCALED {
            self.isa.run(ByScales { rows: &mut room.scores, scales: tiles.key_scales() });
        }
        if let Some(cap) = self.score_cap {
            soft_cap(self.isa, room.scores.as_flattened_mut(), cap);
        }
        found.weights.clear();
        for (i, seen) in self.sees.iter().enumerate() {
            let mut mask = [0u16; SPLIT / LANES];
            let mask = &mut mask[..tiles.count];
            seen_of_tiles(seen, first, mask);
            let scores = &mut room.scores[i * tiles.count..][..tiles.count];
            found.weights.push(softmax_weights(self.isa, scores, mask));
            <S::Element as TileElement>::Way::take_weights(self.simd, i, scores, &mut room.way);
        }
        if S::Element::SCALED {
            self.isa.run(ByScales { rows: &mut room.scores, scales: tiles.value_scales() });
        }
        let Room { scores, way } = room;
        found.values.clear();
        found.values.resize(self.sees.len() * width, 0.0);
        if tiles.count > 0 {
            let sums = (&mut found.values[..], width);
            <S::Element as TileElement>::Way::add_values(self, &tiles, scores, sums, way);
        }
    }
}

/// Multiplies every row of scores, or weights, by the scales of its places, tile by tile.
struct ByScales<'a> {
    /// `[queries][tiles]`
    rows: &'a mut [[f32; LANES]],
    /// `[tiles]`
    scales: &'a [&'a [f32; LANES]],
}

impl Kernel for ByScales<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // Where nothing is seen there are no tiles, and a slice cannot be cut into rows of nothing.
        for row in self.rows.chunks_exact_mut(self.scales.len().max(1)) {
            for (tile, scales) in row.iter_mut().zip(self.scales) {
                for first in (0..LANES).step_by(V::WIDTH) {
                    // SAFETY: the caller vouches for the instruction set; both have LANES numbers.
                    unsafe {
                        let (number, scale) = (V::load(&tile[first..]), V::load(&scales[first..]));
                        // Added to zero, a product is what it is by itself.
                        V::splat(0.0).add_product(number, scale).store(&mut tile[first..]);
                    }
                }
            }
        }
    }
}

/// Which lanes of each tile are seen, of tiles that begin with place `first`. Nearly all of them are seen whole: only those
/// at the two ends are looked at.
fn seen_of_tiles(seen: &Range<usize>, first: usize, tiles: &mut [u16]) {
    tiles.fill(u16::MAX);
    let place = |tile: usize| first + tile * LANES;
    let whole_up_to = seen.end.saturating_sub(first) / LANES;
    for (tile, lanes) in tiles.iter_mut().enumerate().skip(whole_up_to) {
        *lanes = low_bits(seen.end, place(tile));
    }
    let whole_from = seen.start.saturating_sub(first).div_ceil(LANES);
    for (tile, lanes) in tiles.iter_mut().enumerate().take(whole_from) {
        *lanes &= !low_bits(seen.start, place(tile));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_seen_if_its_place_is() {
        for (first, start, end) in [
            (0, 0, 0),
            (0, 0, 5),
            (16, 3, 90),
            (32, 40, 44),
            (32, 70, 80),
            (64, 0, 20),
            (0, 16, 64),
        ] {
            let mut tiles = [7; 5];
            seen_of_tiles(&(start..end), first, &mut tiles);
            for place in first..first + tiles.len() * LANES {
                let lanes = tiles[(place - first) / LANES];
                let seen = lanes >> (place % LANES) & 1 == 1;
                assert_eq!(seen, (start..end).contains(&place), "{place} of {start}..{end}");
            }
        }
    }
}
