//! Queries meet tiles of keys.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::blocks::{Block, on_rows};
use super::element::TileElement;
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Tiles that all queries meet before the next ones are fetched, so that the second block of queries
/// finds them in the nearest cache.
const TILES_TOGETHER: usize = 8;

/// Scores of packed queries against consecutive tiles of keys `[tiles][D][16 positions]`.
///
/// `queries` is packed as [`Block`]s say, `[blocks][D][R]`. `scores` is `[queries][row]` tiles, of
/// which those from `first` on are written.
pub(super) fn score<E: TileElement>(
    isa: Isa,
    scale: f32,
    (blocks, queries): (&[Block], &[f32]),
    keys: &[[E; LANES]],
    dim: usize,
    scores: &mut [[f32; LANES]],
    (first, row): (usize, usize),
) {
    for (i, keys) in keys.chunks(TILES_TOGETHER * dim).enumerate() {
        let at = first + i * TILES_TOGETHER;
        for block in blocks {
            let queries = &queries[block.first * dim..][..block.rows * dim];
            let scores = &mut scores[block.first * row..][..block.rows * row];
            on_rows!(block.rows, |R, W, N| isa.run(Scores::<E, R, W, N> {
                queries: queries.as_chunks().0,
                keys,
                scale,
                scores,
                at,
            }));
        }
    }
}

/// `R` queries `[D][R]` against tiles `[tiles][D][16]`; scores go to `[R][row]`, tile `at` and on.
///
/// `WIDE` tiles are taken together where registers are wide, `NARROW` elsewhere.
struct Scores<'a, E, const R: usize, const WIDE: usize, const NARROW: usize> {
    queries: &'a [[f32; R]],
    keys: &'a [[E; LANES]],
    scale: f32,
    scores: &'a mut [[f32; LANES]],
    at: usize,
}

impl<E: TileElement, const R: usize, const WIDE: usize, const NARROW: usize> Kernel
    for Scores<'_, E, R, WIDE, NARROW>
{
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            if V::WIDTH == LANES {
                self.by_tiles::<V, WIDE>()
            } else {
                self.by_tiles::<V, NARROW>()
            }
        }
    }
}

impl<E: TileElement, const R: usize, const WIDE: usize, const NARROW: usize>
    Scores<'_, E, R, WIDE, NARROW>
{
    #[inline(always)]
    unsafe fn by_tiles<V: Vector, const T: usize>(mut self) {
        let dim = self.queries.len();
        let mut groups = self.keys.chunks_exact(T * dim);
        for group in groups.by_ref() {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { self.tiles::<V, T>(group) };
        }
        for tile in groups.remainder().chunks_exact(dim) {
            // SAFETY: as above.
            unsafe { self.tiles::<V, 1>(tile) };
        }
    }

    #[inline(always)]
    unsafe fn tiles<V: Vector, const T: usize>(&mut self, keys: &[[E; LANES]]) {
        let dim = self.queries.len();
        let tiles: [&[[E; LANES]]; T] = std::array::from_fn(|t| &keys[t * dim..][..dim]);
        let row = self.scores.len() / R;
        for first in (0..LANES).step_by(V::WIDTH) {
            // SAFETY: the caller vouches for the instruction set; a tile's row has LANES numbers.
            unsafe {
                // ANCHOR: scores
                let mut sums = [[V::splat(0.0); T]; R];
                for (d, q) in self.queries.iter().enumerate() {
                    let mut keys = [V::splat(0.0); T];
                    for t in 0..T {
                        keys[t] = E::load::<V>(&tiles[t][d][first..]);
                    }
                    for r in 0..R {
                        let q = V::splat(q[r]);
                        for t in 0..T {
                            sums[r][t] = sums[r][t].add_product(q, keys[t]);
                        }
                    }
                }
                // ANCHOR_END: scores
                // Added to zero, a product is what it is by itself.
                let scale = V::splat(self.scale);
                for r in 0..R {
                    for t in 0..T {
                        let score = V::splat(0.0).add_product(sums[r][t], scale);
                        score.store(&mut self.scores[r * row + self.at + t][first..]);
                    }
                }
            }
        }
        self.at += T;
    }
}
