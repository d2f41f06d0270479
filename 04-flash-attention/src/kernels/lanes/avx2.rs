//! AVX2: sixteen outputs in two registers.

mod bytes;

use super::Lanes;
pub(crate) use bytes::{Baseline, ByteDots, DotProd};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Sixteen floats. Products of bytes are added as `D` does it.
pub(crate) struct Avx2<D>([__m256; 2], PhantomData<D>);

impl<D> Clone for Avx2<D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Avx2<D> {}

impl<D> Avx2<D> {
    #[inline(always)]
    fn of(registers: [__m256; 2]) -> Self {
        Avx2(registers, PhantomData)
    }
}

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

impl<D: ByteDots> Lanes for Avx2<D> {
    const REGISTERS: usize = 2;
    const BIASED: bool = D::BIASED;
    type Ints = Ints;
    type NibbleSums = Ints;
    type Bytes = D::Bytes;
    type Nibbles = Ints;
    type Numbers = D::Numbers;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: here and in all that follows, the trait's condition: the instructions are there, and
        // so are the bytes.
        unsafe { Self::of([_mm256_set1_ps(value); 2]) }
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Self::of([_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))]) }
    }
    #[inline(always)]
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2] {
        // SAFETY: the trait's condition. A bf16 is the upper half of an f32.
        unsafe {
            let (pairs, upper) = (load(at.cast()), _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [
                Self::of([
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs[0])),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs[1])),
                ]),
                Self::of([
                    _mm256_castsi256_ps(_mm256_and_si256(pairs[0], upper)),
                    _mm256_castsi256_ps(_mm256_and_si256(pairs[1], upper)),
                ]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            Self::of([
                _mm256_cvtph_ps(_mm_loadu_si128(at.cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(at.add(8).cast())),
            ])
        }
    }
    #[inline(always)]
    unsafe fn from_ints(ints: Ints) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Self::of([_mm256_cvtepi32_ps(ints[0]), _mm256_cvtepi32_ps(ints[1])]) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe {
            _mm256_storeu_ps(to, self.0[0]);
            _mm256_storeu_ps(to.add(8), self.0[1]);
        }
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Self::of([_mm256_mul_ps(self.0[0], b.0[0]), _mm256_mul_ps(self.0[1], b.0[1])]) }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            Self::of([
                _mm256_fmadd_ps(a.0[0], b.0[0], self.0[0]),
                _mm256_fmadd_ps(a.0[1], b.0[1], self.0[1]),
            ])
        }
    }
    #[inline(always)]
    unsafe fn zero_where(self, other: Self, least: f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let (sign, least, mut kept) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(least), self);
            for (x, other) in kept.0.iter_mut().zip(other.0) {
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
    unsafe fn bytes(at: *const u8) -> D::Bytes {
        // SAFETY: the trait's condition.
        unsafe { D::bytes(load(at)) }
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
    #[inline(always)]
    unsafe fn dot_bytes(sum: Ints, weights: D::Bytes, x: [i8; 4]) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { D::dot_bytes(sum, weights, four(x)) }
    }
    #[inline(always)]
    unsafe fn begin_nibbles(start: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { D::begin_nibbles(start) }
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sums: Ints, weights: Ints, x: [i8; 4]) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { D::dot_nibbles(sums, weights, four(x)) }
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: Ints, start: i32) -> Ints {
        // SAFETY: the trait's condition.
        unsafe { D::end_nibbles(sums, start) }
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
