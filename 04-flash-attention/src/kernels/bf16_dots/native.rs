//! The fast mode of BF16 on processors with dot products of two.

use super::sums::{Pair, PairKernel, Sums};
use crate::kernels::Lanes;
use naive_decode::kernels::align_stack;
use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::black_box;

// ANCHOR: again
/// Runs a loop as if no sum were ever subnormal, which would be zero. Nearly always none is, and looking at each takes longer
/// than adding it. A processor makes a note when it adds to a subnormal number: then the loop is run again, with care.
///
/// # Safety
/// AVX-512 is there with its BF16 extension, and all that the kernel points to.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn run<K: PairKernel>(mut kernel: K) {
    align_stack();
    met_subnormal();
    // SAFETY: passed on.
    unsafe { kernel.run::<Swift>() };
    if met_subnormal() {
        // SAFETY: passed on.
        unsafe { kernel.run::<__m512>() };
    }
}
// ANCHOR_END: again

/// Numbers that are rounded together.
const ROUNDED: usize = 32;

/// As [`sums::round_row`](super::sums::round_row), crossed.
///
/// # Safety
/// AVX-512 is there with its extensions for BF16 and bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn round(x: &[f32], by: f32, to: &mut [Pair]) {
    assert!(x.len() == 2 * to.len() && to.len().is_multiple_of(2), "a pair for every two numbers");
    let (whole, rest) = x.as_chunks::<ROUNDED>();
    let (pairs, rest_of_pairs) = to.as_chunks_mut::<{ ROUNDED / 2 }>();
    for (x, to) in whole.iter().zip(pairs) {
        // SAFETY: the caller vouches for the instructions.
        unsafe { round_chunk(x, by, to) };
    }
    if !rest.is_empty() {
        let (mut last, mut pairs) = ([0.0; ROUNDED], [0; ROUNDED / 2]);
        last[..rest.len()].copy_from_slice(rest);
        // SAFETY: as above.
        unsafe { round_chunk(&last, by, &mut pairs) };
        rest_of_pairs.copy_from_slice(&pairs[..rest_of_pairs.len()]);
    }
}

/// # Safety
/// As [`round`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn round_chunk(x: &[f32; ROUNDED], by: f32, to: &mut [Pair; ROUNDED / 2]) {
    // SAFETY: the caller vouches for the instructions; sixteen numbers are read twice, and as many pairs written.
    unsafe {
        let by = _mm512_set1_ps(by);
        let low = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), by);
        let high = _mm512_mul_ps(_mm512_loadu_ps(x[16..].as_ptr()), by);
        let halves = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
        // Of four numbers first 2 and 0, then 3 and 1, as `cross` has them.
        let order = _mm_set_epi64x(0x0b0a_0f0e_0908_0d0c, 0x0302_0706_0100_0504);
        let crossed = _mm512_shuffle_epi8(halves, _mm512_broadcast_i32x4(order));
        _mm512_storeu_si512(to.as_mut_ptr().cast(), crossed);
    }
}

/// Whether this thread has calculated with a subnormal number since this was last asked: the "denormal" flag of MXCSR. Dot
/// products leave it alone, as subnormal numbers are zero to them.
fn met_subnormal() -> bool {
    const DENORMAL: u32 = 1 << 1;
    let mut control = 0u32;
    // SAFETY: four bytes are there; results that were written before have been calculated before.
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut control, options(nostack, preserves_flags)) };
    if control & DENORMAL == 0 {
        return false;
    }
    control &= !DENORMAL;
    // SAFETY: of the flags and settings that were read only a flag has changed, which nobody else looks at.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &control, options(nostack)) };
    true
}

/// `rounds` products of sixteen pairs for each of `CHAINS` sums, all in registers.
///
/// # Safety
/// AVX-512 is there with its BF16 extension.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(in crate::kernels) unsafe fn only_products<const CHAINS: usize>(rounds: usize) {
    // SAFETY: the caller vouches for the instruction, and 64 bytes are there.
    unsafe {
        let pairs = black_box([0x3c; 64]);
        let [weights, _] = __m512::weights(pairs.as_ptr(), pairs.as_ptr());
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
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn weights(one: *const u8, two: *const u8) -> [__m512i; 2] {
        // SAFETY: the trait's condition.
        unsafe {
            let one = _mm512_loadu_si512(one.cast());
            let two = _mm512_loadu_si512(two.cast());
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            // Where `upper` has ones the bits of the first, elsewhere those of the second.
            [
                _mm512_ternarylogic_epi32::<0xe2>(_mm512_slli_epi32::<16>(one), upper, two),
                _mm512_ternarylogic_epi32::<0xe2>(one, upper, _mm512_srli_epi32::<16>(two)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn crossed(at: *const u8) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }
    #[inline(always)]
    unsafe fn plus_products(self, weights: __m512i, x: Pair) -> Self {
        // SAFETY: the trait's condition. Registers of pairs are named otherwise, and are the same registers.
        unsafe {
            let x = _mm512_set1_epi32(x.cast_signed());
            let weights = std::mem::transmute::<__m512i, __m512bh>(weights);
            let x = std::mem::transmute::<__m512i, __m512bh>(x);
            _mm512_dpbf16_ps(self, weights, x)
        }
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let sum = _mm512_add_ps(self, other);
            sum.zero_where(sum, f32::MIN_POSITIVE)
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { _mm512_storeu_ps(to, self) }
    }
}

/// Sums of which none is subnormal before the last.
#[derive(Clone, Copy)]
struct Swift(__m512);

impl Sums for Swift {
    type Weights = __m512i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: here and in all that follows, the trait's condition.
        Swift(unsafe { __m512::zero() })
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the trait's condition.
        Swift(unsafe { <__m512 as Sums>::load(from) })
    }
    #[inline(always)]
    unsafe fn weights(one: *const u8, two: *const u8) -> [__m512i; 2] {
        // SAFETY: the trait's condition.
        unsafe { __m512::weights(one, two) }
    }
    #[inline(always)]
    unsafe fn crossed(at: *const u8) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe { __m512::crossed(at) }
    }
    #[inline(always)]
    unsafe fn plus_products(self, weights: __m512i, x: Pair) -> Self {
        // SAFETY: the trait's condition.
        Swift(unsafe { self.0.plus_products(weights, x) })
    }
    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        Swift(unsafe { _mm512_add_ps(self.0, other.0) })
    }
    /// No sum comes after the last that would note it. (The comparison does, and then the loop is run again for nothing.)
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { Sums::store(self.0.zero_where(self.0, f32::MIN_POSITIVE), to) }
    }
}
