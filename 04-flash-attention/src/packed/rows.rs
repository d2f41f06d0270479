//! Activations, a few rows at a time: as many as a kernel takes together, then four, then one.

use crate::kernels::activations::{GROUP, Group, Scaling, interleave, quantise};
use crate::kernels::float_panels::{self, Float};
use crate::kernels::integer_tiles::{self, Tile};
use crate::kernels::{RowsAt, Simd};
use crate::threads::{Pool, share};
use naive_decode::numerics::LANES;
use std::marker::PhantomData;

/// Rows that a kernel takes together where there are enough registers.
pub(crate) const MANY: usize = 12;

/// And where there are fewer, or fewer rows.
pub(super) const FEW: usize = 4;

// ANCHOR: family
/// A family of kernels: how it wants activations, and what it does with them.
pub(super) trait Family {
    /// A piece of `R` rows of activations.
    type Piece<const R: usize>: Copy + Send + Sync;
    /// Panels that one row alone takes side by side.
    const PANELS: usize;

    /// A piece of nothing.
    fn nothing<const R: usize>() -> Self::Piece<R>;
    /// Pieces of a row of so many inputs.
    fn pieces(inputs: usize) -> usize;
    /// Fills the pieces of `R` rows that lie one after another in `x`.
    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [Self::Piece<R>],
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

    fn nothing<const R: usize>() -> [f32; R] {
        [0.0; R]
    }

    fn pieces(inputs: usize) -> usize {
        inputs
    }

    fn arrange<const R: usize>(
        _simd: Simd,
        _scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [[f32; R]],
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

    fn nothing<const R: usize>() -> Group<R> {
        Group::ZERO
    }

    fn pieces(inputs: usize) -> usize {
        inputs.div_ceil(GROUP)
    }

    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        to: &mut [Group<R>],
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

/// Below this many activations, waking other threads to arrange them costs more than it saves.
const SERIAL: usize = 1 << 14;

/// Rows of activations, arranged in blocks of [`MANY`], of [`FEW`] and of one, in the order of the rows.
pub(super) struct Arranged<K: Family> {
    /// Pieces to a block.
    pub(super) pieces: usize,
    pub(super) many: Vec<K::Piece<MANY>>,
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
        let many = if simd.rows_together() == MANY { rows / MANY } else { 0 };
        let few = (rows - many * MANY) / FEW;
        let (many_x, rest) = x.split_at(many * MANY * inputs);
        let (few_x, ones_x) = rest.split_at(few * FEW * inputs);
        Arranged {
            pieces,
            many: arrange::<K, MANY>(simd, scaling, pool, many_x, inputs),
            few: arrange::<K, FEW>(simd, scaling, pool, few_x, inputs),
            ones: arrange::<K, 1>(simd, scaling, pool, ones_x, inputs),
        }
    }
}

fn arrange<K: Family, const R: usize>(
    simd: Simd,
    scaling: Scaling,
    pool: Option<&Pool>,
    x: &[f32],
    inputs: usize,
) -> Vec<K::Piece<R>> {
    let pieces = K::pieces(inputs);
    let mut blocks = vec![K::nothing::<R>(); x.len() / (R * inputs) * pieces];
    let fill = |first: usize, blocks: &mut [K::Piece<R>]| {
        let x = x[first * R * inputs..].chunks_exact(R * inputs);
        for (block, x) in blocks.chunks_exact_mut(pieces).zip(x) {
            K::arrange::<R>(simd, scaling, x, inputs, block);
        }
    };
    match pool {
        Some(pool) if x.len() >= SERIAL => pool.run_chunks(&mut blocks, pieces, &fill),
        _ => fill(0, &mut blocks),
    }
    blocks
}

/// The panels of thread `thread`, of `outputs` outputs shared out among `threads`.
pub(super) fn panels_of(outputs: usize, threads: usize, thread: usize) -> std::ops::Range<usize> {
    share(outputs.div_ceil(LANES), threads, thread)
}
