//! The fast mode of attention: queries meet keys, and weights values, in pairs of BF16.
//!
//! The order of sums is that of the fast mode of weights ([`bf16_dots`](crate::kernels::bf16_dots)): a score's blocks are of
//! 32 numbers of the key, a last one of as many as are left, those of a value's sum the sixteen places of a tile. Queries are
//! rounded to BF16 after they are scaled, weights after they are found; the sum of weights is that of the weights before.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

#[cfg(target_arch = "x86_64")]
mod tiles;

use super::blocks::{Block, blocks, on_rows};
use super::element::{Paired, TileElement};
use super::tiles::{FEW, Tiles};
use crate::kernels::bf16_dots::sums::{Pair, PairKernel, Sums, round, run};
use crate::kernels::{Simd, prefetch_far};
use naive_decode::numerics::LANES;

/// Tiles ahead that are asked for of memory.
const AHEAD: usize = 4;

/// Most queries to a block.
const MOST: usize = 8;

/// Pairs of a whole block of a score.
const BLOCK: usize = 16;

/// Pairs of a tile's places.
const PLACES: usize = LANES / 2;

/// Bytes of a pair of numbers for sixteen lanes.
const ROW: usize = 2 * LANES * size_of::<Paired>();

/// Scores of queries `[queries][D / 2]` against consecutive tiles of keys, `[D / 2][16 positions][2]`; `scores` is
/// `[queries][tiles]`. `after` is what will be read once the last tile has been.
pub(super) fn score(
    simd: Simd,
    queries: &[Pair],
    keys: &[&[[Paired; LANES]]],
    after: &[&[Paired]],
    scores: &mut [[f32; LANES]],
) {
    let pairs = keys[0].len() / 2;
    assert!(pairs.is_multiple_of(2) && queries.len() * keys.len() == scores.len() * pairs);
    assert!(keys.iter().all(|tile| tile.len() == 2 * pairs), "tiles of one size");
    #[cfg(target_arch = "x86_64")]
    if simd.has_tiles() {
        // SAFETY: tiles are there, and everything is as long as was just checked.
        unsafe { tiles::score(queries, keys, scores) };
        return;
    }
    for Block { first, rows } in blocks(queries.len() / pairs, MOST) {
        let scores = &mut scores[first * keys.len()..][..rows * keys.len()];
        on_rows!(rows, |R, _WIDE, _NARROW, T| {
            let row = |r: usize| &queries[(first + r) * pairs..][..pairs];
            // SAFETY: every tile has as many pairs as a query, and there is room for its scores, as was checked.
            unsafe {
                run(simd, Scores::<R, T> { queries: std::array::from_fn(row), keys, after, scores })
            };
        });
    }
}

/// `R` queries against tiles, `T` at a time; scores are `[R][tiles]`.
struct Scores<'a, const R: usize, const T: usize> {
    queries: [&'a [Pair]; R],
    keys: &'a [&'a [[Paired; LANES]]],
    after: &'a [&'a [Paired]],
    scores: &'a mut [[f32; LANES]],
}

impl<const R: usize, const T: usize> PairKernel for Scores<'_, R, T> {
    #[inline(always)]
    unsafe fn run<S: Sums>(&mut self) {
        let whole = self.keys.len() / T * T;
        for first in (0..whole).step_by(T) {
            // SAFETY: the caller's condition.
            unsafe { self.tiles::<S, T>(first) };
        }
        for first in whole..self.keys.len() {
            // SAFETY: as above.
            unsafe { self.tiles::<S, 1>(first) };
        }
    }
}

impl<const R: usize, const T: usize> Scores<'_, R, T> {
    /// Where a tile of keys lies; past the last, what is read after it.
    fn coming(&self, tile: usize) -> *const u8 {
        match self.keys.get(tile) {
            Some(keys) => keys.as_ptr().cast(),
            None => match self.after.get(tile - self.keys.len()) {
                Some(values) => values.as_ptr().cast(),
                None => std::ptr::null(),
            },
        }
    }

    /// `N` tiles from `first` on.
    ///
    /// # Safety
    /// As [`PairKernel::run`].
    #[inline(always)]
    unsafe fn tiles<S: Sums, const N: usize>(&mut self, first: usize) {
        let (pairs, row) = (self.queries[0].len(), self.keys.len());
        let coming: [*const u8; N] = std::array::from_fn(|n| self.coming(first + n + AHEAD));
        let tiles: [*const u8; N] = std::array::from_fn(|n| self.keys[first + n].as_ptr().cast());
        // SAFETY: `score` checked all lengths; the caller vouches for the instructions.
        unsafe {
            // ANCHOR: score_pairs
            let mut sums = [[S::zero(); N]; R];
            for block in (0..pairs).step_by(BLOCK) {
                let (mut even, mut odd) = ([[S::zero(); N]; R], [[S::zero(); N]; R]);
                for pair in (block..pairs.min(block + BLOCK)).step_by(2) {
                    for n in 0..N {
                        if R <= FEW {
                            prefetch_far(coming[n].wrapping_add(pair * ROW));
                            prefetch_far(coming[n].wrapping_add((pair + 1) * ROW));
                        }
                        let at = tiles[n].add(pair * ROW);
                        let [evens, odds] = S::weights(at, at.add(ROW));
                        for r in 0..R {
                            let query = self.queries[r].as_ptr().add(pair);
                            even[r][n] = even[r][n].plus_products(evens, *query);
                            odd[r][n] = odd[r][n].plus_products(odds, *query.add(1));
                        }
                    }
                }
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = sums[r][n].plus(even[r][n].plus(odd[r][n]));
                    }
                }
            }
            // ANCHOR_END: score_pairs
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(self.scores[r * row + first + n].as_mut_ptr());
                }
            }
        }
    }
}

/// Room that is kept from one call to the next.
#[derive(Default)]
pub(super) struct Room {
    /// `[queries][tiles · 8]`
    weights: Vec<Pair>,
    /// Sums of a handful of queries before more values are added.
    before: Vec<f32>,
    /// `[16 positions][width]`: a tile of values that are the beginnings of keys.
    tile: Vec<Paired>,
}

impl Room {
    /// Rounds a query's weights, those of the queries before it having been.
    pub(super) fn take_weights(&mut self, simd: Simd, query: usize, weights: &[f32]) {
        let row = weights.len() / 2;
        self.weights.resize((query + 1) * row, 0);
        round(simd, weights, 1.0, &mut self.weights[query * row..]);
    }

    /// Adds the values of some tiles times the weights that were taken to `sums [queries][width]`, which are zero.
    pub(super) fn add_values(
        &mut self,
        simd: Simd,
        tiles: &Tiles<Paired>,
        sums: &mut [f32],
        width: usize,
    ) {
        let row = tiles.count * PLACES;
        if tiles.have_values() {
            add_tiles(simd, (&self.weights, row, 0), tiles.values(), None, sums, width);
        } else {
            for (i, tile) in tiles.keys().iter().enumerate() {
                let places = if i + 1 == tiles.count { tiles.last } else { LANES };
                self.tile.clear();
                self.tile.resize(LANES * width, Paired::default());
                for place in 0..places {
                    for column in 0..width.min(tile.len()) {
                        self.tile[Paired::value_at(LANES, width, place, column)] =
                            tile.as_flattened()[Paired::key_at(LANES, place, column)];
                    }
                }
                let (weights, before) = ((&self.weights[..], row, i * PLACES), &mut self.before);
                add_tiles(simd, weights, &[&self.tile], Some(before), sums, width);
            }
        }
    }
}

/// Adds whole tiles of values `[8][width][2]`, times the weights of every query from `at` on, to `sums [queries][width]`.
/// A query's weights are `row` pairs. Unless there is room for what they were `before`, sums are zero.
fn add_tiles(
    simd: Simd,
    (weights, row, at): (&[Pair], usize, usize),
    values: &[&[Paired]],
    mut before: Option<&mut Vec<f32>>,
    sums: &mut [f32],
    width: usize,
) {
    let queries = sums.len() / width;
    assert!(width.is_multiple_of(LANES) && values.iter().all(|tile| tile.len() == LANES * width));
    assert!(weights.len() == queries * row && at + values.len() * PLACES <= row, "a weight each");
    #[cfg(target_arch = "x86_64")]
    if simd.has_tiles() {
        // SAFETY: tiles are there, and everything is as long as was just checked.
        unsafe { tiles::add_values((weights, row, at), values, sums, width) };
        return;
    }
    for Block { first, rows } in blocks(queries, MOST) {
        let sums = &mut sums[first * width..][..rows * width];
        let before = before.as_deref_mut().map(|before| {
            before.clear();
            before.extend_from_slice(sums);
            &before[..]
        });
        on_rows!(rows, |R, _WIDE, _NARROW, C| {
            let row = |r: usize| &weights[(first + r) * row + at..][..values.len() * PLACES];
            let weights = std::array::from_fn(row);
            // SAFETY: tiles are whole, there is a weight for each place, and columns are in whole registers, as was checked.
            unsafe { run(simd, AddValues::<R, C> { weights, values, before, sums, width }) };
        });
    }
}

/// `R` queries, sixteen columns `C` times together: weights `[R][tiles · 8]`, values `[tiles][8][width][2]`, sums `[R][width]`.
struct AddValues<'a, const R: usize, const C: usize> {
    weights: [&'a [Pair]; R],
    values: &'a [&'a [Paired]],
    /// What sums begin with; none if that is zero.
    before: Option<&'a [f32]>,
    sums: &'a mut [f32],
    width: usize,
}

impl<const R: usize, const C: usize> PairKernel for AddValues<'_, R, C> {
    #[inline(always)]
    unsafe fn run<S: Sums>(&mut self) {
        let columns = self.width / LANES;
        let whole = columns / C * C;
        for first in (0..whole).step_by(C) {
            // SAFETY: the caller's condition.
            unsafe { self.columns::<S, C>(first) };
        }
        for first in whole..columns {
            // SAFETY: as above.
            unsafe { self.columns::<S, 1>(first) };
        }
    }
}

impl<const R: usize, const C: usize> AddValues<'_, R, C> {
    /// `N` times sixteen columns from `first` times sixteen on.
    ///
    /// # Safety
    /// As [`PairKernel::run`].
    #[inline(always)]
    unsafe fn columns<S: Sums, const N: usize>(&mut self, first: usize) {
        let row_bytes = 2 * self.width * size_of::<Paired>();
        // SAFETY: `add_tiles` checked all lengths; the caller vouches for the instructions.
        unsafe {
            let to = self.sums.as_mut_ptr().add(first * LANES);
            let mut sums = [[S::zero(); N]; R];
            if let Some(before) = self.before {
                let from = before.as_ptr().add(first * LANES);
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = S::load(from.add(r * self.width + n * LANES));
                    }
                }
            }
            for (i, tile) in self.values.iter().enumerate() {
                let coming = self.values.get(i + AHEAD).map_or(std::ptr::null(), |it| it.as_ptr());
                let (mut even, mut odd) = ([[S::zero(); N]; R], [[S::zero(); N]; R]);
                for pair in (0..PLACES).step_by(2) {
                    for n in 0..N {
                        let at = pair * row_bytes + (first + n) * ROW;
                        if R <= FEW {
                            prefetch_far(coming.cast::<u8>().wrapping_add(at));
                            prefetch_far(coming.cast::<u8>().wrapping_add(at + row_bytes));
                        }
                        let one = tile.as_ptr().cast::<u8>().add(at);
                        let [evens, odds] = S::weights(one, one.add(row_bytes));
                        for r in 0..R {
                            let weight = self.weights[r].as_ptr().add(i * PLACES + pair);
                            even[r][n] = even[r][n].plus_products(evens, *weight);
                            odd[r][n] = odd[r][n].plus_products(odds, *weight.add(1));
                        }
                    }
                }
                for r in 0..R {
                    for n in 0..N {
                        sums[r][n] = sums[r][n].plus(even[r][n].plus(odd[r][n]));
                    }
                }
            }
            for r in 0..R {
                for n in 0..N {
                    sums[r][n].store(to.add(r * self.width + n * LANES));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
