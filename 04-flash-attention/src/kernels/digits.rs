//! INT8 with one scale for each output, and activations of fifteen bits in two digits.
//!
//! A row of activations has one scale, too, and sixteen thousand steps of it on either side of zero. Each is
//! `128 · high + low`, two small integers, so that instructions for bytes multiply it in two goes. Nothing is rounded before
//! all inputs are added: a row's two sums of products are integers, and an output is
//! `(128 · high + low) · (scale · scale)`, rounded after the conversion of each sum, the multiply-add and each product.
//!
//! A panel is tiles of 64 inputs, `[16 steps][16 outputs][4 inputs]` of bytes that are 128 more than the weight, the last
//! filled up, and then sixteen scales of 32 bits. Tiles of AMX have the same layout.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

pub(crate) mod rows;
#[cfg(target_arch = "x86_64")]
pub(super) mod tiles;

use super::activations::{STEP, largest_bits};
use super::float_panels::OUTPUTS;
use super::integer_tiles::{Bytes, Tile};
use super::lanes::{ROUNDING, scale_and_inverse};
use super::{Kernel, Lanes, PanelsAt, Products, RowsAt, Simd, prefetch_distance, prefetch_far};
use naive_decode::numerics::LANES;
use std::mem::MaybeUninit;

/// Inputs of a tile.
pub(crate) const BLOCK: usize = 64;

/// Steps of a tile.
pub(super) const STEPS: usize = BLOCK / STEP;

/// Bytes of one step of sixteen outputs.
const STEP_BYTES: usize = OUTPUTS * STEP;

/// Bytes of a tile.
const TILE: usize = BLOCK * OUTPUTS;

/// Bytes of a panel's scales.
const SCALES: usize = OUTPUTS * size_of::<f32>();

/// How many low digits there are: what a high one counts.
pub(super) const BASE: i32 = 128;

/// Most inputs of a row: so many products of a digit and a weight are a whole number of 32 bits. Each is at most `128 · 128`
/// in size: weights may be stored as -128, and high digits of what is no number are any byte.
pub(crate) const MOST_INPUTS: usize = 131_000;
const _: () = assert!(MOST_INPUTS * 128 * 128 <= i32::MAX as usize);

/// The largest activation of a row in size, in steps: 127 of the high digit, and as much of the low one as rounds down.
const MOST: f32 = 16_319.0;

/// Bytes of a panel.
pub(crate) const fn panel_bytes(inputs: usize) -> usize {
    scales_at(inputs) + SCALES
}

/// Where a panel's scales begin.
pub(crate) const fn scales_at(inputs: usize) -> usize {
    inputs.div_ceil(BLOCK) * TILE
}

/// Where a panel has a weight.
pub(crate) const fn byte_at(input: usize, output: usize) -> usize {
    input / STEP * STEP_BYTES + output * STEP + input % STEP
}

/// High and low digits of 64 numbers of each of `R` rows: `[high, low][row][step][input]`.
type Digits<const R: usize> = [[[[i8; STEP]; STEPS]; R]; 2];

/// A block of `R` rows of activations.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct DigitBlock<const R: usize> {
    digits: Digits<R>,
    /// What each row's sums of this block begin with: it takes off what weights are stored too large by.
    starts: [[i32; R]; 2],
    /// Each row's scale, the same in all its blocks.
    scales: [f32; R],
}

/// What the sums of a row of blocks begin with.
#[inline(always)]
fn starts<const R: usize>(blocks: &[DigitBlock<R>]) -> [[i32; R]; 2] {
    let mut sums = [[0i32; R]; 2];
    for block in blocks {
        for (sums, starts) in sums.iter_mut().zip(&block.starts) {
            sums.iter_mut().zip(starts).for_each(|(sum, start)| *sum = sum.wrapping_add(*start));
        }
    }
    sums
}

/// Quantises `R` rows of `width` activations, which lie one after another in `x`, to blocks, from block `first` on. What is
/// past the width is zero.
///
/// An activation that is not finite makes its row's scale, and so all its outputs, not finite.
///
/// # Panics
/// If `x` or `blocks` does not fit `width`.
pub(crate) fn to_digits<const R: usize>(
    simd: Simd,
    x: &[f32],
    width: usize,
    first: usize,
    blocks: &mut [MaybeUninit<DigitBlock<R>>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + blocks.len() <= width.div_ceil(BLOCK), "blocks of a row");
    if blocks.is_empty() {
        return;
    }
    for (r, x) in x.chunks_exact(width).enumerate() {
        let to = BlockRow::of(blocks, r);
        // SAFETY: nobody else writes to the blocks meanwhile, and every access to the slice is checked.
        unsafe { simd.run(ToDigits { x, first, to }) };
    }
}

/// Where the parts of one row are in blocks of `R` rows, whatever `R` is: a kernel for each would be the same kernel.
struct BlockRow {
    /// Of high and of low digits.
    digits: [*mut [[i8; STEP]; STEPS]; 2],
    starts: [*mut i32; 2],
    scale: *mut f32,
    /// Bytes from each of them to that of the next block.
    stride: usize,
    blocks: usize,
}

impl BlockRow {
    /// Of row `r` in some blocks, of which there is one.
    fn of<const R: usize>(blocks: &mut [MaybeUninit<DigitBlock<R>>], r: usize) -> Self {
        let (to, stride) =
            (blocks.as_mut_ptr().cast::<DigitBlock<R>>(), size_of::<DigitBlock<R>>());
        // SAFETY: places in the first block, which is there; all others are in the same slice.
        unsafe {
            let digits = [&raw mut (*to).digits[0][r], &raw mut (*to).digits[1][r]];
            let starts = [&raw mut (*to).starts[0][r], &raw mut (*to).starts[1][r]];
            let scale = &raw mut (*to).scales[r];
            BlockRow { digits, starts, scale, stride, blocks: blocks.len() }
        }
    }
}

/// One row of blocks.
struct ToDigits<'a> {
    x: &'a [f32],
    first: usize,
    to: BlockRow,
}

impl Kernel for ToDigits<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let largest = f32::from_bits(largest_bits(self.x));
        let (scale, inverse) = scale_and_inverse(largest, MOST);
        let (to, bias) = (self.to, Bytes::bias(V::BIASED));
        for block in 0..to.blocks {
            let x = &self.x[(self.first + block) * BLOCK..];
            let (mut high, mut low) = ([[0; STEP]; STEPS], [[0; STEP]; STEPS]);
            let sums = digits_of_some(x, inverse, [&mut high, &mut low]);
            let at = block * to.stride;
            // SAFETY: as many bytes on are the same parts of a later block; the caller vouches for the blocks.
            unsafe {
                to.digits[0].byte_add(at).write(high);
                to.digits[1].byte_add(at).write(low);
                for digit in 0..2 {
                    to.starts[digit].byte_add(at).write(start(&sums[digit], bias));
                }
                to.scale.byte_add(at).write(scale);
            }
        }
    }
}

// ANCHOR: digits
/// Numbers times `by`, rounded to integers, ties to even, as high and low digits. Gives the digits' sums, once lanes are added.
#[inline(always)]
fn digits(
    x: &[f32; BLOCK],
    by: f32,
    [high, low]: [&mut [[i8; STEP]; STEPS]; 2],
) -> [[i32; LANES]; 2] {
    let [high, low] = [high, low].map(|digits| digits.as_flattened_mut().as_chunks_mut().0);
    let mut sums = [[0i32; LANES]; 2];
    for ((x, high), low) in x.as_chunks::<LANES>().0.iter().zip(high).zip(low) {
        let (mut tops, mut rest) = ([0; LANES], [0; LANES]);
        for i in 0..LANES {
            // Adding 1.5 · 2^23 leaves no bits for a fraction: the sum is rounded to an integer, which stands in its lowest
            // bits. Of what is no number they are anything, as its scale is none either.
            let rounded = (x[i] * by + ROUNDING).to_bits() as i32;
            let steps = rounded.wrapping_sub(ROUNDING.to_bits() as i32);
            tops[i] = (steps.wrapping_add(BASE / 2)) >> BASE.ilog2();
            rest[i] = steps.wrapping_sub(tops[i] << BASE.ilog2());
            // High digits of what is no number are not bytes yet: their sum may be more than 32 bits hold.
            sums[0][i] = sums[0][i].wrapping_add(tops[i]);
            sums[1][i] = sums[1][i].wrapping_add(rest[i]);
        }
        // Not in the loop above: what is written here might be what is read there, for all that a compiler knows.
        (*high, *low) = (tops.map(|digit| digit as i8), rest.map(|digit| digit as i8));
    }
    sums
}
// ANCHOR_END: digits

/// As [`digits`] of the first 64 numbers, or of what there is of them and zeros.
#[inline(always)]
fn digits_of_some(x: &[f32], by: f32, to: [&mut [[i8; STEP]; STEPS]; 2]) -> [[i32; LANES]; 2] {
    match x.first_chunk() {
        Some(x) => digits(x, by, to),
        None => {
            let mut last = [0.0; BLOCK];
            last[..x.len()].copy_from_slice(x);
            digits(&last, by, to)
        }
    }
}

/// What a sum of products begins with for digits of these sums and weights that are stored `bias` too large.
#[inline(always)]
fn start(sums: &[i32; LANES], bias: i32) -> i32 {
    sums.iter().fold(0i32, |all, sum| all.wrapping_add(*sum)).wrapping_mul(-bias)
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels: one panel after another, as two digits are
/// chains enough for memory to be slower.
///
/// # Panics
/// If `panels` is not a number of panels of as many blocks.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<const R: usize>(
    simd: Simd,
    panels: PanelsAt,
    blocks: &[DigitBlock<R>],
    to: RowsAt,
) {
    let (PanelsAt { bytes, near, .. }, panel_bytes) = (panels, panel_bytes(blocks.len() * BLOCK));
    assert!(bytes.len().is_multiple_of(panel_bytes), "a tile for each block");
    let (count, panels) = (bytes.len() / panel_bytes, bytes.as_ptr());
    // SAFETY: the panels are as long as was checked, and the caller vouches for `to`.
    unsafe { simd.run(Multiply { panels, near, count, blocks, to }) };
}

struct Multiply<'a, const R: usize> {
    panels: *const u8,
    near: bool,
    count: usize,
    blocks: &'a [DigitBlock<R>],
    to: RowsAt,
}

impl<const R: usize> Kernel for Multiply<'_, R> {
    const SUMS: usize = R;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let (starts, distance) = (starts(self.blocks), prefetch_distance(R == 1));
        let mut at = self.panels;
        for panel in 0..self.count {
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                let mut sums = [[V::splat_int(0); R]; 2];
                for digit in 0..2 {
                    for r in 0..R {
                        sums[digit][r] = V::splat_int(starts[digit][r]);
                    }
                }
                for x in self.blocks {
                    for step in 0..STEPS {
                        if !self.near {
                            prefetch_far(at.wrapping_add(distance));
                        }
                        let weights = V::bytes(at);
                        for digit in 0..2 {
                            for r in 0..R {
                                let x = x.digits[digit][r][step];
                                sums[digit][r] = V::dot_bytes(sums[digit][r], weights, x);
                            }
                        }
                        at = at.add(STEP_BYTES);
                    }
                }
                let scales = V::from_f32(at.cast());
                for r in 0..R {
                    let (high, low) = (V::from_ints(sums[0][r]), V::from_ints(sums[1][r]));
                    let sum = low.plus_product(high, V::splat(BASE as f32));
                    let both = scales.times(V::splat(self.blocks[0].scales[r]));
                    sum.times(both).store(self.to.row(r).add(panel * OUTPUTS));
                }
                at = at.add(SCALES);
            }
        }
    }
}

/// Rows from which on tiles are faster than instructions for one row at a time, of which there are two for each row.
#[cfg(target_arch = "x86_64")]
const ENOUGH_FOR_TILES: usize = 8;

/// The same in tiles, of all blocks of `R` rows, each row `each` blocks of inputs long; false if there are no tiles, or too
/// few rows for them.
///
/// # Panics
/// If `panels` is not a number of panels of `each` blocks.
///
/// # Safety
/// All of `products` has room, which nobody else reads or writes meanwhile, and there are so many panels and rows.
pub(crate) unsafe fn multiply_in_tiles<const R: usize>(
    simd: Simd,
    panels: &[u8],
    blocks: &[DigitBlock<R>],
    each: usize,
    products: Products,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if simd.has_tiles() && R >= ENOUGH_FOR_TILES {
        assert!(panels.len().is_multiple_of(panel_bytes(each * BLOCK)), "a tile for each block");
        // SAFETY: tiles are there, the length was checked, and the caller vouches for `products`.
        unsafe { tiles::multiply(simd, panels, blocks, each, products) };
        return true;
    }
    let _ = (simd, panels, blocks, each, products);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of<const R: usize>(simd: Simd, x: &[f32], first: usize) -> Vec<DigitBlock<R>> {
        let width = x.len() / R;
        let mut blocks = vec![MaybeUninit::uninit(); width.div_ceil(BLOCK) - first];
        to_digits(simd, x, width, first, &mut blocks);
        // SAFETY: `to_digits` fills all blocks.
        blocks.into_iter().map(|block| unsafe { block.assume_init() }).collect()
    }

    #[test]
    fn digits_are_the_nearest_steps_of_a_row() {
        for simd in Simd::available() {
            let width = 150;
            let x: Vec<f32> =
                (0..3 * width).map(|i| ((i * 37 % 301) as f32 - 150.0).sin()).collect();
            for first in 0..3 {
                let blocks = blocks_of::<3>(simd, &x, first);
                for (r, row) in x.chunks(width).enumerate() {
                    let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
                    for (i, block) in (first..).zip(&blocks) {
                        assert_eq!(block.scales[r], largest * (1.0 / MOST), "{simd:?}: row {r}");
                        let digit = |digit: usize, k: usize| {
                            i32::from(block.digits[digit][r][k / STEP][k % STEP])
                        };
                        for k in 0..BLOCK {
                            let x = row.get(i * BLOCK + k).copied().unwrap_or(0.0);
                            let steps = (x * (MOST / largest)).round_ties_even() as i32;
                            let (high, low) = (digit(0, k), digit(1, k));
                            assert_eq!(BASE * high + low, steps, "{simd:?}: row {r}, input {k}");
                            assert!(high.abs() <= 127 && (-64..64).contains(&low), "{high}, {low}");
                        }
                        for digits in 0..2 {
                            let sum: i32 = (0..BLOCK).map(|k| digit(digits, k)).sum();
                            let start = block.starts[digits][r];
                            assert!([0, -128 * sum].contains(&start), "{simd:?}: row {r}: {start}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_not_finite_or_next_to_nothing_have_scales_that_say_so() {
        for simd in Simd::available() {
            for (x, zero) in [(f32::NAN, false), (f32::INFINITY, false), (1e-31, true), (0.0, true)]
            {
                let block = &blocks_of::<2>(simd, &[1.0, x, x, x], 0)[0];
                assert_eq!(block.scales[1] == 0.0, zero, "{simd:?}: {x}");
                assert_eq!(block.scales[1].is_nan(), !zero, "{simd:?}: {x}");
                assert!(!zero || block.digits[0][1] == [[0; STEP]; STEPS], "{simd:?}: {x}");
            }
        }
    }

    #[test]
    #[should_panic = "blocks of a row"]
    fn blocks_past_a_row_are_refused() {
        let mut blocks = vec![MaybeUninit::<DigitBlock<2>>::uninit(); 2];
        to_digits(Simd::available()[0], &[0.0; 140], 70, 1, &mut blocks);
    }
}
