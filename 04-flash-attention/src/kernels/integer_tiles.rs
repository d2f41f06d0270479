//! Weights that are small integers, sixteen outputs by 32 inputs to a tile.
//!
//! For each group of 32 inputs an output's weights share a scale, and so do a row's activations. Their
//! products are integers and are added exactly. Then the group's sum is a float, times both scales, and
//! groups are added in ascending order by one multiply-add each: `y = sum · (d · s) + y`.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::activations::{GROUP, Group, STEP};
use super::{Kernel, Lanes, PREFETCH_FAR, RowsAt, Simd, prefetch_far};

/// Outputs in a tile.
const OUTPUTS: usize = 16;

/// How sixteen outputs by 32 inputs are stored.
///
/// # Safety
/// [`Tile::dots`] reads at most [`Tile::BYTES`] bytes, and its scales lie within them.
pub(crate) unsafe trait Tile {
    /// Bytes of a tile.
    const BYTES: usize;
    /// Where its sixteen scales begin, of 16 bits each.
    const SCALES: usize;
    /// Where its sixteen smallest weights begin, of 16 bits each, if codes count from those.
    const SMALLEST: Option<usize> = None;

    /// How much more than the weight's code [`Tile::dots`] multiplies by.
    fn bias<V: Lanes>() -> i32;

    /// Each row's start and sum of `weight code · activation code`, for each output.
    ///
    /// # Safety
    /// A tile's bytes lie at `tile`, and the instructions of `V` are there.
    unsafe fn dots<V: Lanes, const R: usize>(tile: *const u8, x: &Group<R>) -> [V::Ints; R];
}

/// Codes from -128 to 127, each stored as a byte 128 more: `[8 steps][16 outputs][4 inputs]`.
pub(crate) struct Bytes;

// SAFETY: eight times 64 bytes are read, and the scales follow.
unsafe impl Tile for Bytes {
    const BYTES: usize = GROUP * OUTPUTS + 2 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS;

    #[inline(always)]
    fn bias<V: Lanes>() -> i32 {
        if V::BIASED { 128 } else { 0 }
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const R: usize>(tile: *const u8, x: &Group<R>) -> [V::Ints; R] {
        // SAFETY: the caller vouches for the tile and the instructions.
        unsafe {
            let mut sums = [V::splat_int(0); R];
            for r in 0..R {
                sums[r] = V::splat_int(x.starts[r]);
            }
            for step in 0..GROUP / STEP {
                let weights = V::bytes(tile.add(step * OUTPUTS * STEP));
                for r in 0..R {
                    sums[r] = V::dot_bytes(sums[r], weights, x.codes[r][step]);
                }
            }
            sums
        }
    }
}

/// Codes from 0 to 15, two in a byte: `[4][16 outputs][4 inputs]`, where register `i` has step `i` in
/// the lower halves of its bytes and step `i + 4` in the upper. What is stored is 8 more than the code
/// means.
pub(crate) struct Nibbles;

/// As [`Nibbles`], counted from a smallest weight instead.
pub(crate) struct NibblesAbove;

#[inline(always)]
unsafe fn nibble_dots<V: Lanes, const R: usize>(tile: *const u8, x: &Group<R>) -> [V::Ints; R] {
    const HALF: usize = GROUP / STEP / 2;
    // SAFETY: the caller vouches for the tile and the instructions.
    unsafe {
        let mut sums = [V::splat_int(0); R];
        for r in 0..R {
            sums[r] = V::splat_int(x.starts[r]);
        }
        for step in 0..HALF {
            let (lower, upper) = V::nibbles(tile.add(step * OUTPUTS * STEP));
            for r in 0..R {
                sums[r] = V::dot_nibbles(sums[r], lower, x.codes[r][step]);
                sums[r] = V::dot_nibbles(sums[r], upper, x.codes[r][step + HALF]);
            }
        }
        sums
    }
}

// SAFETY: four times 64 bytes are read, and the scales follow.
unsafe impl Tile for Nibbles {
    const BYTES: usize = GROUP * OUTPUTS / 2 + 2 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS / 2;

    #[inline(always)]
    fn bias<V: Lanes>() -> i32 {
        8
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const R: usize>(tile: *const u8, x: &Group<R>) -> [V::Ints; R] {
        // SAFETY: passed on.
        unsafe { nibble_dots::<V, R>(tile, x) }
    }
}

// SAFETY: as above, and the smallest weights follow the scales.
unsafe impl Tile for NibblesAbove {
    const BYTES: usize = GROUP * OUTPUTS / 2 + 4 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS / 2;
    const SMALLEST: Option<usize> = Some(GROUP * OUTPUTS / 2 + 2 * OUTPUTS);

    #[inline(always)]
    fn bias<V: Lanes>() -> i32 {
        0
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const R: usize>(tile: *const u8, x: &Group<R>) -> [V::Ints; R] {
        // SAFETY: passed on.
        unsafe { nibble_dots::<V, R>(tile, x) }
    }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `groups.len()` tiles long: one panel after
/// another, as a group's dot products are chains enough.
///
/// # Panics
/// If `panels` is not a number of times `groups.len()` tiles.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<T: Tile, const R: usize>(
    simd: Simd,
    panels: &[u8],
    groups: &[Group<R>],
    to: RowsAt,
) {
    let panel_bytes = groups.len() * T::BYTES;
    assert!(panels.len().is_multiple_of(panel_bytes), "a tile for each group");
    simd.run(Multiply::<T, R> {
        panels: panels.as_ptr(),
        count: panels.len() / panel_bytes,
        groups,
        to,
        tile: std::marker::PhantomData,
    });
}

struct Multiply<'a, T, const R: usize> {
    panels: *const u8,
    count: usize,
    groups: &'a [Group<R>],
    to: RowsAt,
    tile: std::marker::PhantomData<T>,
}

impl<T: Tile, const R: usize> Kernel for Multiply<'_, T, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let mut tile = self.panels;
        for panel in 0..self.count {
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                // ANCHOR: groups
                let mut sums = [V::splat(0.0); R];
                for x in self.groups {
                    for offset in 0..T::BYTES.div_ceil(64) {
                        prefetch_far(tile.wrapping_add(PREFETCH_FAR + 64 * offset));
                    }
                    let dots = T::dots::<V, R>(tile, x);
                    let scales = V::from_f16(tile.add(T::SCALES).cast());
                    for r in 0..R {
                        let both = scales.times(V::splat(x.scales[r]));
                        sums[r] = sums[r].plus_product(V::from_ints(dots[r]), both);
                    }
                    if let Some(at) = T::SMALLEST {
                        let smallest = V::from_f16(tile.add(at).cast());
                        for r in 0..R {
                            sums[r] = sums[r].plus_product(smallest, V::splat(x.totals[r]));
                        }
                    }
                    tile = tile.add(T::BYTES);
                }
                // ANCHOR_END: groups
                for r in 0..R {
                    sums[r].store(self.to.row(r).add(panel * OUTPUTS));
                }
            }
        }
    }
}
