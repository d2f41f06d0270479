//! The fast mode of BF16: weights `[k / 2][16 outputs][2]`, activations rounded to BF16, and products added two at a
//! time.
//!
//! The order is that of AVX-512's `vdpbf16ps`: of each pair, the second product is added first. Each is added by a
//! multiply-add that is rounded once, and what is then smaller than 2^-126 is zero. Processors without the instruction
//! do the same in the steps it consists of, which gives the same bits, and takes longer than the exact mode.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

#[cfg(target_arch = "x86_64")]
pub(super) mod native;

use super::activations::interleave;
use super::float_panels::{Brain, Float, OUTPUTS};
use super::{Kernel, Lanes, PREFETCH, RowsAt, Simd, prefetch};
use naive_decode::numerics::to_bf16;
use std::mem::MaybeUninit;

/// Two neighbouring activations of a row, rounded: the first in the lower half.
pub(crate) type Pair = u32;

/// Pairs that are rounded together, a row at a time.
const CHUNK: usize = 64;

/// Arranges `R` rows of `width` activations, which lie one after another in `x`, as `[k / 2][R]` pairs, from pair `first`
/// on. Of an odd width, the last pair's second is zero.
///
/// # Panics
/// If `x` or `columns` does not fit `width`.
pub(crate) fn round_to_pairs<const R: usize>(
    simd: Simd,
    x: &[f32],
    width: usize,
    first: usize,
    columns: &mut [MaybeUninit<[Pair; R]>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + columns.len() <= width.div_ceil(2), "pairs of a row");
    let mut pairs = [[0; CHUNK]; R];
    for (i, columns) in columns.chunks_mut(CHUNK).enumerate() {
        for (x, pairs) in x.chunks_exact(width).zip(&mut pairs) {
            let x = &x[2 * (first + i * CHUNK)..];
            simd.run(Round { x: &x[..x.len().min(2 * columns.len())], pairs });
        }
        interleave(simd, pairs.as_flattened(), CHUNK, 0, columns);
    }
}

struct Round<'a> {
    x: &'a [f32],
    pairs: &'a mut [Pair; CHUNK],
}

impl Kernel for Round<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let (pairs, last) = self.x.as_chunks::<2>();
        for (to, [first, second]) in self.pairs.iter_mut().zip(pairs) {
            *to = half(*first) | half(*second) << 16;
        }
        if let [x] = last {
            self.pairs[pairs.len()] = half(*x);
        }
    }
}

/// The bits of the nearest BF16; of one that is subnormal, zero of the same sign.
#[inline(always)]
fn half(x: f32) -> u32 {
    let bits = u32::from(to_bf16(x).to_bits());
    if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `P` at a time. `columns` is the rows'
/// activations as [`round_to_pairs`] has them.
///
/// # Panics
/// If `panels` is not a number of times `P` panels of as many pairs of inputs as there are columns.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<const P: usize, const R: usize>(
    simd: Simd,
    panels: &[u8],
    columns: &[[Pair; R]],
    to: RowsAt,
) {
    let beside = P * Brain::panel_bytes(2 * columns.len());
    assert!(panels.len().is_multiple_of(beside), "a pair of weights for each pair of activations");
    let multiply =
        Multiply::<P, R> { panels: panels.as_ptr(), count: panels.len() / beside, columns, to };
    #[cfg(target_arch = "x86_64")]
    if simd.has_bf16_dots() {
        // SAFETY: the instruction is there, the length was checked, and the caller vouches for `to`.
        unsafe { native::run(multiply) };
        return;
    }
    simd.run(multiply);
}

/// Sums of products, one for each of sixteen outputs.
///
/// # Safety
/// As [`Lanes`].
trait Sums: Copy {
    /// A pair of weights for each output.
    type Weights: Copy;

    unsafe fn zero() -> Self;
    /// Sixteen pairs.
    unsafe fn weights(at: *const u8) -> Self::Weights;
    /// Adds two products to each sum.
    unsafe fn plus_products(self, weights: Self::Weights, x: Pair) -> Self;
    /// Writes sixteen sums.
    unsafe fn store(self, to: *mut f32);
}

/// The instruction in the steps it consists of.
#[derive(Clone, Copy)]
struct InSteps<V>(V);

impl<V: Lanes> Sums for InSteps<V> {
    type Weights = [V; 2];

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: here and in all that follows, the trait's condition.
        InSteps(unsafe { V::splat(0.0) })
    }
    #[inline(always)]
    unsafe fn weights(at: *const u8) -> [V; 2] {
        // SAFETY: the trait's condition.
        unsafe {
            let [first, second] = V::from_bf16_pairs(at.cast());
            let least = f32::MIN_POSITIVE;
            [first.zero_where(first, least), second.zero_where(second, least)]
        }
    }
    // ANCHOR: in_steps
    #[inline(always)]
    unsafe fn plus_products(self, weights: [V; 2], x: Pair) -> Self {
        let x = [x << 16, x & 0xffff_0000].map(f32::from_bits);
        // SAFETY: the trait's condition.
        unsafe {
            let sum = plus_product(self.0, weights[1], x[1]);
            InSteps(plus_product(sum, weights[0], x[0]))
        }
    }
    // ANCHOR_END: in_steps
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { self.0.store(to) }
    }
}

/// `sum + weights · x`, rounded once; what is then smaller than 2^-126 is zero of the same sign.
///
/// "Then" is after a rounding to 24 bits. Below 2^-126 a multiply-add of floats keeps fewer of them, and may round up
/// to 2^-126 what should be zero. Of numbers 2^64 times as large it keeps them all.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn plus_product<V: Lanes>(sum: V, weights: V, x: f32) -> V {
    const SCALE: f32 = (1u128 << 64) as f32;
    // SAFETY: passed on. What is too large when scaled is infinite or no number, and so not small.
    unsafe {
        let exact = sum.times(V::splat(SCALE)).plus_product(V::splat(x * SCALE), weights);
        let sum = sum.plus_product(V::splat(x), weights);
        sum.zero_where(exact, f32::MIN_POSITIVE * SCALE)
    }
}

struct Multiply<'a, const P: usize, const R: usize> {
    panels: *const u8,
    /// So many times `P` panels.
    count: usize,
    columns: &'a [[Pair; R]],
    to: RowsAt,
}

impl<const P: usize, const R: usize> Kernel for Multiply<'_, P, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: passed on.
        unsafe { self.sum::<InSteps<V>>() }
    }
}

impl<const P: usize, const R: usize> Multiply<'_, P, R> {
    /// # Safety
    /// As [`Kernel::run`].
    #[inline(always)]
    unsafe fn sum<S: Sums>(self) {
        let panel_bytes = Brain::panel_bytes(2 * self.columns.len());
        for group in 0..self.count {
            let panels = self.panels.wrapping_add(group * P * panel_bytes);
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                let mut sums = [[S::zero(); R]; P];
                for (i, x) in self.columns.iter().enumerate() {
                    for p in 0..P {
                        // A pair of inputs is a cache line.
                        let at = panels.add(p * panel_bytes + i * OUTPUTS * size_of::<Pair>());
                        prefetch(at.wrapping_add(PREFETCH));
                        let weights = S::weights(at);
                        for r in 0..R {
                            sums[p][r] = sums[p][r].plus_products(weights, x[r]);
                        }
                    }
                }
                for p in 0..P {
                    for r in 0..R {
                        sums[p][r].store(self.to.row(r).add((group * P + p) * OUTPUTS));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn check<const R: usize>(simd: Simd, width: usize, Range { start, end }: Range<usize>) {
        let x: Vec<f32> = (0..R * width).map(|i| 1.0 / (1 + i) as f32).collect();
        let mut columns = vec![MaybeUninit::uninit(); end - start];
        round_to_pairs(simd, &x, width, start, &mut columns);
        for (i, column) in (start..).zip(columns) {
            // SAFETY: `round_to_pairs` fills all columns.
            let column: [Pair; R] = unsafe { column.assume_init() };
            for (r, pair) in column.into_iter().enumerate() {
                let rounded = |k: usize| match k < width {
                    true => u32::from(to_bf16(x[r * width + k]).to_bits()),
                    false => 0,
                };
                let expected = rounded(2 * i) | rounded(2 * i + 1) << 16;
                assert_eq!(pair, expected, "row {r} of {R}, pair {i} of {width} from {start} on");
            }
        }
    }

    #[test]
    fn rows_become_pairs_wherever_one_begins() {
        for simd in Simd::available() {
            for (width, pairs) in [
                (1, 0..1),
                (2, 0..1),
                (75, 0..38),
                (75, 5..38),
                (75, 37..38),
                (600, 0..300),
                (601, 64..301),
                (601, 63..200),
                (8, 4..4),
            ] {
                check::<1>(simd, width, pairs.clone());
                check::<3>(simd, width, pairs.clone());
                check::<4>(simd, width, pairs.clone());
                check::<12>(simd, width, pairs);
            }
        }
    }

    #[test]
    #[should_panic = "pairs of a row"]
    fn pairs_past_a_row_are_refused() {
        let mut columns = vec![MaybeUninit::<[Pair; 2]>::uninit(); 3];
        round_to_pairs(Simd::available()[0], &[0.0; 14], 7, 2, &mut columns);
    }
}
