//! Weights meet values.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::blocks::{Block, on_rows};
use super::element::Widened;
use super::tiles::FEW;
use crate::kernels::{LINE, prefetch_far};
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Tiles whose values all queries take before the next ones are fetched.
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
    for (i, tiles) in values.chunks(TILES_TOGETHER).enumerate() {
        let at = i * TILES_TOGETHER;
        for block in blocks {
            let sums = &mut sums[block.first * width..][..block.rows * width];
            on_rows!(block.rows, |R, W, N| isa.run(AddValues::<E, R, W, N> {
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
/// `WIDE` registers of columns are taken together where registers are wide, `NARROW` elsewhere.
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
                self.by_columns::<V, WIDE>()
            } else {
                self.by_columns::<V, NARROW>()
            }
        }
    }
}

impl<E: Widened, const R: usize, const WIDE: usize, const NARROW: usize>
    AddValues<'_, E, R, WIDE, NARROW>
{
    #[inline(always)]
    unsafe fn by_columns<V: Vector, const C: usize>(mut self) {
        let registers = self.width / V::WIDTH;
        for column in 0..registers / C {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { self.columns::<V, C>(column * C * V::WIDTH) };
        }
        for column in registers / C * C..registers {
            // SAFETY: as above.
            unsafe { self.columns::<V, 1>(column * V::WIDTH) };
        }
    }

    /// `C` registers of columns, from `first` on.
    #[inline(always)]
    unsafe fn columns<V: Vector, const C: usize>(&mut self, first: usize) {
        let columns = C * V::WIDTH;
        let each = |weights: &&[f32]| weights.len() == self.tiles.len() * LANES;
        assert!(self.weights.iter().all(each), "a weight for each position");
        // SAFETY: the caller vouches for the instruction set; every slice is `columns` long, and each query
        // has a weight for each position.
        unsafe {
            let mut sums = [[V::splat(0.0); C]; R];
            for r in 0..R {
                let sum = &self.sums[r * self.width + first..][..columns];
                for c in 0..C {
                    sums[r][c] = V::load(&sum[c * V::WIDTH..]);
                }
            }
            for (i, tile) in self.tiles.iter().enumerate() {
                let coming = self.later.get(i + AHEAD).map_or(std::ptr::null(), |it| it.as_ptr());
                for (p, value) in tile.chunks_exact(self.width).enumerate().take(LANES) {
                    let value = &value[first..][..columns];
                    let mut loaded = [V::splat(0.0); C];
                    for c in 0..C {
                        if R <= FEW && (c * V::WIDTH * size_of::<E>()).is_multiple_of(LINE) {
                            let number = p * self.width + first + c * V::WIDTH;
                            prefetch_far(coming.wrapping_add(number).cast());
                        }
                        loaded[c] = E::load::<V>(&value[c * V::WIDTH..]);
                    }
                    for r in 0..R {
                        let weight = V::splat(*self.weights[r].get_unchecked(i * LANES + p));
                        for c in 0..C {
                            sums[r][c] = sums[r][c].add_product(weight, loaded[c]);
                        }
                    }
                }
            }
            for r in 0..R {
                let sum = &mut self.sums[r * self.width + first..][..columns];
                for c in 0..C {
                    sums[r][c].store(&mut sum[c * V::WIDTH..]);
                }
            }
        }
    }
}
