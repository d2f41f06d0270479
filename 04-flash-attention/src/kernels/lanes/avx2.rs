//! AVX2: sixteen outputs in two registers.

use super::{Lanes, Meeting};
use crate::kernels::activations::STEP;
use crate::kernels::digits::{BASE, STEPS};
use std::arch::x86_64::*;

/// Two registers of integers.
type Ints = [__m256i; 2];

/// The two registers' bytes at `at`.
///
/// # Safety
/// AVX2 is there, and 64 bytes at `at`.
#[inline(always)]
unsafe fn load(at: *const u8) -> Ints {
    // SAFETY: the caller vouches for both.
    unsafe { [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(32).cast())] }
}

/// The same four bytes for each output.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
unsafe fn four(x: [i8; 4]) -> __m256i {
    let bytes = i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
    // SAFETY: the caller vouches for it.
    unsafe { _mm256_set1_epi32(bytes) }
}

/// Adds products of two bytes each to each sum: unsigned `a`, signed `b`, no two products together
/// past an i16.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
unsafe fn add_dots(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller vouches for it.
    unsafe {
        let pairs = _mm256_maddubs_epi16(a, b);
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// Digits 0 and 2 of each four, and 1 and 3: the lower and the upper bytes of sixteen bits.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
unsafe fn sixteen_bits(digits: __m256i) -> (__m256i, __m256i) {
    // SAFETY: the caller vouches for it.
    unsafe {
        (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(digits)), _mm256_srai_epi16::<8>(digits))
    }
}

impl Lanes for [__m256; 2] {
    const REGISTERS: usize = 2;
    const BIASED: bool = false;
    type Ints = Ints;
    /// Two parts of 16 bits for each output, each of sixteen products: 16 · 15 · 127 is 30,480.
    type NibbleSums = Ints;
    /// Weights, and their sizes without the sign.
    type Bytes = (Ints, Ints);
    type Nibbles = Ints;
    type Numbers = Whole;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: here and in all that follows, the trait's condition: the instructions are there, and
        // so are the bytes.
        unsafe { [_mm256_set1_ps(value); 2] }
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))] }
    }
    #[inline(always)]
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2] {
        // SAFETY: the trait's condition. A bf16 is the upper half of an f32.
        unsafe {
            let (pairs, upper) = (load(at.cast()), _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [
                [
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs[0])),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs[1])),
                ],
                [
                    _mm256_castsi256_ps(_mm256_and_si256(pairs[0], upper)),
                    _mm256_castsi256_ps(_mm256_and_si256(pairs[1], upper)),
                ],
            ]
        }
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(at.add(8).cast())),
            ]
        }
    }
    #[inline(always)]
    unsafe fn from_ints(ints: Ints) -> Self {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_cvtepi32_ps(ints[0]), _mm256_cvtepi32_ps(ints[1])] }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe {
            _mm256_storeu_ps(to, self[0]);
            _mm256_storeu_ps(to.add(8), self[1]);
        }
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_mul_ps(self[0], b[0]), _mm256_mul_ps(self[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], self[0]), _mm256_fmadd_ps(a[1], b[1], self[1])] }
    }
    #[inline(always)]
    unsafe fn zero_where(self, other: Self, least: f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let (sign, least, mut kept) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(least), self);
            for (x, other) in kept.iter_mut().zip(other) {
                let stays = _mm256_cmp_ps::<_CMP_NLT_UQ>(_mm256_andnot_ps(sign, other), least);
                *x = _mm256_and_ps(*x, _mm256_or_ps(stays, sign));
            }
            kept
        }
    }
    #[inline(always)]
    unsafe fn turn(rows: [*const f32; 4], to: *mut f32, stride: usize) {
        // SAFETY: the trait's condition.
        unsafe { turn(rows, to, stride) }
    }
    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_set1_epi32(value); 2] }
    }
    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> (Ints, Ints) {
        // SAFETY: the trait's condition.
        unsafe {
            let (stored, bias) = (load(at), _mm256_set1_epi8(-128));
            let weights = [_mm256_xor_si256(stored[0], bias), _mm256_xor_si256(stored[1], bias)];
            (weights, [_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])])
        }
    }
    #[inline(always)]
    unsafe fn nibbles(at: *const u8) -> (Ints, Ints) {
        // SAFETY: the trait's condition.
        unsafe {
            let (both, low) = (load(at), _mm256_set1_epi8(15));
            let lower = [_mm256_and_si256(both[0], low), _mm256_and_si256(both[1], low)];
            let upper = [
                _mm256_and_si256(_mm256_srli_epi16::<4>(both[0]), low),
                _mm256_and_si256(_mm256_srli_epi16::<4>(both[1]), low),
            ];
            (lower, upper)
        }
    }
    /// `vpmaddubsw` multiplies unsigned by signed, and saturates sums of two at 32,767. So the weight's
    /// sign is moved to the activation; 2 · 128 · 127 is 32,512.
    #[inline(always)]
    unsafe fn dot_bytes(sum: Ints, (weights, sizes): Self::Bytes, x: [i8; 4]) -> Ints {
        // SAFETY: the trait's condition.
        unsafe {
            let x = four(x);
            [
                add_dots(sum[0], sizes[0], _mm256_sign_epi8(x, weights[0])),
                add_dots(sum[1], sizes[1], _mm256_sign_epi8(x, weights[1])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn begin_nibbles(_start: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sums: Ints, weights: Ints, x: [i8; 4]) -> Ints {
        // SAFETY: the trait's condition. 2 · 15 · 127 is far from saturation.
        unsafe {
            let x = four(x);
            [
                _mm256_add_epi16(sums[0], _mm256_maddubs_epi16(weights[0], x)),
                _mm256_add_epi16(sums[1], _mm256_maddubs_epi16(weights[1], x)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: Ints, start: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe {
            let (start, one) = (_mm256_set1_epi32(start), _mm256_set1_epi16(1));
            [
                _mm256_add_epi32(start, _mm256_madd_epi16(sums[0], one)),
                _mm256_add_epi32(start, _mm256_madd_epi16(sums[1], one)),
            ]
        }
    }
}

/// Numbers of fifteen bits meet codes as numbers of sixteen: `vpmaddwd` makes one whole number of 32 bits of two products, so
/// four products take two of them and two additions, where each of two digits takes four instructions ([`Lanes::dot_bytes`]).
///
/// Of each four numbers 0 and 2 lie where the high digits were, 1 and 3 where the low ones were.
pub(crate) struct Whole;

impl Meeting<[__m256; 2]> for Whole {
    type Sums = Ints;
    /// Of each four codes 0 and 2, and 1 and 3.
    type Codes = [Ints; 2];

    #[inline(always)]
    fn bias() -> i32 {
        128
    }

    #[inline(always)]
    unsafe fn arrange([high, low]: [&mut [[i8; STEP]; STEPS]; 2]) {
        let (high, low) = (high.as_flattened_mut(), low.as_flattened_mut());
        for (high, low) in high.as_chunks_mut::<32>().0.iter_mut().zip(low.as_chunks_mut::<32>().0)
        {
            // SAFETY: here and in all that follows, the trait's condition. 32 bytes lie at either place.
            unsafe {
                let (high_evens, high_odds) =
                    sixteen_bits(_mm256_loadu_si256(high.as_ptr().cast()));
                let (low_evens, low_odds) = sixteen_bits(_mm256_loadu_si256(low.as_ptr().cast()));
                let evens = _mm256_add_epi16(_mm256_slli_epi16::<7>(high_evens), low_evens);
                let odds = _mm256_add_epi16(_mm256_slli_epi16::<7>(high_odds), low_odds);
                _mm256_storeu_si256(high.as_mut_ptr().cast(), evens);
                _mm256_storeu_si256(low.as_mut_ptr().cast(), odds);
            }
        }
    }

    #[inline(always)]
    unsafe fn begin([high, low]: [i32; 2]) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { [_mm256_set1_epi32(high.wrapping_mul(BASE).wrapping_add(low)); 2] }
    }

    #[inline(always)]
    unsafe fn codes(at: *const u8) -> [Ints; 2] {
        // SAFETY: the trait's condition.
        unsafe {
            let (stored, lower) = (load(at), _mm256_set1_epi16(255));
            [
                [_mm256_and_si256(stored[0], lower), _mm256_and_si256(stored[1], lower)],
                [_mm256_srli_epi16::<8>(stored[0]), _mm256_srli_epi16::<8>(stored[1])],
            ]
        }
    }

    #[inline(always)]
    unsafe fn add(mut sums: Ints, codes: [Ints; 2], x: [[i8; STEP]; 2]) -> Ints {
        // SAFETY: the trait's condition.
        unsafe {
            for (codes, x) in codes.into_iter().zip(x) {
                let x = four(x);
                sums = [
                    _mm256_add_epi32(sums[0], _mm256_madd_epi16(codes[0], x)),
                    _mm256_add_epi32(sums[1], _mm256_madd_epi16(codes[1], x)),
                ];
            }
            sums
        }
    }

    #[inline(always)]
    unsafe fn end(sums: Ints) -> [__m256; 2] {
        // SAFETY: the trait's condition.
        unsafe { <[__m256; 2]>::from_ints(sums) }
    }
}

/// [`Lanes::turn`] with four floats to a register.
#[inline(always)]
pub(super) unsafe fn turn(rows: [*const f32; 4], to: *mut f32, stride: usize) {
    // SAFETY: the caller vouches for four numbers at each place.
    unsafe {
        let [a, b, c, d] = rows.map(|row| _mm_loadu_ps(row));
        let (ab, cd) = (_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(c, d));
        _mm_storeu_ps(to, _mm_movelh_ps(ab, cd));
        _mm_storeu_ps(to.add(stride), _mm_movehl_ps(cd, ab));
        let (ab, cd) = (_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(c, d));
        _mm_storeu_ps(to.add(2 * stride), _mm_movelh_ps(ab, cd));
        _mm_storeu_ps(to.add(3 * stride), _mm_movehl_ps(cd, ab));
    }
}
