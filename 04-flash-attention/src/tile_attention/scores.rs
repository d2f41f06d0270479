//! Queries meet tiles of keys.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::blocks::{Block, most, on_rows};
use super::element::Widened;
use super::products::add_products;
use super::tiles::FEW;
use crate::kernels::{LINE, prefetch_far};
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Bytes of keys that all queries meet before the next ones are fetched, so that the second block of queries
/// finds them in the nearest cache: half of a small one. Wide keys make more of them, of four tiles.
const BYTES_TOGETHER: usize = 16 << 10;

/// Tiles of so many bytes that are met together: as many as a block takes at once, or twice as many.
fn tiles_together(bytes: usize) -> usize {
    (BYTES_TOGETHER / bytes).next_multiple_of(4).clamp(4, 8)
}

/// Scores of packed queries against consecutive tiles of keys, each `[D][16 positions]`.
///
/// `queries` is packed as [`Block`]s say, `[blocks][D][R]`. `scores` is `[queries][tiles]`. `after` is what will
/// be read once the last tile has been.
pub(super) fn score<E: Widened>(
    isa: Isa,
    scale: f32,
    (blocks, queries): (&[Block], &[f32]),
    keys: &[&[[E; LANES]]],
    after: &[&[E]],
    scores: &mut [[f32; LANES]],
) {
    let (dim, row) = (keys[0].len(), keys.len());
    let together = tiles_together(size_of_val(keys[0]));
    for (i, some) in keys.chunks(together).enumerate() {
        let at = i * together;
        for block in blocks {
            let queries = &queries[block.first * dim..][..block.rows * dim];
            let scores = &mut scores[block.first * row..][..block.rows * row];
            on_rows!(block.rows, |R, W, N, _PAIRED| isa.run(Scores::<E, R, W, N> {
                queries: queries.as_chunks().0,
                keys: some,
                later: &keys[at..],
                after,
                scale,
                scores,
                at,
            }));
        }
    }
}

/// `R` queries `[D][R]` against tiles `[D][16]`; scores go to `[R][tiles]`, tile `at` and on.
///
/// `WIDE` tiles are taken together where a register holds sixteen scores; elsewhere two registers of each of `NARROW`.
struct Scores<'a, E, const R: usize, const WIDE: usize, const NARROW: usize> {
    queries: &'a [[f32; R]],
    keys: &'a [&'a [[E; LANES]]],
    /// These tiles and all that follow.
    later: &'a [&'a [[E; LANES]]],
    after: &'a [&'a [E]],
    scale: f32,
    scores: &'a mut [[f32; LANES]],
    at: usize,
}

impl<E: Widened, const R: usize, const WIDE: usize, const NARROW: usize> Kernel
    for Scores<'_, E, R, WIDE, NARROW>
{
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            if V::WIDTH == LANES {
                self.by_tiles::<V, WIDE, 1>()
            } else if const { R <= most::<V>() } {
                self.by_tiles::<V, NARROW, 2>()
            } else {
                unreachable!("no room for {R} queries")
            }
        }
    }
}

impl<E: Widened, const R: usize, const WIDE: usize, const NARROW: usize>
    Scores<'_, E, R, WIDE, NARROW>
{
    /// `T` tiles at a time, `H` registers of each.
    #[inline(always)]
    unsafe fn by_tiles<V: Vector, const T: usize, const H: usize>(mut self) {
        let (groups, rest) = self.keys.as_chunks::<T>();
        for group in groups {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { self.tiles::<V, T, H>(group) };
        }
        for tile in rest {
            // SAFETY: as above.
            unsafe { self.tiles::<V, 1, H>(&[tile]) };
        }
    }

    /// Where the tile that is `ahead` tiles on lies; past the last, what is read after it.
    fn coming(&self, ahead: usize) -> *const E {
        match self.later.get(ahead) {
            Some(tile) => tile.as_ptr().cast(),
            None => {
                self.after.get(ahead - self.later.len()).map_or(std::ptr::null(), |it| it.as_ptr())
            }
        }
    }

    #[inline(always)]
    unsafe fn tiles<V: Vector, const T: usize, const H: usize>(
        &mut self,
        tiles: &[&[[E; LANES]]; T],
    ) {
        let row = self.scores.len() / R;
        let tiles = tiles.map(|tile| &tile[..self.queries.len()]);
        let coming: [*const E; T] = std::array::from_fn(|t| self.coming(T + t));
        for first in (0..LANES).step_by(H * V::WIDTH) {
            // SAFETY: the caller vouches for the instruction set; a tile's row has LANES numbers.
            unsafe {
                // ANCHOR: scores
                let mut sums = [[[V::splat(0.0); H]; T]; R];
                for (d, q) in self.queries.iter().enumerate() {
                    let mut keys = [&tiles[0][d][first..]; T];
                    for t in 0..T {
                        // Few queries are done with a tile before memory has sent the next.
                        if R <= FEW && (d * LANES * size_of::<E>()).is_multiple_of(LINE) {
                            prefetch_far(coming[t].wrapping_add(d * LANES).cast());
                        }
                        keys[t] = &tiles[t][d][first..];
                    }
                    add_products(&mut sums, *q, keys);
                }
                // ANCHOR_END: scores
                // Added to zero, a product is what it is by itself.
                let scale = V::splat(self.scale);
                for r in 0..R {
                    for t in 0..T {
                        for h in 0..H {
                            let score = V::splat(0.0).add_product(sums[r][t][h], scale);
                            let to = &mut self.scores[r * row + self.at + t];
                            score.store(&mut to[first + h * V::WIDTH..]);
                        }
                    }
                }
            }
        }
        self.at += T;
        self.later = &self.later[T..];
    }
}
