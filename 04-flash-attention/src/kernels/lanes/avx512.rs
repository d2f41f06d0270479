//! AVX-512 with VNNI: sixteen outputs in a register.

mod groups;

use super::avx2::turn;
use super::{DigitByDigit, Lanes};
use std::arch::x86_64::*;

impl Lanes for __m512 {
    const REGISTERS: usize = 1;
    const BIASED: bool = true;
    type Ints = __m512i;
    type NibbleSums = __m512i;
    type Bytes = __m512i;
    type Nibbles = __m512i;
    type Numbers = DigitByDigit;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: here and in all that follows, the trait's condition.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2] {
        // SAFETY: the trait's condition. A bf16 is the upper half of an f32.
        unsafe {
            let pairs = _mm512_loadu_si512(at.cast());
            let seconds = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            let firsts = _mm512_slli_epi32::<16>(pairs);
            [_mm512_castsi512_ps(firsts), _mm512_castsi512_ps(seconds)]
        }
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
    #[inline(always)]
    unsafe fn from_ints(ints: __m512i) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_cvtepi32_ps(ints) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { _mm512_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_mul_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { _mm512_fmadd_ps(a, b, self) }
    }
    #[inline(always)]
    unsafe fn zero_where(self, other: Self, least: f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let least = _mm512_set1_ps(least);
            let small = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(other), least);
            let (bits, sign) = (_mm512_castps_si512(self), _mm512_set1_epi32(i32::MIN));
            _mm512_castsi512_ps(_mm512_mask_and_epi32(bits, small, bits, sign))
        }
    }
    #[inline(always)]
    unsafe fn largest(x: &[f32; 32]) -> u32 {
        // SAFETY: the trait's condition.
        unsafe {
            let size = _mm512_set1_epi32(0x7fff_ffff);
            let low = _mm512_and_si512(_mm512_loadu_si512(x.as_ptr().cast()), size);
            let high = _mm512_and_si512(_mm512_loadu_si512(x[16..].as_ptr().cast()), size);
            _mm512_reduce_max_epu32(_mm512_max_epu32(low, high))
        }
    }
    #[inline(always)]
    unsafe fn round(x: &[f32; 32], by: f32, to: &mut [i8; 32]) -> i32 {
        // SAFETY: the trait's condition. Conversion rounds to the nearest, ties to even.
        unsafe {
            let by = _mm512_set1_ps(by);
            let low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), by));
            let high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x[16..].as_ptr()), by));
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(low));
            _mm_storeu_si128(to[16..].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(high));
            _mm512_reduce_add_epi32(_mm512_add_epi32(low, high))
        }
    }
    #[inline(always)]
    unsafe fn quantise_groups(
        x: &[[f32; 32]; 16],
        codes: *mut [i8; 32],
        stride: usize,
    ) -> ([f32; 16], [i32; 16]) {
        // SAFETY: the trait's condition.
        unsafe { groups::quantise(x, codes, stride) }
    }
    #[inline(always)]
    unsafe fn turn(rows: [*const f32; 4], to: *mut f32, stride: usize) {
        // SAFETY: the trait's condition.
        unsafe { turn(rows, to, stride) }
    }
    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }
    #[inline(always)]
    unsafe fn nibbles(at: *const u8) -> (__m512i, __m512i) {
        // SAFETY: the trait's condition.
        unsafe {
            let (both, low) = (_mm512_loadu_si512(at.cast()), _mm512_set1_epi8(15));
            let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
            (_mm512_and_si512(both, low), upper)
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: __m512i, weights: __m512i, x: [i8; 4]) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe {
            let x = i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
            _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(x))
        }
    }
    #[inline(always)]
    unsafe fn begin_nibbles(start: i32) -> __m512i {
        // SAFETY: the trait's condition.
        unsafe { Self::splat_int(start) }
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: __m512i, _start: i32) -> __m512i {
        sums
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: __m512i, weights: __m512i, x: [i8; 4]) -> __m512i {
        // SAFETY: the trait's condition. The same instruction; only the numbers are smaller.
        unsafe { Self::dot_bytes(sum, weights, x) }
    }
}
