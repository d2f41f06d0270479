//! Plain loops over sixteen numbers: whatever the compiler makes of them on any processor.
//!
//! Loops, and no `map` of an array: that may become a call for every number, which is slow to run and slow to compile.

use super::{DigitByDigit, Lanes};
use half::{bf16, f16};

impl Lanes for [f32; 16] {
    const REGISTERS: usize = 16;
    const BIASED: bool = false;
    type Ints = [i32; 16];
    type NibbleSums = [i32; 16];
    type Bytes = [[i8; 4]; 16];
    type Nibbles = [[u8; 4]; 16];
    type Numbers = DigitByDigit;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        [value; 16]
    }
    #[inline(always)]
    unsafe fn from_f32(at: *const f32) -> Self {
        // SAFETY: the caller vouches for the place.
        unsafe { at.cast::<[f32; 16]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2] {
        // SAFETY: the caller vouches for the place.
        let pairs = unsafe { at.cast::<[[u16; 2]; 16]>().read_unaligned() };
        let [mut firsts, mut seconds] = [[0.0; 16]; 2];
        for (i, [first, second]) in pairs.into_iter().enumerate() {
            firsts[i] = bf16::from_bits(first).to_f32();
            seconds[i] = bf16::from_bits(second).to_f32();
        }
        [firsts, seconds]
    }
    #[inline(always)]
    unsafe fn from_f16(at: *const u16) -> Self {
        // SAFETY: the caller vouches for the place.
        let bits = unsafe { at.cast::<[u16; 16]>().read_unaligned() };
        let mut floats = [0.0; 16];
        for (float, bits) in floats.iter_mut().zip(bits) {
            *float = f16::from_bits(bits).to_f32();
        }
        floats
    }
    #[inline(always)]
    unsafe fn from_ints(ints: [i32; 16]) -> Self {
        let mut floats = [0.0; 16];
        for (float, int) in floats.iter_mut().zip(ints) {
            *float = int as f32;
        }
        floats
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller vouches for the place.
        unsafe { to.cast::<[f32; 16]>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn times(mut self, b: Self) -> Self {
        self.iter_mut().zip(b).for_each(|(a, b)| *a *= b);
        self
    }
    #[inline(always)]
    unsafe fn plus_product(mut self, a: Self, b: Self) -> Self {
        for (sum, (a, b)) in self.iter_mut().zip(a.into_iter().zip(b)) {
            *sum = a.mul_add(b, *sum);
        }
        self
    }
    #[inline(always)]
    unsafe fn zero_where(mut self, other: Self, least: f32) -> Self {
        for (x, other) in self.iter_mut().zip(other) {
            *x = if other.abs() < least { 0f32.copysign(*x) } else { *x };
        }
        self
    }
    #[inline(always)]
    unsafe fn splat_int(value: i32) -> [i32; 16] {
        [value; 16]
    }
    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> [[i8; 4]; 16] {
        // SAFETY: the caller vouches for the place.
        let bytes = unsafe { at.cast::<[[u8; 4]; 16]>().read_unaligned() };
        let mut weights = [[0; 4]; 16];
        for (weight, byte) in weights.as_flattened_mut().iter_mut().zip(bytes.as_flattened()) {
            *weight = (byte ^ 0x80) as i8;
        }
        weights
    }
    #[inline(always)]
    unsafe fn nibbles(at: *const u8) -> ([[u8; 4]; 16], [[u8; 4]; 16]) {
        // SAFETY: the caller vouches for the place.
        let bytes = unsafe { at.cast::<[[u8; 4]; 16]>().read_unaligned() };
        let [mut lower, mut upper] = [[[0; 4]; 16]; 2];
        for (i, byte) in bytes.as_flattened().iter().enumerate() {
            lower.as_flattened_mut()[i] = byte & 15;
            upper.as_flattened_mut()[i] = byte >> 4;
        }
        (lower, upper)
    }
    #[inline(always)]
    unsafe fn dot_bytes(mut sum: [i32; 16], weights: [[i8; 4]; 16], x: [i8; 4]) -> [i32; 16] {
        for (sum, weights) in sum.iter_mut().zip(weights) {
            for (w, x) in weights.into_iter().zip(x) {
                *sum += i32::from(w) * i32::from(x);
            }
        }
        sum
    }
    #[inline(always)]
    unsafe fn begin_nibbles(start: i32) -> [i32; 16] {
        [start; 16]
    }
    #[inline(always)]
    unsafe fn end_nibbles(sums: [i32; 16], _start: i32) -> [i32; 16] {
        sums
    }
    #[inline(always)]
    unsafe fn dot_nibbles(mut sum: [i32; 16], weights: [[u8; 4]; 16], x: [i8; 4]) -> [i32; 16] {
        for (sum, weights) in sum.iter_mut().zip(weights) {
            for (w, x) in weights.into_iter().zip(x) {
                *sum += i32::from(w) * i32::from(x);
            }
        }
        sum
    }
}
