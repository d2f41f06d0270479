//! Rows of activations as the inner loops want them: a few rows side by side, `k` by `k`.

use super::integer_tiles::Tile;
use super::lanes::quantised;
use super::{Kernel, Lanes, Simd};
use std::marker::PhantomData;
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

impl<const R: usize> Group<R> {
    /// A group of zeros.
    pub(crate) const ZERO: Self = Group {
        scales: [0.0; R],
        starts: [0; R],
        totals: [0.0; R],
        codes: [[[0; STEP]; GROUP / STEP]; R],
    };
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
    // SAFETY: its fields are slices, and every access to them is checked.
    unsafe { simd.run(Quantise::<T, R> { scaling, x, width, first, groups, tile: PhantomData }) };
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
        let mut shared: [Option<u32>; R] = [None; R];
        if self.scaling == Scaling::Row {
            for (shared, row) in shared.iter_mut().zip(x.chunks_exact(width)) {
                *shared = Some(largest_bits(row));
            }
        }
        let (rows, bias) = ((x, width), T::bias::<V>());
        let whole = match self.scaling {
            Scaling::Group => {
                self.groups.len().min((width / GROUP).saturating_sub(self.first)) / TOGETHER
            }
            Scaling::Row => 0,
        };
        let (together, others) = self.groups.split_at_mut(whole * TOGETHER);
        let mut i = self.first;
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            for to in together.as_chunks_mut().0 {
                quantise_groups::<V, R>(rows, i, bias, to);
                i += TOGETHER;
            }
            for to in others {
                quantise_group::<V, R>(rows, i, &shared, bias, to.write(Group::ZERO));
                i += 1;
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

/// Quantises group `i` of each row, whatever is shared.
///
/// # Safety
/// The instruction set of `V` is there.
#[inline(always)]
unsafe fn quantise_group<V: Lanes, const R: usize>(
    rows: (&[f32], usize),
    i: usize,
    shared: &[Option<u32>; R],
    bias: i32,
    to: &mut Group<R>,
) {
    for (r, x) in rows.0.chunks_exact(rows.1).enumerate() {
        let rest = &x[i * GROUP..];
        let mut last = [0.0; GROUP];
        let x = match rest.first_chunk() {
            Some(x) => x,
            None => {
                last[..rest.len()].copy_from_slice(rest);
                &last
            }
        };
        let codes = to.codes[r].as_flattened_mut().first_chunk_mut();
        let codes = codes.expect("as many as a group has");
        // SAFETY: the caller vouches for the instruction set.
        let (scale, sum) = unsafe {
            let largest = match shared[r] {
                Some(largest) => largest,
                None => V::largest(x),
            };
            quantised::<V>(x, largest, codes)
        };
        to.scales[r] = scale;
        to.starts[r] = sum.wrapping_mul(-bias);
        to.totals[r] = sum as f32 * scale;
    }
}

/// Quantises sixteen groups of each row, from group `i` on.
///
/// # Safety
/// The instruction set of `V` is there.
#[inline(always)]
unsafe fn quantise_groups<V: Lanes, const R: usize>(
    rows: (&[f32], usize),
    i: usize,
    bias: i32,
    to: &mut [MaybeUninit<Group<R>>; TOGETHER],
) {
    let to = to.as_mut_ptr().cast::<Group<R>>();
    for (r, x) in rows.0.chunks_exact(rows.1).enumerate() {
        let x = x[i * GROUP..].as_chunks().0.first_chunk().expect("sixteen groups of a row");
        // SAFETY: the caller vouches for the instruction set, there are sixteen groups, and all of each is written.
        unsafe {
            let codes = (&raw mut (*to).codes[r]).cast();
            let (scales, sums) = V::quantise_groups(x, codes, size_of::<Group<R>>());
            for group in 0..TOGETHER {
                let to = to.add(group);
                (&raw mut (*to).scales[r]).write(scales[group]);
                (&raw mut (*to).starts[r]).write(sums[group].wrapping_mul(-bias));
                (&raw mut (*to).totals[r]).write(sums[group] as f32 * scales[group]);
            }
        }
    }
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
