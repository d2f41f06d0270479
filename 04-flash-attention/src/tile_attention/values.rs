//! Weights meet values.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::blocks::{Block, on_rows};
use super::element::TileElement;
use naive_decode::Isa;
use naive_decode::kernels::{Kernel, Vector};
use naive_decode::numerics::LANES;

/// Positions whose values all queries take before the next ones are fetched.
const POSITIONS_TOGETHER: usize = 64;

/// Adds to each query's sum `[width]` its weights times the values of consecutive positions, in order
/// of position.
///
/// `values` is `[positions][width]`, and `width` whole registers of any kind. `weights` is
/// `[queries][row]`, of which those from `first` on belong to these positions; `sums` is
/// `[queries][width]`.
pub(super) fn add_values<E: TileElement>(
    isa: Isa,
    blocks: &[Block],
    (weights, row, first): (&[f32], usize, usize),
    values: &[E],
    width: usize,
    sums: &mut [f32],
) {
    for (i, values) in values.chunks(POSITIONS_TOGETHER * width).enumerate() {
        let first = first + i * POSITIONS_TOGETHER;
        let positions = values.len() / width;
        for block in blocks {
            let sums = &mut sums[block.first * width..][..block.rows * width];
            on_rows!(block.rows, |R, W, N| isa.run(AddValues::<E, R, W, N> {
                weights: std::array::from_fn(|r| {
                    &weights[(block.first + r) * row + first..][..positions]
                }),
                values,
                width,
                sums,
            }));
        }
    }
}

/// `R` queries: weights `[R][positions]`, values `[positions][width]`, sums `[R][width]`.
///
/// `WIDE` registers of columns are taken together where registers are wide, `NARROW` elsewhere.
struct AddValues<'a, E, const R: usize, const WIDE: usize, const NARROW: usize> {
    weights: [&'a [f32]; R],
    values: &'a [E],
    width: usize,
    sums: &'a mut [f32],
}

impl<E: TileElement, const R: usize, const WIDE: usize, const NARROW: usize> Kernel
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

impl<E: TileElement, const R: usize, const WIDE: usize, const NARROW: usize>
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
        let positions = self.values.len() / self.width;
        assert!(self.weights.iter().all(|weights| weights.len() == positions), "a weight each");
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
            for (position, value) in self.values.chunks_exact(self.width).enumerate() {
                let value = &value[first..][..columns];
                let mut loaded = [V::splat(0.0); C];
                for c in 0..C {
                    loaded[c] = E::load::<V>(&value[c * V::WIDTH..]);
                }
                for r in 0..R {
                    let weight = V::splat(*self.weights[r].get_unchecked(position));
                    for c in 0..C {
                        sums[r][c] = sums[r][c].add_product(weight, loaded[c]);
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
