//! What the inner loop asks of an instruction set: four operations on a few floats at once.

/// Some floats side by side, in a register.
///
/// # Safety
/// The operations may only run where the instruction set they belong to is present. They are
/// inlined into functions compiled for it, which `Isa` guards.
pub(super) trait Vector: Copy {
    /// How many floats; divides [`crate::numerics::LANES`].
    const WIDTH: usize;
    /// The same number in every place.
    unsafe fn splat(value: f32) -> Self;
    /// The first `WIDTH` floats of a slice at least that long.
    unsafe fn load(from: &[f32]) -> Self;
    /// Writes the first `WIDTH` floats of a slice at least that long.
    unsafe fn store(self, to: &mut [f32]);
    /// `a · b + self`, rounded once.
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
    unsafe fn store(self, to: &mut [f32]) {
        to[0] = self;
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

/// Implements [`Vector`] for a register type from its instruction set's own four operations.
macro_rules! register {
    ($register:ty, $width:literal, $splat:path, $load:path, $store:path, |$sum:ident, $a:ident, $b:ident| $add_product:expr) => {
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
    use super::Vector;
    use std::arch::x86_64::*;
    register!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, |sum, a, b| {
        _mm256_fmadd_ps(a, b, sum)
    });
    register!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, |sum, a, b| {
        _mm512_fmadd_ps(a, b, sum)
    });
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::Vector;
    use std::arch::aarch64::*;
    register!(float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, |sum, a, b| {
        vfmaq_f32(sum, a, b)
    });
}
