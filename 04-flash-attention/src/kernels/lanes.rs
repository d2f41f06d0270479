//! What the loops ask of an instruction set: sixteen floats side by side, and dot products of four
//! bytes. One register with AVX-512, two with AVX2, four with NEON.

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use super::digits::rows::{DigitByDigit, Meeting};

/// Sixteen floats, one for each output of a panel, and the integers that go with them.
///
/// # Safety
/// Every operation may only run where the instruction set it belongs to is present: they are inlined
/// into functions compiled for it, which `Simd` guards. Pointers need not be aligned, and must be valid
/// for as many items as the operation says.
pub(crate) trait Lanes: Copy {
    /// Registers that sixteen outputs take.
    const REGISTERS: usize;
    /// Whether [`Lanes::dot_bytes`] takes a weight's byte as it is stored, 128 more than the weight, so
    /// that 128 times the activations' sum has to be taken off.
    const BIASED: bool;
    /// A sum of products for each output.
    type Ints: Copy;
    /// A sum of up to 32 products of nibbles for each output, perhaps in parts.
    type NibbleSums: Copy;
    /// Four signed weights of eight bits for each output.
    type Bytes: Copy;
    /// Four weights from 0 to 15 for each output.
    type Nibbles: Copy;
    /// How numbers of fifteen bits meet bytes.
    type Numbers: Meeting<Self>;

    /// The same number in every lane.
    unsafe fn splat(value: f32) -> Self;
    /// Sixteen floats of 32 bits.
    unsafe fn from_f32(at: *const f32) -> Self;
    /// Sixteen pairs of floats of 16 bits with the exponent of f32: the firsts, and the seconds.
    unsafe fn from_bf16_pairs(at: *const u16) -> [Self; 2];
    /// Sixteen floats of 16 bits of IEEE 754.
    unsafe fn from_f16(at: *const u16) -> Self;
    // ANCHOR: widen_fp8
    /// Sixteen pairs of E4M3 numbers: the firsts, and the seconds, each 2^-120 of what it stands for. That is how far the
    /// exponent of a float of 32 bits with the same bits is off. Numbers too small for E4M3's exponent are so for a float's, too,
    /// and mean the same there. Some processors take long over those; of the embedded model's weights one in 17,000 is so small.
    #[inline(always)]
    unsafe fn from_e4m3_pairs(at: *const u16) -> [Self; 2] {
        // `s eeee mmm` becomes `s 0000eeee mmm0…`.
        const KEPT: i32 = 0x87f0_0000_u32 as i32;
        // SAFETY: the caller vouches for sixteen pairs.
        let pairs = unsafe { at.cast::<[i16; 16]>().read_unaligned() };
        let mut floats = [[0i32; 16]; 2];
        for (i, pair) in pairs.into_iter().enumerate() {
            // The second is the upper half, and what is above that is copies of its sign.
            let pair = i32::from(pair);
            floats[0][i] = (pair << 24) >> 4 & KEPT;
            floats[1][i] = pair << 12 & KEPT;
        }
        // SAFETY: sixteen numbers of 32 bits each, and the caller vouches for the instructions.
        unsafe {
            [Self::from_f32(floats[0].as_ptr().cast()), Self::from_f32(floats[1].as_ptr().cast())]
        }
    }
    // ANCHOR_END: widen_fp8
    /// Integers, rounded to the nearest floats, ties to even: below 2^24 in size as they are.
    unsafe fn from_ints(ints: Self::Ints) -> Self;
    /// Writes sixteen floats.
    unsafe fn store(self, to: *mut f32);
    /// `self · b`, rounded once.
    unsafe fn times(self, b: Self) -> Self;
    /// `a · b + self`, rounded once.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;

    /// Where `other` is smaller than `least` in size, zero of the same sign.
    unsafe fn zero_where(self, other: Self, least: f32) -> Self;

    /// The bits of the largest of 32 numbers in size: above every number are infinity, then NaN.
    #[inline(always)]
    unsafe fn largest(x: &[f32; 32]) -> u32 {
        let mut largest = [0; 16];
        for (i, largest) in largest.iter_mut().enumerate() {
            let (a, b) = (x[i].to_bits() & 0x7fff_ffff, x[i + 16].to_bits() & 0x7fff_ffff);
            *largest = a.max(b);
        }
        largest.into_iter().fold(0, |largest: u32, size| largest.max(size))
    }
    /// 32 numbers times `by`, rounded to integers, ties to even; gives the integers' sum. Products are from -127.5 to
    /// 127.5.
    #[inline(always)]
    unsafe fn round(x: &[f32; 32], by: f32, to: &mut [i8; 32]) -> i32 {
        let mut sums = [0i32; 16];
        for i in 0..16 {
            to[i] = (x[i] * by + ROUNDING).to_bits() as i8;
            to[i + 16] = (x[i + 16] * by + ROUNDING).to_bits() as i8;
            sums[i] = i32::from(to[i]) + i32::from(to[i + 16]);
        }
        sums.into_iter().sum()
    }

    /// Sixteen groups of 32 numbers as [`quantised`] has one; a group's codes are written `stride` bytes after those of the
    /// group before. Gives their scales, and their codes' sums, which say nothing if a scale is no number.
    #[inline(always)]
    unsafe fn quantise_groups(
        x: &[[f32; 32]; 16],
        codes: *mut [i8; 32],
        stride: usize,
    ) -> ([f32; 16], [i32; 16]) {
        let (mut scales, mut sums) = ([0.0; 16], [0; 16]);
        for (group, x) in x.iter().enumerate() {
            let mut own = [0; 32];
            // SAFETY: passed on; what is written to need not have been written before.
            unsafe {
                (scales[group], sums[group]) = quantised::<Self>(x, Self::largest(x), &mut own);
                codes.byte_add(group * stride).write(own);
            }
        }
        (scales, sums)
    }

    /// Four numbers of each of four rows, column by column; from one column to the next are `stride` numbers.
    #[inline(always)]
    unsafe fn turn(rows: [*const f32; 4], to: *mut f32, stride: usize) {
        for column in 0..4 {
            for (r, row) in rows.into_iter().enumerate() {
                // SAFETY: the trait's condition.
                unsafe { to.add(column * stride + r).write(row.add(column).read()) };
            }
        }
    }

    /// The same integer in every lane.
    unsafe fn splat_int(value: i32) -> Self::Ints;
    /// 64 bytes, each 128 more than the weight.
    unsafe fn bytes(at: *const u8) -> Self::Bytes;
    /// 64 bytes of two weights each: those of the lower halves, those of the upper.
    unsafe fn nibbles(at: *const u8) -> (Self::Nibbles, Self::Nibbles);
    /// Adds four products to each sum, exactly. `x` is four activations from -127 to 127.
    unsafe fn dot_bytes(sum: Self::Ints, weights: Self::Bytes, x: [i8; 4]) -> Self::Ints;
    /// Sums of no products of nibbles yet, in the end to be `start` more.
    unsafe fn begin_nibbles(start: i32) -> Self::NibbleSums;
    /// Adds four products to each sum, exactly. `x` is four activations from -127 to 127.
    unsafe fn dot_nibbles(
        sums: Self::NibbleSums,
        weights: Self::Nibbles,
        x: [i8; 4],
    ) -> Self::NibbleSums;
    /// The sums that were begun with `start`.
    unsafe fn end_nibbles(sums: Self::NibbleSums, start: i32) -> Self::Ints;
}

/// 1.5 · 2^23. Added to a number of less than 2^22 in size it leaves no bits for a fraction: the sum is rounded to an integer, ties
/// to even, which stands in its lowest bits.
pub(crate) const ROUNDING: f32 = 12_582_912.0;

/// Numbers smaller than this, all that share a scale, count as zero: a safe margin above where the reciprocal of their
/// scale overflows (5e-35).
pub(crate) const SMALLEST: f32 = 1e-30;

// ANCHOR: quantise
/// The scale of activations of which the largest in size is to be `most` steps, and what they are multiplied by to be steps.
/// Next to nothing counts as zero; a scale that is no number says that an activation is not finite.
#[inline(always)]
pub(super) fn scale_and_inverse(largest: f32, most: f32) -> (f32, f32) {
    match largest {
        ..SMALLEST => (0.0, 0.0),
        largest if largest.is_finite() => (largest * (1.0 / most), most / largest),
        _ => (f32::NAN, 0.0),
    }
}

/// Numbers of which the one with the bits `largest` is the largest in size, as codes from -127 to 127 times a scale. Gives
/// the scale, and the codes' sum.
///
/// # Safety
/// The instruction set of `V` is there.
#[inline(always)]
pub(super) unsafe fn quantised<V: Lanes>(
    x: &[f32; 32],
    largest: u32,
    codes: &mut [i8; 32],
) -> (f32, i32) {
    let (scale, inverse) = scale_and_inverse(f32::from_bits(largest), 127.0);
    // SAFETY: the caller vouches for the instruction set.
    (scale, unsafe { V::round(x, inverse, codes) })
}
// ANCHOR_END: quantise
