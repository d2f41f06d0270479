//! The same in AMX's tiles: up to sixteen queries, whichever they are of, in one instruction.

use super::{BLOCK, PLACES, Pair, Paired};
use crate::kernels::TILE_ROWS;
use crate::kernels::amx::{ROW, Tiles};
use naive_decode::numerics::LANES;

/// Tiles of keys side by side: a tile of queries that is loaded is multiplied by so many.
const BESIDE: usize = 4;

/// Tiles of keys that all queries meet before the next ones are fetched.
const TOGETHER: usize = 8;

/// Shapes for scores: four tiles of sums, one of queries, and of keys three if a key is whole blocks, else one, and then
/// queries and keys of the block that is short.
fn score_shapes(rows: usize, rest: usize) -> [(usize, usize); 8] {
    let (x, keys) = ((rows, ROW), (BLOCK, ROW));
    match rest {
        0 => [x, x, x, x, x, keys, keys, keys],
        rest => [x, x, x, x, x, keys, (rows, 4 * rest), (rest, ROW)],
    }
}

/// Shapes for values: four tiles of sums, one of weights, three of values.
fn value_shapes(rows: usize) -> [(usize, usize); 8] {
    let (x, values) = ((rows, ROW), (PLACES, ROW));
    [x, x, x, x, (rows, 4 * PLACES), values, values, values]
}

/// As [`super::score`].
///
/// # Safety
/// Tiles are there. All keys are as long as each other, and scores as many as queries meet keys.
pub(super) unsafe fn score(
    queries: &[Pair],
    keys: &[&[[Paired; LANES]]],
    scores: &mut [[f32; LANES]],
) {
    let (pairs, row) = (keys[0].len() / 2, keys.len());
    let whole = TILE_ROWS * pairs;
    let (all, few) = queries.split_at(queries.len() / whole * whole);
    let (all_scores, few_scores) = scores.split_at_mut(all.len() / pairs * row);
    for (queries, scores, rows) in
        [(all, all_scores, TILE_ROWS), (few, few_scores, few.len() / pairs)]
    {
        if queries.is_empty() {
            continue;
        }
        // SAFETY: the caller's condition; the next block of rows comes after this one's tiles are given back.
        unsafe {
            let tiles = Tiles::new(score_shapes(rows, pairs % BLOCK));
            for first in (0..row).step_by(TOGETHER) {
                for (i, queries) in queries.chunks(rows * pairs).enumerate() {
                    for at in (first..row.min(first + TOGETHER)).step_by(BESIDE) {
                        let to = scores.as_mut_ptr().add(i * rows * row + at);
                        let some = &keys[at..row.min(at + BESIDE)];
                        match pairs % BLOCK {
                            0 => meet::<false>(&tiles, queries, some, (to, row), pairs),
                            _ => meet::<true>(&tiles, queries, some, (to, row), pairs),
                        }
                    }
                }
            }
        }
    }
}

/// Runs `$code` with `$I` equal to each of 0 to 3 that is below `$count`, and with a register `$T` for each.
macro_rules! for_each {
    ($count:expr, |$I:ident, $T:ident| $registers:expr => $code:expr) => {
        for_each!(@ 0, $count, $I, $T, $registers, $code);
        for_each!(@ 1, $count, $I, $T, $registers, $code);
        for_each!(@ 2, $count, $I, $T, $registers, $code);
        for_each!(@ 3, $count, $I, $T, $registers, $code);
    };
    (@ $i:literal, $count:expr, $I:ident, $T:ident, $registers:expr, $code:expr) => {
        if $i < $count {
            const $I: usize = $i;
            const $T: usize = $registers[$i];
            $code
        }
    };
}

/// Registers for tiles of keys or values that come one after another.
const IN_TURN: [usize; 4] = [5, 6, 7, 5];

/// One block of queries against up to four tiles of keys.
///
/// # Safety
/// As [`score`], with these tiles' shapes, and there is room for scores of as many rows, `row` tiles of them each.
#[inline(always)]
unsafe fn meet<const REST: bool>(
    tiles: &Tiles,
    queries: &[Pair],
    keys: &[&[[Paired; LANES]]],
    (to, row): (*mut [f32; LANES], usize),
    pairs: usize,
) {
    let (count, stride) = (keys.len(), pairs * size_of::<Pair>());
    let query = |block: usize| queries.as_ptr().wrapping_add(block * BLOCK).cast::<u8>();
    let key = |tile: usize, block: usize| {
        keys[tile].as_ptr().cast::<u8>().wrapping_add(block * BLOCK * ROW)
    };
    // SAFETY: queries and keys have so many blocks, and scores have room.
    unsafe {
        for_each!(count, |I, _T| IN_TURN => tiles.clear::<I>());
        for block in 0..pairs / BLOCK {
            tiles.load::<4>(query(block), stride);
            if REST {
                for_each!(count, |I, T| [5; 4] => {
                    tiles.load::<T>(key(I, block), ROW);
                    tiles.add_bf16::<I, 4, T>();
                });
            } else {
                for_each!(count, |I, T| IN_TURN => {
                    tiles.load::<T>(key(I, block), ROW);
                    tiles.add_bf16::<I, 4, T>();
                });
            }
        }
        if REST {
            tiles.load::<6>(query(pairs / BLOCK), stride);
            for_each!(count, |I, T| [7; 4] => {
                tiles.load::<T>(key(I, pairs / BLOCK), ROW);
                tiles.add_bf16::<I, 6, T>();
            });
        }
        let to = to.cast::<u8>();
        for_each!(count, |I, _T| IN_TURN => tiles.store::<I>(to.add(I * ROW), row * ROW));
    }
}

/// As [`super::add_tiles`].
///
/// # Safety
/// Tiles are there. All values are whole tiles, every query has weights for them, and sums.
pub(super) unsafe fn add_values(
    (weights, row, at): (&[Pair], usize, usize),
    values: &[&[Paired]],
    sums: &mut [f32],
    width: usize,
) {
    let queries = sums.len() / width;
    let whole = queries / TILE_ROWS * TILE_ROWS;
    for (range, rows) in [(0..whole, TILE_ROWS), (whole..queries, queries - whole)] {
        if range.is_empty() {
            continue;
        }
        // SAFETY: the caller's condition; the next block of rows comes after this one's tiles are given back.
        unsafe {
            let tiles = Tiles::new(value_shapes(rows));
            for first in range.step_by(rows) {
                for column in (0..width).step_by(BESIDE * LANES) {
                    let weights = weights.as_ptr().add(first * row + at);
                    let to = sums.as_mut_ptr().add(first * width + column);
                    let count = ((width - column) / LANES).min(BESIDE);
                    weigh(&tiles, (weights, row), values, (to, width), (column, count));
                }
            }
        }
    }
}

/// One block of queries and up to four times sixteen columns.
///
/// # Safety
/// As [`add_values`], with these tiles' shapes.
#[inline(always)]
unsafe fn weigh(
    tiles: &Tiles,
    (weights, row): (*const Pair, usize),
    values: &[&[Paired]],
    (to, width): (*mut f32, usize),
    (first, count): (usize, usize),
) {
    let (to, stride) = (to.cast::<u8>(), width * size_of::<f32>());
    let row_bytes = 2 * width * size_of::<Paired>();
    // SAFETY: sums and weights of so many rows, and values of so many columns, are there.
    unsafe {
        for_each!(count, |I, _T| IN_TURN => tiles.load::<I>(to.add(I * ROW), stride));
        for (i, tile) in values.iter().enumerate() {
            let tile = tile.as_ptr().cast::<u8>().wrapping_add(first / LANES * ROW);
            tiles.load::<4>(weights.add(i * PLACES).cast(), row * size_of::<Pair>());
            for_each!(count, |I, T| IN_TURN => {
                tiles.load::<T>(tile.wrapping_add(I * ROW), row_bytes);
                tiles.add_bf16::<I, 4, T>();
            });
        }
        for_each!(count, |I, _T| IN_TURN => tiles.store::<I>(to.add(I * ROW), stride));
    }
}
