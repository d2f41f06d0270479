//! Rows of activations as the inner loops want them: a few rows side by side, `k` by `k`.

use super::{Kernel, Lanes, Simd};

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
    /// Sum of each row's codes.
    pub(super) sums: [i32; R],
    /// Sum of each row's quantised activations: what a smallest weight, common to all, is multiplied by.
    pub(super) totals: [f32; R],
    /// `[step][row][input]`
    pub(super) codes: [[[i8; STEP]; R]; GROUP / STEP],
}

impl<const R: usize> Group<R> {
    /// A group of zeros.
    pub(crate) const ZERO: Self = Group {
        scales: [0.0; R],
        sums: [0; R],
        totals: [0.0; R],
        codes: [[[0; STEP]; R]; GROUP / STEP],
    };
}

/// Activations smaller than this, all of a group, count as zero: below it the reciprocal of their
/// scale is not a finite number.
const SMALLEST: f32 = 1e-30;

/// Quantises `R` rows of `width` activations each, which lie one after another in `x`, to `groups`,
/// one for each 32 inputs begun. What is past the width is zero.
///
/// An activation that is not finite makes its group's scale, and so all its row's outputs, not finite.
///
/// # Panics
/// If `x` or `groups` does not fit `width`.
pub(crate) fn quantise<const R: usize>(
    simd: Simd,
    x: &[f32],
    width: usize,
    groups: &mut [Group<R>],
) {
    assert_eq!((x.len(), groups.len()), (R * width, width.div_ceil(GROUP)), "rows and groups");
    simd.run(Quantise { x, width, groups });
}

struct Quantise<'a, const R: usize> {
    x: &'a [f32],
    width: usize,
    groups: &'a mut [Group<R>],
}

impl<const R: usize> Kernel for Quantise<'_, R> {
    /// Plain loops over 32 numbers, which the compiler turns into the instruction set's own.
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        for (r, row) in self.x.chunks_exact(self.width).enumerate() {
            let (whole, rest) = row.as_chunks::<GROUP>();
            let (groups, last) = self.groups.split_at_mut(whole.len());
            for (group, x) in groups.iter_mut().zip(whole) {
                quantise_group(group, r, x);
            }
            if let [last] = last {
                let mut x = [0.0; GROUP];
                x[..rest.len()].copy_from_slice(rest);
                quantise_group(last, r, &x);
            }
        }
    }
}

#[inline(always)]
fn quantise_group<const R: usize>(group: &mut Group<R>, r: usize, x: &[f32; GROUP]) {
    // Sizes compared as bits, where an infinity is above every number and a NaN above infinity.
    let mut largest = [0u32; GROUP / 2];
    for (i, largest) in largest.iter_mut().enumerate() {
        let (a, b) = (x[i].to_bits() & 0x7fff_ffff, x[i + GROUP / 2].to_bits() & 0x7fff_ffff);
        *largest = a.max(b);
    }
    let largest = largest.iter().fold(0, |largest, &size| size.max(largest));
    let largest = f32::from_bits(largest);
    let is_nothing = largest < SMALLEST;
    let scale = if is_nothing { 0.0 } else { largest / 127.0 };
    let inverse = if is_nothing { 0.0 } else { 127.0 / largest };
    // Adding 1.5 · 2^23 leaves no bits for a fraction: the sum is rounded to an integer, ties to even,
    // which stands in its lowest bits.
    const MAGIC: f32 = 12_582_912.0;
    let mut codes = [0i32; GROUP];
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32;
    }
    let sum = codes.iter().fold(0i32, |sum, code| sum.wrapping_add(*code));
    group.scales[r] = scale;
    group.sums[r] = sum;
    group.totals[r] = sum as f32 * scale;
    let (steps, _) = codes.as_chunks::<STEP>();
    for (codes, step) in group.codes.iter_mut().zip(steps) {
        codes[r] = [step[0] as i8, step[1] as i8, step[2] as i8, step[3] as i8];
    }
}

/// Arranges `R` rows of `width` activations, which lie one after another in `x`, as `[k][R]`.
///
/// # Panics
/// If `x` or `columns` does not fit `width`.
pub(crate) fn interleave<const R: usize>(x: &[f32], width: usize, columns: &mut [[f32; R]]) {
    assert_eq!((x.len(), columns.len()), (R * width, width), "rows and columns");
    for (r, row) in x.chunks_exact(width).enumerate() {
        columns.iter_mut().zip(row).for_each(|(column, &x)| column[r] = x);
    }
}
