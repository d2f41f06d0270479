//! Activations, a few rows at a time: as many as a kernel takes together, and what is left over in one block more.

use crate::kernels::activations::{GROUP, Group, Scaling, interleave, quantise};
use crate::kernels::float_panels::{self, Float};
use crate::kernels::integer_tiles::{self, Tile};
use crate::kernels::{RowsAt, Simd};
use crate::threads::{Pool, share};
use naive_decode::numerics::LANES;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Rows that a kernel takes together where there are enough registers.
pub(crate) const MANY: usize = 12;

/// Where fewer rows are left over.
pub(super) const SOME: usize = 8;

/// Where there are fewer registers, or fewer rows still.
pub(crate) const FEW: usize = 4;

// ANCHOR: family
/// A family of kernels: how it wants activations, and what it does with them.
pub(super) trait Family {
    /// A piece of `R` rows of activations.
    type Piece<const R: usize>: Copy + Send + Sync;
    /// Panels that one row alone takes side by side.
    const PANELS: usize;

    /// Pieces of a row of so many inputs.
    fn pieces(inputs: usize) -> usize;
    /// Fills all pieces of `R` rows that lie one after another in `x`.
    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [MaybeUninit<Self::Piece<R>>],
    );
    /// One panel's sixteen outputs for `R` rows.
    ///
    /// # Safety
    /// `to` has room for sixteen floats of each row, which nobody else reads or writes meanwhile.
    unsafe fn multiply<const R: usize>(
        simd: Simd,
        panel: &[u8],
        rows: &[Self::Piece<R>],
        to: RowsAt,
    );
    /// The outputs of [`Family::PANELS`] panels for one row.
    fn multiply_one(simd: Simd, panels: &[u8], row: &[Self::Piece<1>], to: &mut [f32]);
}
// ANCHOR_END: family

/// Weights that are floats.
pub(super) struct Floats<F>(PhantomData<F>);

/// Weights that are small integers.
pub(super) struct Integers<T>(PhantomData<T>);

impl<F: Float> Family for Floats<F> {
    type Piece<const R: usize> = [f32; R];
    const PANELS: usize = 4;

    fn pieces(inputs: usize) -> usize {
        inputs
    }

    fn arrange<const R: usize>(
        _simd: Simd,
        _scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [MaybeUninit<[f32; R]>],
    ) {
        interleave(x, inputs, to);
    }

    unsafe fn multiply<const R: usize>(simd: Simd, panel: &[u8], rows: &[[f32; R]], to: RowsAt) {
        // SAFETY: passed on.
        unsafe { float_panels::multiply::<F, 1, R>(simd, panel, rows, to) }
    }

    fn multiply_one(simd: Simd, panels: &[u8], row: &[[f32; 1]], to: &mut [f32]) {
        assert_eq!(to.len(), Self::PANELS * LANES, "sixteen outputs a panel");
        // SAFETY: there is room, and it is borrowed.
        unsafe { float_panels::multiply::<F, 4, 1>(simd, panels, row, RowsAt::one(to)) }
    }
}

impl<T: Tile> Family for Integers<T> {
    type Piece<const R: usize> = Group<R>;
    const PANELS: usize = 1;

    fn pieces(inputs: usize) -> usize {
        inputs.div_ceil(GROUP)
    }

    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [MaybeUninit<Group<R>>],
    ) {
        quantise::<T, R>(simd, scaling, x, inputs, to);
    }

    unsafe fn multiply<const R: usize>(simd: Simd, panel: &[u8], rows: &[Group<R>], to: RowsAt) {
        // SAFETY: passed on.
        unsafe { integer_tiles::multiply::<T, R>(simd, panel, rows, to) }
    }

    fn multiply_one(simd: Simd, panels: &[u8], row: &[Group<1>], to: &mut [f32]) {
        assert_eq!(to.len(), LANES, "sixteen outputs a panel");
        // SAFETY: there is room, and it is borrowed.
        unsafe { integer_tiles::multiply::<T, 1>(simd, panels, row, RowsAt::one(to)) }
    }
}

/// From this many activations on, threads arrange them together. Fewer are arranged by each thread for itself, which is
/// done sooner than one of them could hand them to the others.
pub(super) const TOGETHER: usize = 1 << 14;

/// How many blocks there are of each size.
///
/// What is left over is one block, with rows of zeros up to its size. Two blocks would take longer: a block of fewer
/// than four rows has too few sums to fill the waits of their chains, so one row beside another block takes as long as
/// four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    many: usize,
    some: usize,
    few: usize,
    ones: usize,
}

impl Blocks {
    fn of(rows: usize, together: usize) -> Self {
        let none = Blocks { many: 0, some: 0, few: 0, ones: 0 };
        if together < MANY {
            return match rows % FEW {
                1 => Blocks { few: rows / FEW, ones: 1, ..none },
                _ => Blocks { few: rows.div_ceil(FEW), ..none },
            };
        }
        let many = rows / MANY;
        match rows % MANY {
            0 => Blocks { many, ..none },
            1 => Blocks { many, ones: 1, ..none },
            2..=FEW => Blocks { many, few: 1, ..none },
            5..=SOME => Blocks { many, some: 1, ..none },
            _ => Blocks { many: many + 1, ..none },
        }
    }
}

/// Rows of activations, arranged in blocks of [`MANY`], [`SOME`], [`FEW`] and of one, in the order of the rows.
pub(super) struct Arranged<K: Family> {
    /// How many rows.
    pub(super) rows: usize,
    /// Pieces to a block.
    pub(super) pieces: usize,
    pub(super) many: Vec<K::Piece<MANY>>,
    pub(super) some: Vec<K::Piece<SOME>>,
    pub(super) few: Vec<K::Piece<FEW>>,
    pub(super) ones: Vec<K::Piece<1>>,
}

impl<K: Family> Arranged<K> {
    /// Arranges rows of `inputs` activations, on all threads of a pool or on this one.
    pub(super) fn new(
        simd: Simd,
        scaling: Scaling,
        pool: Option<&Pool>,
        x: &[f32],
        inputs: usize,
    ) -> Self {
        let (rows, pieces) = (x.len() / inputs, K::pieces(inputs));
        let blocks = Blocks::of(rows, simd.rows_together());
        let (many, x) = x.split_at((blocks.many * MANY).min(rows) * inputs);
        let (some, x) = x.split_at((blocks.some * SOME * inputs).min(x.len()));
        let (few, ones) = x.split_at((blocks.few * FEW * inputs).min(x.len()));
        Arranged {
            rows,
            pieces,
            many: arrange::<K, MANY>(simd, scaling, pool, many, inputs),
            some: arrange::<K, SOME>(simd, scaling, pool, some, inputs),
            few: arrange::<K, FEW>(simd, scaling, pool, few, inputs),
            ones: arrange::<K, 1>(simd, scaling, pool, ones, inputs),
        }
    }
}

/// Blocks of `R` rows, the last of which may be part of one.
fn arrange<K: Family, const R: usize>(
    simd: Simd,
    scaling: Scaling,
    pool: Option<&Pool>,
    x: &[f32],
    inputs: usize,
) -> Vec<K::Piece<R>> {
    let (pieces, block) = (K::pieces(inputs), R * inputs);
    let count = x.len().div_ceil(block) * pieces;
    let mut blocks = Vec::with_capacity(count);
    let fill = |first: usize, blocks: &mut [MaybeUninit<K::Piece<R>>]| {
        for (to, x) in blocks.chunks_exact_mut(pieces).zip(x[first * block..].chunks(block)) {
            match x.len() == block {
                true => K::arrange::<R>(simd, scaling, x, inputs, to),
                false => {
                    let mut whole = x.to_vec();
                    whole.resize(block, 0.0);
                    K::arrange::<R>(simd, scaling, &whole, inputs, to);
                }
            }
        }
    };
    let to = &mut blocks.spare_capacity_mut()[..count];
    match pool {
        Some(pool) => pool.run_chunks(to, pieces, &fill),
        None => fill(0, to),
    }
    // SAFETY: `fill` is called for all blocks, and `arrange` fills all pieces of each.
    unsafe { blocks.set_len(count) };
    blocks
}

/// The panels of thread `thread`, of `outputs` outputs shared out among `threads`.
pub(super) fn panels_of(outputs: usize, threads: usize, thread: usize) -> std::ops::Range<usize> {
    share(outputs.div_ceil(LANES), threads, thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_rows_and_few_zeros() {
        for together in [FEW, MANY] {
            for rows in 0..100 {
                let Blocks { many, some, few, ones } = Blocks::of(rows, together);
                let held = many * MANY + some * SOME + few * FEW + ones;
                assert!((rows..rows + FEW).contains(&held), "{rows} rows: {held}");
                assert!(together == MANY || many + some == 0, "{rows} rows");
            }
        }
    }
}
