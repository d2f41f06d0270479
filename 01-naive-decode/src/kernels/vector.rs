//! What an inner loop asks of an instruction set: a few operations on a few floats at once.

use crate::numerics::{LANES, from_f16};
use half::{bf16, f16};

/// Some floats side by side, in a register.
///
/// The operations are inlined into functions compiled for their instruction set, which [`super::Isa`]
/// guards.
pub trait Vector: Copy {
    /// How many floats; divides [`crate::numerics::LANES`].
    const WIDTH: usize;
    /// The same number in every place.
    ///
    /// # Safety
    /// The instruction set must be present.
    unsafe fn splat(value: f32) -> Self;
    /// The first `WIDTH` floats of a slice at least that long.
    ///
    /// # Safety
    /// The instruction set must be present, and the slice long enough.
    unsafe fn load(from: &[f32]) -> Self;
    /// The first `WIDTH` numbers of a slice at least that long, widened: a bf16 is the upper half
    /// of an f32.
    ///
    /// # Safety
    /// As [`Vector::load`].
    unsafe fn load_bf16(from: &[bf16]) -> Self;
    /// The same of half precision. Where there is no instruction for it, it takes several.
    ///
    /// # Safety
    /// As [`Vector::load`].
    #[inline(always)]
    unsafe fn load_f16(from: &[f16]) -> Self {
        let mut wide = [0.0; LANES];
        for (wide, &narrow) in wide.iter_mut().zip(&from[..Self::WIDTH]) {
            *wide = from_f16(narrow);
        }
        // SAFETY: the caller vouches for the instruction set; a register is no wider than LANES.
        unsafe { Self::load(&wide) }
    }
    /// Writes the first `WIDTH` floats of a slice at least that long.
    ///
    /// # Safety
    /// As [`Vector::load`].
    unsafe fn store(self, to: &mut [f32]);
    /// `a · b + self`, rounded once.
    ///
    /// # Safety
    /// The instruction set must be present.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
}

impl Vector for f32 {
    const WIDTH: usize = 1;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        value
    }
    #[inline(always)]
    unsafe fn load(from: &[f32]) -> Self {
        from[0]
    }
    #[inline(always)]
    unsafe fn load_bf16(from: &[bf16]) -> Self {
        f32::from_bits(u32::from(from[0].to_bits()) << 16)
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32]) {
        to[0] = self;
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

/// Implements [`Vector`] for a register type from its instruction set's own operations.
macro_rules! register {
    ($register:ty, $width:literal, $splat:path, $load:path, $store:path, |$from:ident| $load_bf16:expr, |$sum:ident, $a:ident, $b:ident| $add_product:expr $(, |$half:ident| $load_f16:expr)?) => {
        impl Vector for $register {
            const WIDTH: usize = $width;
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: &[f32]) -> Self {
                debug_assert!(from.len() >= $width);
                // SAFETY: as above; the slice is long enough, and unaligned loads are meant.
                unsafe { $load(from.as_ptr()) }
            }
            #[inline(always)]
            unsafe fn load_bf16(from: &[bf16]) -> Self {
                debug_assert!(from.len() >= $width);
                let $from = from.as_ptr();
                // SAFETY: as for `load`.
                unsafe { $load_bf16 }
            }
            $(#[inline(always)]
            unsafe fn load_f16(from: &[f16]) -> Self {
                debug_assert!(from.len() >= $width);
                let $half = from.as_ptr();
                // SAFETY: as for `load`.
                unsafe { $load_f16 }
            })?
            #[inline(always)]
            unsafe fn store(self, to: &mut [f32]) {
                debug_assert!(to.len() >= $width);
                // SAFETY: as for `load`.
                unsafe { $store(to.as_mut_ptr(), self) }
            }
            #[inline(always)]
            unsafe fn add_product(self, $a: Self, $b: Self) -> Self {
                let $sum = self;
                // SAFETY: the caller vouches for the instruction set.
                unsafe { $add_product }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Vector, bf16, f16};
    use std::arch::x86_64::*;
    register!(
        __m256,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        |from| {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        },
        |sum, a, b| _mm256_fmadd_ps(a, b, sum),
        |from| _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))
    );
    register!(
        __m512,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        |from| {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        },
        |sum, a, b| _mm512_fmadd_ps(a, b, sum),
        |from| _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    );
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{Vector, bf16};
    use std::arch::aarch64::*;
    register!(
        float32x4_t,
        4,
        vdupq_n_f32,
        vld1q_f32,
        vst1q_f32,
        |from| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))),
        |sum, a, b| vfmaq_f32(sum, a, b)
    );
}
