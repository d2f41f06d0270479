//! Sums of products of BF16 numbers, two at a time.

#[cfg(target_arch = "x86_64")]
use super::native;
use crate::kernels::{Kernel, Lanes, Simd};
use naive_decode::numerics::to_bf16;

/// Two numbers of BF16, the first in the lower half.
pub(crate) type Pair = u32;

/// A loop over sums of pairs, to be compiled for every instruction set.
pub(crate) trait PairKernel {
    /// As [`Kernel::SUMS`].
    const SUMS: usize = 1;

    /// The loop; implementations are `#[inline(always)]`. It may be run again, with the same result.
    ///
    /// # Safety
    /// The instructions of `S` must be present, and whatever the kernel's fields point to valid and as large as they say.
    unsafe fn run<S: Sums>(&mut self);
}

/// Runs a loop with these instructions, AMX's aside. Its pairs are crossed ([`round_row`]).
///
/// # Safety
/// Whatever the kernel's fields point to is valid, as in [`PairKernel::run`].
pub(crate) unsafe fn run<K: PairKernel>(simd: Simd, kernel: K) {
    #[cfg(target_arch = "x86_64")]
    if simd.has_bf16_instructions() {
        // SAFETY: the instructions are there, and the caller vouches for the kernel.
        unsafe { native::run(kernel) };
        return;
    }
    // SAFETY: the caller vouches for the kernel.
    unsafe { simd.run(Stepwise(kernel)) };
}

struct Stepwise<K>(K);

impl<K: PairKernel> Kernel for Stepwise<K> {
    const SUMS: usize = K::SUMS;
    const OF_BYTES: bool = false;

    #[inline(always)]
    unsafe fn run<V: Lanes>(mut self) {
        // SAFETY: passed on.
        unsafe { self.0.run::<InSteps<V>>() }
    }
}

/// Rounds `x` times `by` to pairs, crossed if they are for dot products and not for tiles.
///
/// # Panics
/// If there is not a pair for every two numbers, or their number is none of fours.
#[inline(always)]
pub(crate) fn round_row(x: &[f32], by: f32, crossed: bool, to: &mut [Pair]) {
    assert!(x.len() == 2 * to.len() && to.len().is_multiple_of(2), "a pair for every two numbers");
    for (to, [first, second]) in to.iter_mut().zip(x.as_chunks::<2>().0) {
        *to = half(*first * by) | half(*second * by) << 16;
    }
    if crossed {
        for pairs in to.as_chunks_mut().0 {
            *pairs = cross(*pairs);
        }
    }
}

/// Rounds numbers times `by` to pairs as these instructions want them: crossed, unless there are tiles.
///
/// # Panics
/// As [`round_row`].
pub(crate) fn round(simd: Simd, x: &[f32], by: f32, to: &mut [Pair]) {
    #[cfg(target_arch = "x86_64")]
    if simd.has_bf16_instructions() && !simd.has_tiles() {
        // SAFETY: the instructions are there.
        unsafe { native::round(x, by, to) };
        return;
    }
    // SAFETY: its fields are slices, and every access to them is checked.
    unsafe { simd.run(Round { x, by, crossed: !simd.has_tiles(), to }) };
}

struct Round<'a> {
    x: &'a [f32],
    by: f32,
    crossed: bool,
    to: &'a mut [Pair],
}

impl Kernel for Round<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        round_row(self.x, self.by, self.crossed, self.to);
    }
}

/// Inputs 0 and 1, and 2 and 3: the even ones, and the odd ones, each time the later one first.
#[inline(always)]
pub(super) fn cross([one, two]: [Pair; 2]) -> [Pair; 2] {
    [one << 16 | two & 0xffff, one & 0xffff_0000 | two >> 16]
}

/// The bits of the nearest BF16; of a subnormal number, zero of the same sign.
#[inline(always)]
fn half(x: f32) -> u32 {
    let bits = u32::from(to_bf16(x).to_bits());
    if x.is_subnormal() { bits & 0x8000 } else { bits }
}

/// Sums of products, one for each of sixteen outputs.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait Sums: Copy {
    /// Two weights for each output.
    type Weights: Copy;

    unsafe fn zero() -> Self;
    /// Reads sixteen sums.
    unsafe fn load(from: *const f32) -> Self;
    /// The weights of four inputs, of two that lie at `one` and of two at `two`: those of the even ones, and of the odd
    /// ones, as [`cross`] has them.
    unsafe fn weights(one: *const u8, two: *const u8) -> [Self::Weights; 2];
    /// Two weights for each output, which lie at `at` and are crossed already.
    unsafe fn crossed(at: *const u8) -> Self::Weights;
    /// Adds two products to each sum, the second first.
    unsafe fn plus_products(self, weights: Self::Weights, x: Pair) -> Self;
    /// Adds a sum to each.
    unsafe fn plus(self, other: Self) -> Self;
    /// Writes sixteen sums.
    unsafe fn store(self, to: *mut f32);
}

/// The instructions in the steps they consist of.
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
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's condition.
        InSteps(unsafe { V::from_f32(from) })
    }
    #[inline(always)]
    unsafe fn weights(one: *const u8, two: *const u8) -> [[V; 2]; 2] {
        // SAFETY: the trait's condition.
        unsafe {
            let ([a, b], [c, d]) = (pairs::<V>(one), pairs::<V>(two));
            [[c, a], [d, b]]
        }
    }
    #[inline(always)]
    unsafe fn crossed(at: *const u8) -> [V; 2] {
        // SAFETY: the trait's condition.
        unsafe { pairs(at) }
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
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the trait's condition. Small sums are exact, so what is small is so before rounding, too.
        unsafe {
            let sum = self.0.plus_product(other.0, V::splat(1.0));
            InSteps(sum.zero_where(sum, f32::MIN_POSITIVE))
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { self.0.store(to) }
    }
}

/// Sixteen pairs, the firsts and the seconds; subnormal numbers are zero.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn pairs<V: Lanes>(at: *const u8) -> [V; 2] {
    let least = f32::MIN_POSITIVE;
    // SAFETY: passed on.
    unsafe {
        let [a, b] = V::from_bf16_pairs(at.cast());
        [a.zero_where(a, least), b.zero_where(b, least)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_rounds_alike() {
        let least = f32::MIN_POSITIVE;
        let mut x: Vec<f32> =
            (0..100).map(|i| (i as f32 * 0.37).sin() * 2f32.powi(i - 50)).collect();
        x[3..7].copy_from_slice(&[least, -least.next_down(), least / 3.0, -0.0]);
        x[40..44].copy_from_slice(&[f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1.0 + 1.0 / 256.0]);
        x[97..].copy_from_slice(&[-1.0 - 3.0 / 256.0, 0.0, f32::from_bits(1)]);
        for simd in Simd::available() {
            for (length, by) in [(0, 1.0), (4, 1.0), (32, 1.5), (60, 0.3), (100, 1.0), (100, 0.5)] {
                let (mut found, mut expected) = (vec![7; length / 2], vec![0; length / 2]);
                round(simd, &x[..length], by, &mut found);
                round_row(&x[..length], by, !simd.has_tiles(), &mut expected);
                assert_eq!(found, expected, "{simd:?}: {length} numbers times {by}");
            }
            let mut pairs = [0; 2];
            round(simd, &[1.0, f32::NAN, -f32::NAN, f32::INFINITY], 0.0, &mut pairs);
            let numbers = pairs.iter().flat_map(|pair| [pair & 0xffff, pair >> 16]);
            let nan = numbers.filter(|half| half & 0x7f80 == 0x7f80 && half & 0x7f != 0).count();
            assert_eq!(nan, 3, "{simd:?}: {pairs:x?}");
        }
    }
}
