//! NEON: sixteen outputs in four registers.

use super::Lanes;
use half::f16;
use std::arch::aarch64::*;

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

impl Lanes for [float32x4_t; 4] {
    const BIASED: bool = false;
    type Ints = [int32x4_t; 4];
    type Bytes = [int8x16_t; 4];
    type Nibbles = [int8x16_t; 4];

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: here and in all that follows, the trait's condition: the instructions are there, and
        // so are the bytes.
        unsafe { [vdupq_n_f32(value); 4] }
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vld1q_f32(at.add(4 * i))) }
    }
    #[inline(always)]
    unsafe fn from_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's condition. A bf16 is the upper half of an f32.
        unsafe { each!(|i| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at.add(4 * i))))) }
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the trait's condition.
        let bits = unsafe { at.cast::<[u16; 16]>().read_unaligned() };
        let numbers = bits.map(|bits| f16::from_bits(bits).to_f32());
        // SAFETY: sixteen floats.
        unsafe { Self::from_f32(numbers.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn from_ints(ints: Self::Ints) -> Self {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vcvtq_f32_s32(ints[i])) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vst1q_f32(to.add(4 * i), self[i])) };
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vmulq_f32(self[i], b[i])) }
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        // SAFETY: the trait's condition.
        unsafe { each!(|i| vfmaq_f32(self[i], a[i], b[i])) }
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
        // SAFETY: the trait's condition. Products of 16 bits; pairs of them, and pairs of pairs, of 32.
        unsafe {
            let x = i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
            let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
            each!(|i| {
                let lower = vpaddlq_s16(vmull_s8(vget_low_s8(weights[i]), vget_low_s8(x)));
                let upper = vpaddlq_s16(vmull_high_s8(weights[i], x));
                vaddq_s32(sum[i], vpaddq_s32(lower, upper))
            })
        }
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::Ints, weights: Self::Nibbles, x: [i8; 4]) -> Self::Ints {
        // SAFETY: the trait's condition. From 0 to 15 is also a signed byte.
        unsafe { Self::dot_bytes(sum, weights, x) }
    }
}
