//! The ways in which queries meet keys, and weights values.

use super::blocks::{Block, pack};
use super::element::{Paired, Widened};
use super::run::Queries;
use super::tiles::Tiles;
use super::{codes, columns, pairs, scores, values};
use crate::kernels::Simd;
use crate::kernels::bf16_dots::sums::{Pair, round};
use crate::kernels::digits::rows::DigitRows;
use naive_decode::numerics::LANES;

/// How keys and values of a type are met.
pub trait Way<E> {
    /// Packs queries, those of `blocks` one after another.
    fn pack<'q>(
        simd: Simd,
        scale: f32,
        blocks: &[Block],
        query: impl Fn(usize) -> &'q [f32],
        packed: &mut Packed,
    );

    /// Scores `[queries][tiles]` of packed queries against tiles, of which there are some, in base 2.
    fn score(queries: &Queries, tiles: &Tiles<E>, scores: &mut [[f32; LANES]]);

    /// Takes what it needs of a query's weights `[tiles]` while they are near.
    fn take_weights(_simd: Simd, _query: usize, _weights: &[[f32; LANES]], _room: &mut WayRoom) {}

    /// Adds the values of tiles, of which there are some, times their weights `[queries][tiles]`, to `sums`, which are
    /// `[queries][width]`, in order of position. If a value is the beginning of its key, it may be shorter than `width`.
    fn add_values(
        queries: &Queries,
        tiles: &Tiles<E>,
        weights: &[[f32; LANES]],
        sums: (&mut [f32], usize),
        room: &mut WayRoom,
    );
}

/// Queries as a way wants them.
#[derive(Default)]
pub struct Packed {
    /// `[blocks][D][R]`
    floats: Vec<f32>,
    /// `[queries][D / 2]`
    pub(super) pairs: Vec<Pair>,
    pub(super) digits: DigitRows,
}

/// Room that is kept from one call to the next.
#[derive(Default)]
pub struct WayRoom {
    columns: columns::Room,
    pub(super) pairs: pairs::Room,
    pub(super) codes: codes::Room,
}

/// In chains of multiply-adds of floats, which numbers become in the register.
pub struct InFloats;

/// In pairs of BF16, as the processor's instructions for those add them.
pub struct InPairs;

/// Tiles of values that are asked for of memory while the last keys are met.
const AFTER: usize = 4;

impl<E: Widened> Way<E> for InFloats {
    fn pack<'q>(
        _simd: Simd,
        _scale: f32,
        blocks: &[Block],
        query: impl Fn(usize) -> &'q [f32],
        packed: &mut Packed,
    ) {
        packed.floats.clear();
        blocks.iter().for_each(|&block| pack(block, &query, &mut packed.floats));
    }

    fn score(queries: &Queries, tiles: &Tiles<E>, scores: &mut [[f32; LANES]]) {
        let packed = (queries.blocks, &queries.packed.floats[..]);
        let (keys, after) = (tiles.keys(), &tiles.values()[..tiles.count.min(AFTER)]);
        scores::score(queries.isa, queries.scale, packed, keys, after, scores);
    }

    fn add_values(
        queries: &Queries,
        tiles: &Tiles<E>,
        weights: &[[f32; LANES]],
        (sums, width): (&mut [f32], usize),
        room: &mut WayRoom,
    ) {
        let weights = weights.as_flattened();
        if tiles.have_values() {
            let Queries { isa, blocks, .. } = *queries;
            values::add_values(isa, blocks, weights, tiles.values(), width, sums);
            return;
        }
        let columns = &mut room.columns;
        let own = width.min(tiles.keys()[0].len());
        columns.begin(sums.len() / width, own);
        for (i, tile) in tiles.keys().iter().enumerate() {
            let places = if i + 1 == tiles.count { tiles.last } else { LANES };
            let weights = (weights, tiles.count * LANES, i * LANES);
            columns.add(queries.isa, weights, places, &tile[..own]);
        }
        for (query, sums) in sums.chunks_exact_mut(width).enumerate() {
            sums.iter_mut().zip(columns.sum(query)).for_each(|(to, sum)| *to = sum);
        }
    }
}

impl Way<Paired> for InPairs {
    /// The scale is in the queries: they are rounded after it.
    fn pack<'q>(
        simd: Simd,
        scale: f32,
        blocks: &[Block],
        query: impl Fn(usize) -> &'q [f32],
        packed: &mut Packed,
    ) {
        packed.pairs.clear();
        for i in 0..blocks.iter().map(|block| block.rows).sum() {
            let (start, query) = (packed.pairs.len(), query(i));
            packed.pairs.resize(start + query.len() / 2, 0);
            round(simd, query, scale, &mut packed.pairs[start..]);
        }
    }

    fn score(queries: &Queries, tiles: &Tiles<Paired>, scores: &mut [[f32; LANES]]) {
        let after = &tiles.values()[..tiles.count.min(AFTER)];
        pairs::score(queries.simd, &queries.packed.pairs, tiles.keys(), after, scores);
    }

    fn take_weights(simd: Simd, query: usize, weights: &[[f32; LANES]], room: &mut WayRoom) {
        room.pairs.take_weights(simd, query, weights.as_flattened());
    }

    fn add_values(
        queries: &Queries,
        tiles: &Tiles<Paired>,
        _weights: &[[f32; LANES]],
        (sums, width): (&mut [f32], usize),
        room: &mut WayRoom,
    ) {
        room.pairs.add_values(queries.simd, tiles, sums, width);
    }
}
