//! The fast mode of BF16: weights `[k / 2][16 outputs][2]`, activations rounded to BF16, and products added two at a
//! time.
//!
//! The order is that of AVX-512's `vdpbf16ps`: of each pair, the second product is added first, each in a
//! multiply-add that is rounded once, and what is smaller than 2^-126 counts as zero. Processors without the instruction
//! do the same in the steps it consists of, which gives the same bits, and takes longer than the exact mode.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

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
    for (i, columns) in columns.chunks_mut(CHUNK).enumerate() {
        let mut pairs = [[0; CHUNK]; R];
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

/// The bits of the nearest BF16; zero of the same sign for those that an f32 of full precision would not be.
#[inline(always)]
fn half(x: f32) -> u32 {
    let bits = u32::from(to_bf16(x).to_bits());
    if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `P` at a time. `columns` is the rows'
/// activations as [`round_to_pairs`] has them.
///
/// # Panics
/// If `panels` is not a number of times `P` panels of as many inputs as there are columns of two.
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
    assert!(panels.len().is_multiple_of(beside), "two weights for each pair");
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
            [first.without_subnormals(), second.without_subnormals()]
        }
    }
    #[inline(always)]
    unsafe fn plus_products(self, [first, second]: [V; 2], x: Pair) -> Self {
        let (x, y) = (f32::from_bits(x << 16), f32::from_bits(x & 0xffff_0000));
        // SAFETY: the trait's condition.
        unsafe {
            let sum = self.0.plus_product(V::splat(y), second).without_subnormals();
            InSteps(sum.plus_product(V::splat(x), first).without_subnormals())
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { self.0.store(to) }
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

#[cfg(target_arch = "x86_64")]
pub(super) mod native {
    use super::{Multiply, Pair, Sums};
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// # Safety
    /// AVX-512 is there with its BF16 extension, and all that [`Multiply`] points to.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) unsafe fn run<const P: usize, const R: usize>(multiply: Multiply<P, R>) {
        // SAFETY: passed on.
        unsafe { multiply.sum::<__m512>() }
    }

    /// `rounds` products of sixteen pairs for each of `CHAINS` sums, all in registers.
    ///
    /// # Safety
    /// AVX-512 is there with its BF16 extension.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(in super::super) unsafe fn only_products<const CHAINS: usize>(rounds: usize) {
        // SAFETY: the caller vouches for the instruction, and 64 bytes are there.
        unsafe {
            let weights = __m512::weights(black_box([0x3c; 64]).as_ptr());
            let x = black_box(0x3c3c_3c3c);
            let mut sums = [__m512::zero(); CHAINS];
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = sum.plus_products(weights, x);
                }
            }
            black_box(sums);
        }
    }

    impl Sums for __m512 {
        type Weights = __m512i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: here and in all that follows, the trait's condition.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn weights(at: *const u8) -> __m512i {
            // SAFETY: the trait's condition.
            unsafe { _mm512_loadu_si512(at.cast()) }
        }
        #[inline(always)]
        unsafe fn plus_products(self, weights: __m512i, x: Pair) -> Self {
            // SAFETY: the trait's condition. Registers of pairs are named otherwise, and are the same registers.
            unsafe {
                let x = _mm512_set1_epi32(x.cast_signed());
                let [weights, x] =
                    [weights, x].map(|x| std::mem::transmute::<__m512i, __m512bh>(x));
                _mm512_dpbf16_ps(self, weights, x)
            }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the trait's condition.
            unsafe { _mm512_storeu_ps(to, self) }
        }
    }
}
