//! NEON: sixteen outputs in four registers.
//!
//! Two instructions stand here in assembly, because the compiler's own names for them came after the oldest
//! compiler that the workspace promises to build with, or are still to come.

use super::{DigitByDigit, Lanes};
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

/// Sixteen floats. Products of bytes are added as `D` does it.
pub(crate) struct Neon<D>([float32x4_t; 4], PhantomData<D>);

impl<D> Clone for Neon<D> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Neon<D> {}

/// How four products of bytes are added to each of four sums.
///
/// # Safety
/// As [`Lanes`].
pub(crate) trait ByteDots {
    /// `weights` from -128 to 127, `x` from -127 to 127: four for each sum.
    unsafe fn add_dots(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// With what every AArch64 processor has.
pub(crate) struct Baseline;

impl ByteDots for Baseline {
    #[inline(always)]
    unsafe fn add_dots(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the trait's condition. Products of 16 bits; two of them are at most 2 · 128 · 127, which is
        // 32,512, and two of those are added to 32 bits.
        unsafe {
            let lower = vmull_s8(vget_low_s8(weights), vget_low_s8(x));
            let upper = vmull_high_s8(weights, x);
            vpadalq_s16(sum, vpaddq_s16(lower, upper))
        }
    }
}

/// With the dot products of bytes that came with ARMv8.2, and are in every ARMv8.4.
pub(crate) struct DotProd;

impl ByteDots for DotProd {
    #[inline(always)]
    unsafe fn add_dots(mut sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the trait's condition. Registers are read and written, and nothing else.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {weights:v}.16b, {x:v}.16b",
                sum = inout(vreg) sum,
                weights = in(vreg) weights,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }
}

/// Eight floats of 16 bits, widened.
///
/// # Safety
/// As [`Lanes`].
#[inline(always)]
unsafe fn widened(halves: uint16x8_t) -> [float32x4_t; 2] {
    let (low, high);
    // SAFETY: the caller's condition. Registers are read and written, and nothing else.
    unsafe {
        asm!(
            "fcvtl {low:v}.4s, {halves:v}.4h",
            "fcvtl2 {high:v}.4s, {halves:v}.8h",
            halves = in(vreg) halves,
            low = out(vreg) low,
            high = lateout(vreg) high,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    [low, high]
}

/// The same operation on each of the four registers.
macro_rules! each {
    (|$i:ident| $operation:expr) => {{
        [
            {
                let $i = 0;
                $operation
            },
            {
                let $i = 1;
                $operation
            },
            {
                let $i = 2;
                $operation
            },
            {
                let $i = 3;
                $operation
            },
        ]
    }};
}

impl<D: ByteDots> Lanes for Neon<D> {
    const REGISTERS: usize = 4;
    const BIASED: bool = false;
    type Ints = [int32x4_t; 4];
    type NibbleSums = [int32x4_t; 4];
    type Bytes = [int8x16_t; 4];
    type Nibbles = [int8x16_t; 4];
    type Numbers = DigitByDigit;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: here and in all that follows, the trait's condition: the instructions are there, and
        // so are the bytes.
        unsafe { Neon([vdupq_n_f32(value); 4], PhantomData) }
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Neon(each!(|i| vld1q_f32(at.add(4 * i))), PhantomData) }
    }
    #[inline(always)]
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2] {
        // SAFETY: the trait's condition. A bf16 is the upper half of an f32.
        unsafe {
            let pairs = each!(|i| vld1q_u32(at.cast::<u32>().add(4 * i)));
            let upper = vdupq_n_u32(0xffff_0000);
            let firsts = each!(|i| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs[i])));
            let seconds = each!(|i| vreinterpretq_f32_u32(vandq_u32(pairs[i], upper)));
            [Neon(firsts, PhantomData), Neon(seconds, PhantomData)]
        }
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let [a, b] = widened(vld1q_u16(at));
            let [c, d] = widened(vld1q_u16(at.add(8)));
            Neon([a, b, c, d], PhantomData)
        }
    }
    #[inline(always)]
    unsafe fn from_ints(ints: Self::Ints) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Neon(each!(|i| vcvtq_f32_s32(ints[i])), PhantomData) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vst1q_f32(to.add(4 * i), self.0[i])) };
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Neon(each!(|i| vmulq_f32(self.0[i], b.0[i])), PhantomData) }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { Neon(each!(|i| vfmaq_f32(self.0[i], a.0[i], b.0[i])), PhantomData) }
    }
    #[inline(always)]
    unsafe fn zero_where(self, other: Self, least: f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe {
            let (size, least) = (vdupq_n_u32(0x7fff_ffff), vdupq_n_f32(least));
            let small = each!(|i| vcltq_f32(vabsq_f32(other.0[i]), least));
            let bits = each!(|i| vreinterpretq_u32_f32(self.0[i]));
            let kept = each!(|i| vbicq_u32(bits[i], vandq_u32(small[i], size)));
            Neon(each!(|i| vreinterpretq_f32_u32(kept[i])), PhantomData)
        }
    }
    #[inline(always)]
    unsafe fn splat_int(value: i32) -> Self::Ints {
        // SAFETY: the trait's condition.
        unsafe { [vdupq_n_s32(value); 4] }
    }
    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> Self::Bytes {
        // SAFETY: the trait's condition.
        unsafe {
            let bias = vdupq_n_u8(0x80);
            each!(|i| vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at.add(16 * i)), bias)))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(at: *const u8) -> (Self::Nibbles, Self::Nibbles) {
        // SAFETY: the trait's condition.
        unsafe {
            let both = each!(|i| vld1q_u8(at.add(16 * i)));
            let low = vdupq_n_u8(15);
            (
                each!(|i| vreinterpretq_s8_u8(vandq_u8(both[i], low))),
                each!(|i| vreinterpretq_s8_u8(vshrq_n_u8::<4>(both[i]))),
            )
        }
    }
    #[inline(always)]
    unsafe fn dot_bytes(sum: Self::Ints, weights: Self::Bytes, x: [i8; 4]) -> Self::Ints {
        // SAFETY: the trait's condition.
        unsafe {
            let x = i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
            each!(|i| D::add_dots(sum[i], weights[i], x))
        }
    }
    #[inline(always)]
    unsafe fn begin_nibbles(start: i32) -> Self::NibbleSums {
        // SAFETY: the trait's condition.
        unsafe { Self::splat_int(start) }
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: Self::NibbleSums, _start: i32) -> Self::Ints {
        sums
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::Ints, weights: Self::Nibbles, x: [i8; 4]) -> Self::Ints {
        // SAFETY: the trait's condition. From 0 to 15 is also a signed byte.
        unsafe { Self::dot_bytes(sum, weights, x) }
    }
}
