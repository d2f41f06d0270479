//! Rows of activations as the inner loops want them: a few rows side by side, `k` by `k`.

use super::integer_tiles::Tile;
use super::{Kernel, Lanes, Simd};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Inputs that share a scale, in weights and in activations.
pub(crate) const GROUP: usize = 32;

/// Inputs that one integer instruction takes of each output.
pub(crate) const STEP: usize = 4;

/// One group of `R` rows of activations, quantised: an activation is `code · scale`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Group<const R: usize> {
    /// A scale for each row: its largest activation of the group, in size, is 127.
    pub(super) scales: [f32; R],
    /// What each row's sum of products begins with: it takes off what weights are stored too large by.
    pub(super) starts: [i32; R],
    /// Sum of each row's quantised activations: what a smallest weight, common to all, is multiplied by.
    pub(super) totals: [f32; R],
    /// `[row][step][input]`
    pub(super) codes: [[[i8; STEP]; GROUP / STEP]; R],
}

impl<const R: usize> Group<R> {
    /// A group of zeros.
    pub(crate) const ZERO: Self = Group {
        scales: [0.0; R],
        starts: [0; R],
        totals: [0.0; R],
        codes: [[[0; STEP]; GROUP / STEP]; R],
    };
}

/// Activations smaller than this, all of a group, count as zero: below it the reciprocal of their
/// scale is not a finite number.
const SMALLEST: f32 = 1e-30;

/// Which activations share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scaling {
    /// Those of a group of 32.
    Group,
    /// All of a row, as in LLM.int8().
    Row,
}

/// Quantises `R` rows of `width` activations each, which lie one after another in `x`, to `groups`, one for each 32
/// inputs begun, from group `first` on, to meet weights in tiles `T`. What is past the width is zero.
///
/// An activation that is not finite makes its group's scale, and so all its row's outputs, not finite.
///
/// # Panics
/// If `x` or `groups` does not fit `width`.
pub(crate) fn quantise<T: Tile, const R: usize>(
    simd: Simd,
    scaling: Scaling,
    x: &[f32],
    width: usize,
    first: usize,
    groups: &mut [MaybeUninit<Group<R>>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + groups.len() <= width.div_ceil(GROUP), "groups of a row");
    simd.run(Quantise::<T, R> { scaling, x, width, first, groups, tile: PhantomData });
}

struct Quantise<'a, T, const R: usize> {
    scaling: Scaling,
    x: &'a [f32],
    width: usize,
    first: usize,
    groups: &'a mut [MaybeUninit<Group<R>>],
    tile: PhantomData<T>,
}

impl<T: Tile, const R: usize> Kernel for Quantise<'_, T, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let (x, width) = (self.x, self.width);
        let row = |r: usize| &x[r * width..][..width];
        let shared: [Option<u32>; R] = match self.scaling {
            Scaling::Group => [None; R],
            Scaling::Row => std::array::from_fn(|r| Some(largest_bits(row(r)))),
        };
        for (i, to) in (self.first..).zip(self.groups) {
            let group = to.write(Group::ZERO);
            for (r, &shared) in shared.iter().enumerate() {
                let rest = &row(r)[i * GROUP..];
                let mut last = [0.0; GROUP];
                let x = rest.first_chunk().unwrap_or_else(|| {
                    last[..rest.len()].copy_from_slice(rest);
                    &last
                });
                // SAFETY: the caller vouches for the instruction set.
                unsafe { quantise_group::<V, R>(group, r, x, shared, T::bias::<V>()) };
            }
        }
    }
}

/// Bits of the largest activation of a row, in size.
fn largest_bits(row: &[f32]) -> u32 {
    row.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff))
}

// ANCHOR: quantise
/// # Safety
/// The instruction set of `V` is there.
#[inline(always)]
unsafe fn quantise_group<V: Lanes, const R: usize>(
    group: &mut Group<R>,
    r: usize,
    x: &[f32; GROUP],
    shared: Option<u32>,
    bias: i32,
) {
    // SAFETY: the caller vouches for the instruction set.
    let largest = f32::from_bits(shared.unwrap_or_else(|| unsafe { V::largest(x) }));
    let (scale, inverse) = match largest {
        ..SMALLEST => (0.0, 0.0),
        largest if largest.is_finite() => (largest * (1.0 / 127.0), 127.0 / largest),
        _ => (f32::NAN, 0.0),
    };
    let codes =
        group.codes[r].as_flattened_mut().first_chunk_mut().expect("as many as a group has");
    // SAFETY: as above.
    let sum = unsafe { V::round(x, inverse, codes) };
    group.scales[r] = scale;
    group.starts[r] = sum.wrapping_mul(-bias);
    group.totals[r] = sum as f32 * scale;
}
// ANCHOR_END: quantise

/// Arranges `R` rows of `width` activations, which lie one after another in `x`, as `[k][R]`, from column `first` on.
///
/// # Panics
/// If `x` or `columns` does not fit `width`.
pub(crate) fn interleave<const R: usize>(
    x: &[f32],
    width: usize,
    first: usize,
    columns: &mut [MaybeUninit<[f32; R]>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + columns.len() <= width, "columns of a row");
    for (r, row) in x.chunks_exact(width).enumerate() {
        for (column, &x) in columns.iter_mut().zip(&row[first..]) {
            // SAFETY: a column is `R` floats, and there are `R` rows.
            unsafe { column.as_mut_ptr().cast::<f32>().add(r).write(x) };
        }
    }
}
