//! How AVX2 multiplies bytes: by itself, or with the dot products of four that came with AVX-VNNI.

use super::super::{DigitByDigit, Lanes, Meeting};
use super::{Avx2, Ints, four, load};
use crate::kernels::activations::STEP;
use crate::kernels::digits::{BASE, STEPS};
use std::arch::x86_64::*;

/// What [`Lanes`] asks for where bytes are multiplied, of two registers and four activations that are the same for all
/// outputs.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait ByteDots: Sized {
    /// [`Lanes::BIASED`]
    const BIASED: bool;
    /// [`Lanes::Bytes`]
    type Bytes: Copy;
    /// [`Lanes::Numbers`]
    type Numbers: Meeting<Avx2<Self>>;

    /// [`Lanes::bytes`], of those that were loaded.
    unsafe fn bytes(stored: Ints) -> Self::Bytes;
    /// [`Lanes::dot_bytes`]
    unsafe fn dot_bytes(sum: Ints, weights: Self::Bytes, x: __m256i) -> Ints;
    /// [`Lanes::begin_nibbles`]
    unsafe fn begin_nibbles(start: i32) -> Ints;
    /// [`Lanes::dot_nibbles`]
    unsafe fn dot_nibbles(sums: Ints, weights: Ints, x: __m256i) -> Ints;
    /// [`Lanes::end_nibbles`]
    unsafe fn end_nibbles(sums: Ints, start: i32) -> Ints;
}

/// With AVX2 alone, whose `vpmaddubsw` adds two products to sixteen bits.
///
/// It multiplies unsigned by signed, and saturates at 32,767. So a weight's sign is moved to the activation: 2 · 128 · 127 is
/// 32,512. Products of nibbles are added in sixteen bits, in two parts for each output, each of sixteen products: 16 · 15 · 127
/// is 30,480.
pub(crate) struct Baseline;

impl ByteDots for Baseline {
    const BIASED: bool = false;
    /// Weights, and their sizes without the sign.
    type Bytes = (Ints, Ints);
    type Numbers = Whole;

    #[inline(always)]
    unsafe fn bytes(stored: Ints) -> (Ints, Ints) {
        // SAFETY: here and in all that follows, the trait's condition.
        unsafe {
            let bias = _mm256_set1_epi8(-128);
            let weights = [_mm256_xor_si256(stored[0], bias), _mm256_xor_si256(stored[1], bias)];
            (weights, [_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])])
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: Ints, (weights, sizes): Self::Bytes, x: __m256i) -> Ints {
        // SAFETY: the trait's condition.
        unsafe {
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
    unsafe fn dot_nibbles(sums: Ints, weights: Ints, x: __m256i) -> Ints {
        // SAFETY: the trait's condition. 2 · 15 · 127 is far from saturation.
        unsafe {
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

/// With AVX-VNNI, the dot products of four bytes that processors without AVX-512 have had since 2021. As those of AVX-512
/// they multiply unsigned by signed, and add to 32 bits.
pub(crate) struct DotProd;

impl ByteDots for DotProd {
    const BIASED: bool = true;
    type Bytes = Ints;
    type Numbers = DigitByDigit;

    #[inline(always)]
    unsafe fn bytes(stored: Ints) -> Ints {
        stored
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: Ints, weights: Ints, x: __m256i) -> Ints {
        // SAFETY: the trait's condition.
        unsafe {
            [
                _mm256_dpbusd_avx_epi32(sum[0], weights[0], x),
                _mm256_dpbusd_avx_epi32(sum[1], weights[1], x),
            ]
        }
    }
    #[inline(always)]
    unsafe fn begin_nibbles(start: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { Avx2::<Self>::splat_int(start) }
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sums: Ints, weights: Ints, x: __m256i) -> Ints {
        // SAFETY: the trait's condition. The same instruction; only the numbers are smaller.
        unsafe { Self::dot_bytes(sums, weights, x) }
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: Ints, _start: i32) -> Ints {
        sums
    }
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

/// Numbers of fifteen bits meet codes as numbers of sixteen: `vpmaddwd` makes one whole number of 32 bits of two products, so
/// four products take two of them and two additions, where each of two digits takes four instructions ([`Baseline`]).
///
/// Of each four numbers 0 and 2 lie where the high digits were, 1 and 3 where the low ones were.
pub(crate) struct Whole;

impl Meeting<Avx2<Baseline>> for Whole {
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
    unsafe fn end(sums: Ints) -> Avx2<Baseline> {
        // SAFETY: the trait's condition.
        unsafe { Avx2::from_ints(sums) }
    }
}
