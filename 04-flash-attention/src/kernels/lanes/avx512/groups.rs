//! Sixteen groups of activations, quantised together: largest numbers and sums are found by a tree, and what follows from
//! them is done for all groups at once.

use crate::kernels::lanes::{Lanes, SMALLEST};
use std::arch::x86_64::*;

/// As [`Lanes::quantise_groups`].
///
/// # Safety
/// AVX-512 is there with its VNNI extension, as in all that follows, and room for the codes.
#[inline(always)]
pub(super) unsafe fn quantise(
    x: &[[f32; 32]; 16],
    codes: *mut [i8; 32],
    stride: usize,
) -> ([f32; 16], [i32; 16]) {
    // SAFETY: the caller vouches for it.
    unsafe {
        let size = _mm512_set1_epi32(0x7fff_ffff);
        let mut sizes = [size; 16];
        for group in 0..16 {
            let at = x[group].as_ptr();
            let low = _mm512_and_si512(_mm512_loadu_si512(at.cast()), size);
            let high = _mm512_and_si512(_mm512_loadu_si512(at.add(16).cast()), size);
            sizes[group] = _mm512_max_epu32(low, high);
        }
        let mut halves = [size; 8];
        for i in 0..8 {
            halves[i] = join::<LARGEST>(quarters(sizes[i], sizes[i + 8]));
        }
        let largest = one_of_each::<LARGEST>(halves);

        let is_finite = _mm512_cmplt_epu32_mask(largest, _mm512_set1_epi32(0x7f80_0000));
        let largest = _mm512_castsi512_ps(largest);
        let small = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(largest, _mm512_set1_ps(SMALLEST));
        let scales = _mm512_mul_ps(largest, _mm512_set1_ps(1.0 / 127.0));
        let scales = _mm512_maskz_mov_ps(!small, scales);
        let scales = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NAN), is_finite, scales);
        let inverse = _mm512_div_ps(_mm512_set1_ps(127.0), largest);
        let inverse = _mm512_maskz_mov_ps(is_finite & !small, inverse);
        let (mut by, mut all_scales) = ([0.0; 16], [0.0; 16]);
        inverse.store(by.as_mut_ptr());
        scales.store(all_scales.as_mut_ptr());

        let ones = _mm512_set1_epi8(1);
        let mut sums = [_mm512_setzero_si512(); 8];
        for i in 0..8 {
            let [one, two] = [codes.byte_add(i * stride), codes.byte_add((i + 8) * stride)];
            let first = _mm512_castsi256_si512(write_codes(&x[i], by[i], one));
            let both = _mm512_inserti64x4::<1>(first, write_codes(&x[i + 8], by[i + 8], two));
            sums[i] = _mm512_dpbusd_epi32(sums[i], ones, both);
        }
        let mut all_sums = [0; 16];
        _mm512_storeu_si512(all_sums.as_mut_ptr().cast(), one_of_each::<SUM>(sums));
        (all_scales, all_sums)
    }
}

/// What two lanes become: their sum, or the larger.
const SUM: bool = true;
const LARGEST: bool = false;

/// # Safety
/// As [`quantise`].
#[inline(always)]
unsafe fn join<const SUM: bool>([a, b]: [__m512i; 2]) -> __m512i {
    // SAFETY: the caller vouches for it.
    unsafe { if SUM { _mm512_add_epi32(a, b) } else { _mm512_max_epu32(a, b) } }
}

/// One lane for each of sixteen groups, of registers that have group `i` in their lower half and group `i + 8` in their
/// upper.
///
/// # Safety
/// As [`quantise`].
#[inline(always)]
unsafe fn one_of_each<const SUM: bool>(halves: [__m512i; 8]) -> __m512i {
    // SAFETY: the caller vouches for it.
    unsafe {
        // Of each register two quarters are left, then two lanes of each quarter, then one.
        let mut left = [halves[0]; 4];
        for i in 0..4 {
            left[i] = join::<SUM>(quarters(halves[i], halves[i + 4]));
        }
        let one = join::<SUM>(lanes(left[0], left[1]));
        let two = join::<SUM>(lanes(left[2], left[3]));
        let (low, high) = (_mm512_unpacklo_epi64(one, two), _mm512_unpackhi_epi64(one, two));
        // The quarters have groups 0, 8, 4 and 12 on.
        let joined = join::<SUM>([low, high]);
        _mm512_shuffle_i32x4::<0xd8>(joined, joined)
    }
}

/// Of two registers the even quarters, and the odd ones.
///
/// # Safety
/// As [`quantise`].
#[inline(always)]
unsafe fn quarters(a: __m512i, b: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller vouches for it.
    unsafe { [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b)] }
}

/// Of each quarter of two registers, in turns: the lower two lanes, and the upper two.
///
/// # Safety
/// As [`quantise`].
#[inline(always)]
unsafe fn lanes(a: __m512i, b: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller vouches for it.
    unsafe { [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)] }
}

/// 32 numbers times `by`, rounded, and as they were written: reading them again would wait for that.
///
/// # Safety
/// As [`quantise`].
#[inline(always)]
unsafe fn write_codes(x: &[f32; 32], by: f32, to: *mut [i8; 32]) -> __m256i {
    // SAFETY: the caller vouches for it. Conversion rounds to the nearest, ties to even.
    unsafe {
        let by = _mm512_set1_ps(by);
        let low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), by));
        let high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x[16..].as_ptr()), by));
        let codes = _mm256_set_m128i(_mm512_cvtepi32_epi8(high), _mm512_cvtepi32_epi8(low));
        _mm256_storeu_si256(to.cast(), codes);
        codes
    }
}
