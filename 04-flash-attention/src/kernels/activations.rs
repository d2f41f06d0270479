//! Rows of activations as the inner loops want them: a few rows side by side, `k` by `k`.

use super::integer_tiles::Tile;
use super::lanes::quantised;
use super::{Kernel, Lanes, Simd};
use std::mem::MaybeUninit;

/// Inputs that share a scale, in weights and in activations.
pub(crate) const GROUP: usize = 32;

/// Inputs that one integer instruction takes of each output.
pub(crate) const STEP: usize = 4;

/// Groups of a row that are quantised together.
const TOGETHER: usize = 16;

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
    if groups.is_empty() {
        return;
    }
    for (r, x) in x.chunks_exact(width).enumerate() {
        let to = Row::of(groups, r);
        // SAFETY: nobody else writes to the groups meanwhile, and every access to the slice is checked.
        unsafe { simd.run(Quantise { scaling, x, first, to, bias: T::bias }) };
    }
}

/// Where the parts of one row are in groups of `R` rows, whatever `R` is: a kernel for each would be the same kernel.
struct Row {
    scale: *mut f32,
    start: *mut i32,
    total: *mut f32,
    codes: *mut [i8; GROUP],
    /// Bytes from each of them to that of the next group.
    stride: usize,
    groups: usize,
}

impl Row {
    /// Of row `r` in some groups, of which there is one.
    fn of<const R: usize>(groups: &mut [MaybeUninit<Group<R>>], r: usize) -> Self {
        let (to, stride) = (groups.as_mut_ptr().cast::<Group<R>>(), size_of::<Group<R>>());
        // SAFETY: places in the first group, which is there; all others are in the same slice.
        unsafe {
            let (scale, start) = (&raw mut (*to).scales[r], &raw mut (*to).starts[r]);
            let (total, codes) = (&raw mut (*to).totals[r], (&raw mut (*to).codes[r]).cast());
            Row { scale, start, total, codes, stride, groups: groups.len() }
        }
    }

    /// Writes what the `N` groups from group `first` on have besides their codes, which add up to `sums`.
    ///
    /// # Safety
    /// There are such groups, and nobody else writes to them.
    #[inline(always)]
    unsafe fn write<const N: usize>(
        &self,
        first: usize,
        scales: [f32; N],
        sums: [i32; N],
        bias: i32,
    ) {
        let (mut starts, mut totals) = ([0; N], [0.0; N]);
        for i in 0..N {
            starts[i] = sums[i].wrapping_mul(-bias);
            totals[i] = sums[i] as f32 * scales[i];
        }
        let mut at = first * self.stride;
        for i in 0..N {
            // SAFETY: as many bytes on are the same parts of a later group.
            unsafe {
                self.scale.byte_add(at).write(scales[i]);
                self.start.byte_add(at).write(starts[i]);
                self.total.byte_add(at).write(totals[i]);
            }
            at += self.stride;
        }
    }
}

/// One row of groups.
struct Quantise<'a> {
    scaling: Scaling,
    x: &'a [f32],
    first: usize,
    to: Row,
    /// [`Tile::bias`]
    bias: fn(bool) -> i32,
}

impl Kernel for Quantise<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let (x, to, bias) = (&self.x[self.first * GROUP..], self.to, (self.bias)(V::BIASED));
        let (whole, last) = x.as_chunks::<GROUP>();
        let shared = (self.scaling == Scaling::Row).then(|| largest_bits(self.x));
        let together = match shared {
            None => whole.len().min(to.groups) / TOGETHER * TOGETHER,
            Some(_) => 0,
        };
        // SAFETY: the caller vouches for the instruction set and the groups, all of which are written.
        unsafe {
            for (some, x) in whole[..together].as_chunks::<TOGETHER>().0.iter().enumerate() {
                let first = some * TOGETHER;
                let codes = to.codes.byte_add(first * to.stride);
                let (scales, sums) = V::quantise_groups(x, codes, to.stride);
                to.write(first, scales, sums, bias);
            }
            for group in together..to.groups {
                let mut filled_up = [0.0; GROUP];
                let x = match whole.get(group) {
                    Some(x) => x,
                    None => {
                        filled_up[..last.len()].copy_from_slice(last);
                        &filled_up
                    }
                };
                let mut codes = [0; GROUP];
                let largest = match shared {
                    Some(largest) => largest,
                    None => V::largest(x),
                };
                let (scale, sum) = quantised::<V>(x, largest, &mut codes);
                to.codes.byte_add(group * to.stride).write(codes);
                to.write(group, [scale], [sum], bias);
            }
        }
    }
}

/// Bits of the largest number of a row, in size: they are in the order of sizes. As signed ones, of which every instruction
/// set finds the largest of many at a time.
#[inline(always)]
pub(crate) fn largest_bits(row: &[f32]) -> u32 {
    let size = |x: &f32| (x.to_bits() & 0x7fff_ffff) as i32;
    row.iter().map(size).fold(0, i32::max) as u32
}

/// Arranges `R` rows of `width` activations, which lie one after another in `x`, as `[k][R]`, from column `first` on.
///
/// # Panics
/// If `x` or `columns` does not fit `width`.
pub(crate) fn interleave<const R: usize>(
    simd: Simd,
    x: &[f32],
    width: usize,
    first: usize,
    columns: &mut [MaybeUninit<[f32; R]>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + columns.len() <= width, "columns of a row");
    // Four rows at a time as far as there are four, and four columns.
    let (rows, turned) = (R / 4 * 4, columns.len() / 4 * 4);
    if rows > 0 {
        let columns = columns.as_chunks_mut().0;
        // SAFETY: its columns are in fours of `R` numbers each, and slices are checked.
        unsafe { simd.run(Turn { x: &x[first..], width, columns }) };
    }
    for (r, row) in x.chunks_exact(width).enumerate() {
        let done = if r < rows { turned } else { 0 };
        for (column, &x) in columns[done..].iter_mut().zip(&row[first + done..]) {
            // SAFETY: a column has room for `R`, and there are `R` rows.
            unsafe { column.as_mut_ptr().cast::<f32>().add(r).write(x) };
        }
    }
}

/// Turns four of `R` rows, as far as there are four columns.
struct Turn<'a, const R: usize> {
    /// The rows, one after another, from the first column on.
    x: &'a [f32],
    width: usize,
    columns: &'a mut [[MaybeUninit<[f32; R]>; 4]],
}

impl<const R: usize> Kernel for Turn<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        for r in (0..R / 4 * 4).step_by(4) {
            let row = |i: usize| self.x[(r + i) * self.width..].as_chunks::<4>().0;
            let rows = row(0).iter().zip(row(1)).zip(row(2)).zip(row(3));
            for (columns, (((a, b), c), d)) in self.columns.iter_mut().zip(rows) {
                let rows = [a.as_ptr(), b.as_ptr(), c.as_ptr(), d.as_ptr()].map(<*const f32>::cast);
                // SAFETY: four numbers of each row, four columns of `R`, and the caller vouches for the instructions.
                unsafe { V::turn(rows, columns.as_mut_ptr().cast::<f32>().add(r), R) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::integer_tiles::Nibbles;
    use std::ops::Range;

    fn check<const R: usize>(simd: Simd, width: usize, Range { start, end }: Range<usize>) {
        let x: Vec<f32> = (0..R * width).map(|i| i as f32).collect();
        let mut columns = vec![MaybeUninit::uninit(); end - start];
        interleave(simd, &x, width, start, &mut columns);
        for (i, column) in (start..).zip(columns) {
            // SAFETY: `interleave` fills all columns.
            let column: [f32; R] = unsafe { column.assume_init() };
            let expected: [f32; R] = std::array::from_fn(|r| x[r * width + i]);
            assert_eq!(column, expected, "{R} rows, column {i} of {width} from {start} on");
        }
    }

    #[test]
    fn rows_become_columns_whatever_their_number() {
        for simd in Simd::available() {
            for (width, columns) in [
                (1, 0..1),
                (3, 0..3),
                (37, 0..37),
                (37, 5..37),
                (37, 6..20),
                (64, 61..64),
                (8, 8..8),
            ] {
                check::<1>(simd, width, columns.clone());
                check::<3>(simd, width, columns.clone());
                check::<4>(simd, width, columns.clone());
                check::<6>(simd, width, columns.clone());
                check::<8>(simd, width, columns.clone());
                check::<12>(simd, width, columns);
            }
        }
    }

    /// Sixteen together are what each is alone, whatever instructions there are.
    #[test]
    fn groups_are_quantised_alike_alone_and_together() {
        const WIDTH: usize = 1100;
        let mut x: Vec<f32> =
            (0..3 * WIDTH).map(|i| ((i * 37 % 101) as f32 - 50.0).powi(3)).collect();
        for (i, number) in [(40, f32::INFINITY), (70, -f32::NAN), (1200, 3e38), (1300, -1e-31)] {
            x[i / GROUP * GROUP..][..GROUP].fill(number / 2.0);
            x[i] = number;
        }
        x[2240..2304].fill(0.0);
        let quantised = |simd, groups: Range<usize>| -> Vec<Group<3>> {
            let mut to = vec![MaybeUninit::uninit(); groups.len()];
            quantise::<Nibbles, 3>(simd, Scaling::Group, &x, WIDTH, groups.start, &mut to);
            // SAFETY: `quantise` fills all groups.
            to.into_iter().map(|group| unsafe { group.assume_init() }).collect()
        };
        for simd in Simd::available() {
            for groups in [0..35, 0..32, 2..35, 3..19, 34..35, 35..35] {
                let together = quantised(simd, groups.clone());
                for (i, together) in groups.zip(together) {
                    let [alone] =
                        quantised(Simd::available()[0], i..i + 1).try_into().ok().unwrap();
                    for r in 0..3 {
                        let what = format!("{simd:?}: row {r}, group {i}");
                        let bits = |group: &Group<3>| (group.scales[r].to_bits(), group.codes[r]);
                        if alone.scales[r].is_nan() {
                            assert!(together.scales[r].is_nan(), "{what}");
                            continue;
                        }
                        assert_eq!(bits(&together), bits(&alone), "{what}");
                        assert_eq!(together.starts[r], alone.starts[r], "{what}");
                        let totals = [together.totals[r], alone.totals[r]].map(f32::to_bits);
                        assert_eq!(totals[0], totals[1], "{what}");
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic = "columns of a row"]
    fn columns_past_a_row_are_refused() {
        let mut columns = vec![MaybeUninit::<[f32; 2]>::uninit(); 4];
        interleave(Simd::available()[0], &[0.0; 16], 8, 5, &mut columns);
    }
}
