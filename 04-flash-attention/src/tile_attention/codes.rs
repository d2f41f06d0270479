//! Attention over INT8: queries meet keys, and weights values, as whole numbers.
//!
//! A query has a scale and two digits, as activations have for INT8 weights, and so have its weights in a split, each first
//! multiplied by its value's scale. Products with codes are added exactly, in whatever order: all that is rounded is the
//! digits themselves and what becomes of a whole sum. So the order of places, which floats must keep, is free here.

use super::blocks::Block;
use super::run::Queries;
use super::tiles::{FEW, MOST, Tiles};
use super::ways::{Packed, Way, WayRoom};
use crate::kernels::Simd;
use crate::kernels::digits::rows::{Code, DigitRows, HANDFUL, turn};
use naive_decode::numerics::LANES;

/// In products of whole numbers.
pub struct InDigits;

/// Room that is kept from one call to the next.
#[derive(Default)]
pub(super) struct Room {
    weights: DigitRows,
    /// `[tiles][4][width][4]`: values that are the beginnings of keys.
    values: Vec<Code>,
}

/// Runs `$code` with the constant `$R` equal to `$rows`, the size of a handful.
macro_rules! on_handful {
    ($rows:expr, |$R:ident| $code:expr) => {
        on_handful!(@ $rows, $R, $code, 1 2 3 4)
    };
    (@ $rows:expr, $R:ident, $code:expr, $($r:literal)*) => {
        match $rows {
            $($r => {
                const $R: usize = $r;
                $code
            })*
            rows => unreachable!("no handful has {rows} rows"),
        }
    };
}

/// The queries of some blocks, shared out anew.
fn handfuls(blocks: &[Block]) -> impl Iterator<Item = Block> {
    super::blocks::blocks(blocks.iter().map(|block| block.rows).sum(), HANDFUL)
}

impl Way<Code> for InDigits {
    fn pack<'q>(
        simd: Simd,
        _scale: f32,
        blocks: &[Block],
        query: impl Fn(usize) -> &'q [f32],
        packed: &mut Packed,
    ) {
        packed.digits.clear();
        for Block { first, rows } in handfuls(blocks) {
            on_handful!(rows, |R| {
                let queries: [_; R] = std::array::from_fn(|r| query(first + r));
                packed.digits.push(simd, queries);
            });
        }
    }

    fn score(queries: &Queries, tiles: &Tiles<Code>, scores: &mut [[f32; LANES]]) {
        let &Queries { simd, scale, packed, .. } = queries;
        let asks = queries.sees.len() <= FEW;
        let keys = (tiles.keys(), asks.then(|| tiles.values()));
        for Block { first, rows } in handfuls(queries.blocks) {
            let scores = &mut scores[first * tiles.count..][..rows * tiles.count];
            on_handful!(rows, |R| packed.digits.meet::<R>(simd, first, keys, scale, scores));
        }
    }

    fn add_values(
        queries: &Queries,
        tiles: &Tiles<Code>,
        weights: &[[f32; LANES]],
        (sums, width): (&mut [f32], usize),
        room: &mut WayRoom,
    ) {
        let Room { weights: digits, values } = &mut room.codes;
        let mut parts: [&[Code]; MOST] = [&[]; MOST];
        let values = if tiles.have_values() {
            tiles.values()
        } else {
            beginnings(queries.simd, tiles, width, values);
            let values = values.chunks_exact(LANES * width);
            parts.iter_mut().zip(values).for_each(|(part, values)| *part = values);
            &parts[..tiles.count]
        };
        let (simd, asks) = (queries.simd, queries.sees.len() <= FEW);
        let row = |query: usize| weights[query * tiles.count..][..tiles.count].as_flattened();
        digits.clear();
        for Block { first, rows } in handfuls(queries.blocks) {
            let sums = &mut sums[first * width..][..rows * width];
            on_handful!(rows, |R| {
                digits.push::<R>(simd, std::array::from_fn(|r| row(first + r)));
                digits.add::<R>(simd, first, values, (width, asks), sums);
            });
        }
    }
}

/// The beginnings of keys, as values lie.
fn beginnings(simd: Simd, tiles: &Tiles<Code>, width: usize, values: &mut Vec<Code>) {
    values.clear();
    values.resize(tiles.count * LANES * width, Code::default());
    for (tile, values) in tiles.keys().iter().zip(values.chunks_exact_mut(LANES * width)) {
        turn(simd, tile, width, values);
    }
}
