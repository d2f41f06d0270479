//! Weights meet values.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::blocks::{Block, most, on_rows};
use super::element::Widened;
use super::products::add_products;
use super::tiles::FEW;
use crate::kernels::{LINE, prefetch_far};
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Bytes of values that all queries take before the next ones are fetched. A register's columns lie a value apart, and the
/// nearest cache has room for a few lines at each such distance.
const BYTES_TOGETHER: usize = 16 << 10;

/// Tiles that are taken together at most.
const TILES_TOGETHER: usize = 4;

/// Tiles ahead that are asked for of memory, where few queries are done with one before the next is there.
const AHEAD: usize = 2;

/// Adds to each query's sum `[width]` its weights times the values of consecutive positions, in order
/// of position.
///
/// Each of `values` is a tile's, `[16 positions][width]`, the last perhaps of fewer; `width` is whole registers of
/// any kind. `weights` is `[queries][tiles · 16]`, and `sums` `[queries][width]`.
pub(super) fn add_values<E: Widened>(
    isa: Isa,
    blocks: &[Block],
    weights: &[f32],
    values: &[&[E]],
    width: usize,
    sums: &mut [f32],
) {
    let row = values.len() * LANES;
    let bytes = LANES * width * size_of::<E>();
    let together = (BYTES_TOGETHER / bytes).clamp(1, TILES_TOGETHER);
    for (i, tiles) in values.chunks(together).enumerate() {
        let at = i * together;
        for block in blocks {
            let sums = &mut sums[block.first * width..][..block.rows * width];
            on_rows!(block.rows, |R, W, N, _PAIRED| isa.run(AddValues::<E, R, W, N> {
                weights: std::array::from_fn(|r| {
                    &weights[(block.first + r) * row + at * LANES..][..tiles.len() * LANES]
                }),
                tiles,
                later: &values[at..],
                width,
                sums,
            }));
        }
    }
}

/// `R` queries: weights `[R][tiles · 16]`, values `[tiles][16][width]`, sums `[R][width]`.
///
/// `WIDE` registers of columns are taken together where one holds sixteen, `NARROW` pairs of them elsewhere.
struct AddValues<'a, E, const R: usize, const WIDE: usize, const NARROW: usize> {
    weights: [&'a [f32]; R],
    tiles: &'a [&'a [E]],
    /// These tiles and all that follow.
    later: &'a [&'a [E]],
    width: usize,
    sums: &'a mut [f32],
}

impl<E: Widened, const R: usize, const WIDE: usize, const NARROW: usize> Kernel
    for AddValues<'_, E, R, WIDE, NARROW>
{
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            if V::WIDTH == LANES {
                self.by_columns::<V, WIDE, 1>()
            } else if const { R <= most::<V>() } {
                self.by_columns::<V, NARROW, 2>()
            } else {
                unreachable!("no room for {R} queries")
            }
        }
    }
}

impl<E: Widened, const R: usize, const WIDE: usize, const NARROW: usize>
    AddValues<'_, E, R, WIDE, NARROW>
{
    /// `T` times `H` registers of columns at a time, which is whole sixteens.
    #[inline(always)]
    unsafe fn by_columns<V: Vector, const T: usize, const H: usize>(mut self) {
        let each = H * V::WIDTH;
        let pieces = self.width / each;
        for piece in 0..pieces / T {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { self.columns::<V, T, H>(piece * T * each) };
        }
        for piece in pieces / T * T..pieces {
            // SAFETY: as above.
            unsafe { self.columns::<V, 1, H>(piece * each) };
        }
    }

    /// `T` times `H` registers of columns, from `first` on.
    #[inline(always)]
    unsafe fn columns<V: Vector, const T: usize, const H: usize>(&mut self, first: usize) {
        let columns = T * H * V::WIDTH;
        let each = |weights: &&[f32]| weights.len() == self.tiles.len() * LANES;
        assert!(self.weights.iter().all(each), "a weight for each position");
        // SAFETY: the caller vouches for the instruction set; every slice is `columns` long, and each query
        // has a weight for each position.
        unsafe {
            let mut sums = [[[V::splat(0.0); H]; T]; R];
            for r in 0..R {
                let sum = &self.sums[r * self.width + first..][..columns];
                for t in 0..T {
                    for h in 0..H {
                        sums[r][t][h] = V::load(&sum[(t * H + h) * V::WIDTH..]);
                    }
                }
            }
            for (i, tile) in self.tiles.iter().enumerate() {
                let coming = self.later.get(i + AHEAD).map_or(std::ptr::null(), |it| it.as_ptr());
                for (p, value) in tile.chunks_exact(self.width).enumerate().take(LANES) {
                    let value = &value[first..][..columns];
                    let mut numbers = [value; T];
                    for t in 0..T {
                        for h in 0..H {
                            let c = (t * H + h) * V::WIDTH;
                            if R <= FEW && (c * size_of::<E>()).is_multiple_of(LINE) {
                                let number = p * self.width + first + c;
                                prefetch_far(coming.wrapping_add(number).cast());
                            }
                        }
                        numbers[t] = &value[t * H * V::WIDTH..];
                    }
                    let mut weights = [0.0; R];
                    for r in 0..R {
                        weights[r] = *self.weights[r].get_unchecked(i * LANES + p);
                    }
                    add_products(&mut sums, weights, numbers);
                }
            }
            for r in 0..R {
                let sum = &mut self.sums[r * self.width + first..][..columns];
                for t in 0..T {
                    for h in 0..H {
                        sums[r][t][h].store(&mut sum[(t * H + h) * V::WIDTH..]);
                    }
                }
            }
        }
    }
}
