//! Families of kernels: which activations they want, and which weights they meet them with.

use crate::kernels::activations::{GROUP, Group, Scaling, interleave, quantise};
use crate::kernels::bf16_dots::{self, PairBlock, round_to_pairs};
use crate::kernels::digits::{self, DigitBlock, to_digits};
use crate::kernels::float_panels::{self, Float};
use crate::kernels::integer_tiles::{self, Tile};
use crate::kernels::{MANY, PanelsAt, Products, RowsAt, Simd, Stretch, TILE_ROWS};
use crate::threads::{ahead, share};
use naive_decode::numerics::LANES;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Copies panels otherwise than they lie.
pub(super) type Cross = fn(Simd, &[u8], &mut Vec<u8>);

// ANCHOR: family
/// A family of kernels: how it wants activations, and what it does with them.
pub(super) trait Family: Send + Sync + 'static {
    /// A piece of `R` rows of activations.
    type Piece<const R: usize>: Copy + Send + Sync;
    /// Whether a row's products of a panel are one chain, or two, in which each waits for the last: where a cache has the
    /// weights, that is what takes the time, and more panels side by side fill the waits.
    const CHAINED: bool;
    /// Most panels that are taken side by side where rows are few and panels come from memory: 1, 2 or 4.
    const BESIDE: usize;
    /// Panels times rows that are taken side by side where panels are near and there are 32 registers of sixteen floats: an
    /// activation that is loaded once then meets several panels.
    const SUMS: usize;
    /// Most rows to a block where panels are near.
    const ROWS_NEAR: usize = MANY;
    /// Most rows to a block where there are sixteen registers of eight floats.
    const ROWS_FEW: usize = 6;

    /// Whether there are tiles for it on some processor.
    const TILED: bool = false;

    /// Rows that are taken together, where panels are near or come from memory.
    fn rows_together(simd: Simd, near: bool) -> usize {
        match simd.rows_together() {
            _ if Self::TILED && simd.has_tiles() => TILE_ROWS,
            MANY if near => Self::ROWS_NEAR,
            MANY => MANY,
            rows => rows.min(Self::ROWS_FEW),
        }
    }

    /// Pieces of a row of so many inputs.
    fn pieces(inputs: usize) -> usize;
    /// Fills pieces of `R` rows that lie one after another in `x`, from piece `first` on.
    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        first: usize,
        to: &mut [MaybeUninit<Self::Piece<R>>],
    );
    /// What copies panels as these instructions want them, if that is not as they lie. For many rows it is worth it.
    fn cross(_simd: Simd) -> Option<Cross> {
        None
    }
    /// The outputs of some neighbouring panels for `R` rows, `P` panels side by side.
    ///
    /// # Safety
    /// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
    unsafe fn multiply<const P: usize, const R: usize>(
        simd: Simd,
        panels: PanelsAt,
        rows: &[Self::Piece<R>],
        to: RowsAt,
    );
    /// All outputs of some panels for all rows of some blocks, each `each` pieces long, in the processor's tiles; false if
    /// there are none for them.
    ///
    /// # Safety
    /// All of `products` has room, which nobody else reads or writes meanwhile, and there are so many panels and rows.
    unsafe fn multiply_in_tiles<const R: usize>(
        _simd: Simd,
        _panels: &[u8],
        _blocks: &[Self::Piece<R>],
        _each: usize,
        _products: Products,
    ) -> bool {
        false
    }
}
// ANCHOR_END: family

/// Weights that are floats.
pub(super) struct Floats<F>(PhantomData<F>);

/// Weights of BF16, and activations rounded to it.
pub(super) struct Pairs;

/// Weights of INT8 with one scale for each output, and activations of two digits.
pub(super) struct Digits;

/// Weights that are small integers.
pub(super) struct Integers<T>(PhantomData<T>);

impl<F: Float + Send + Sync + 'static> Family for Floats<F> {
    type Piece<const R: usize> = [f32; R];
    const CHAINED: bool = true;
    const BESIDE: usize = F::BESIDE;
    const SUMS: usize = 24;

    fn pieces(inputs: usize) -> usize {
        inputs
    }

    fn arrange<const R: usize>(
        simd: Simd,
        _scaling: Scaling,
        x: &[f32],
        inputs: usize,
        first: usize,
        to: &mut [MaybeUninit<[f32; R]>],
    ) {
        interleave(simd, x, inputs, first, to);
    }

    unsafe fn multiply<const P: usize, const R: usize>(
        simd: Simd,
        panels: PanelsAt,
        rows: &[[f32; R]],
        to: RowsAt,
    ) {
        // SAFETY: passed on.
        unsafe { float_panels::multiply::<F, P, R>(simd, panels, rows, to) }
    }
}

impl Family for Pairs {
    type Piece<const R: usize> = PairBlock<R>;
    const CHAINED: bool = true;
    const BESIDE: usize = 1;
    const SUMS: usize = 12;
    const ROWS_NEAR: usize = 6;
    const TILED: bool = true;

    fn pieces(inputs: usize) -> usize {
        inputs.div_ceil(bf16_dots::BLOCK)
    }

    fn arrange<const R: usize>(
        simd: Simd,
        _scaling: Scaling,
        x: &[f32],
        inputs: usize,
        first: usize,
        to: &mut [MaybeUninit<PairBlock<R>>],
    ) {
        round_to_pairs(simd, x, inputs, first, to);
    }

    fn cross(simd: Simd) -> Option<Cross> {
        (!simd.has_tiles()).then_some(bf16_dots::cross_panels as Cross)
    }

    unsafe fn multiply<const P: usize, const R: usize>(
        simd: Simd,
        panels: PanelsAt,
        rows: &[PairBlock<R>],
        to: RowsAt,
    ) {
        // SAFETY: passed on.
        unsafe { bf16_dots::multiply::<P, R>(simd, panels, rows, to) }
    }

    unsafe fn multiply_in_tiles<const R: usize>(
        simd: Simd,
        panels: &[u8],
        blocks: &[PairBlock<R>],
        each: usize,
        products: Products,
    ) -> bool {
        // SAFETY: passed on.
        unsafe { bf16_dots::multiply_in_tiles(simd, panels, blocks, each, products) }
    }
}

impl Family for Digits {
    type Piece<const R: usize> = DigitBlock<R>;
    const CHAINED: bool = false;
    const BESIDE: usize = 1;
    const SUMS: usize = 1;
    const TILED: bool = true;

    fn pieces(inputs: usize) -> usize {
        inputs.div_ceil(digits::BLOCK)
    }

    fn arrange<const R: usize>(
        simd: Simd,
        _scaling: Scaling,
        x: &[f32],
        inputs: usize,
        first: usize,
        to: &mut [MaybeUninit<DigitBlock<R>>],
    ) {
        to_digits(simd, x, inputs, first, to);
    }

    unsafe fn multiply<const P: usize, const R: usize>(
        simd: Simd,
        panels: PanelsAt,
        rows: &[DigitBlock<R>],
        to: RowsAt,
    ) {
        assert_eq!(P, Self::BESIDE, "panels side by side");
        // SAFETY: passed on.
        unsafe { digits::multiply(simd, panels, rows, to) }
    }

    unsafe fn multiply_in_tiles<const R: usize>(
        simd: Simd,
        panels: &[u8],
        blocks: &[DigitBlock<R>],
        each: usize,
        products: Products,
    ) -> bool {
        // SAFETY: passed on.
        unsafe { digits::multiply_in_tiles(simd, panels, blocks, each, products) }
    }
}

impl<T: Tile + Send + Sync + 'static> Family for Integers<T> {
    type Piece<const R: usize> = Group<R>;
    const CHAINED: bool = false;
    /// Memory sends one stretch as fast as two.
    const BESIDE: usize = 1;
    /// Each is two registers, as products are added up as integers first.
    const SUMS: usize = 12;
    const ROWS_NEAR: usize = T::ROWS_NEAR;
    const ROWS_FEW: usize = T::ROWS_FEW;
    const TILED: bool = true;

    fn pieces(inputs: usize) -> usize {
        inputs.div_ceil(GROUP)
    }

    fn arrange<const R: usize>(
        simd: Simd,
        scaling: Scaling,
        x: &[f32],
        inputs: usize,
        first: usize,
        to: &mut [MaybeUninit<Group<R>>],
    ) {
        quantise::<T, R>(simd, scaling, x, inputs, first, to);
    }

    unsafe fn multiply<const P: usize, const R: usize>(
        simd: Simd,
        panels: PanelsAt,
        rows: &[Group<R>],
        to: RowsAt,
    ) {
        let panels = (panels, ahead::stretch());
        // SAFETY: passed on.
        unsafe { integer_tiles::multiply::<T, P, R>(simd, panels, rows, to) }
    }

    unsafe fn multiply_in_tiles<const R: usize>(
        simd: Simd,
        panels: &[u8],
        blocks: &[Group<R>],
        each: usize,
        products: Products,
    ) -> bool {
        let panels = (panels, ahead::stretch as fn() -> Stretch);
        // SAFETY: passed on.
        unsafe { integer_tiles::multiply_in_tiles::<T, R>(simd, panels, blocks, each, products) }
    }
}

/// The panels of thread `thread`, of `outputs` outputs shared out among `threads`.
pub(super) fn panels_of(outputs: usize, threads: usize, thread: usize) -> std::ops::Range<usize> {
    share(outputs.div_ceil(LANES), threads, thread)
}
