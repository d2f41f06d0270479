//! How numbers of fifteen bits meet bytes: digit by digit, or whole where there are products of sixteen bits.

use super::super::super::Lanes;
use super::super::super::activations::STEP;
use super::super::super::integer_tiles::{Bytes, Tile};
use super::super::{BASE, STEPS};

/// What instructions make of a row's numbers, each `128 · high + low`.
pub(crate) trait Meeting<V: Lanes> {
    /// For each of sixteen outputs a sum of `number · code`, perhaps in parts.
    type Sums: Copy;
    /// Four codes for each output.
    type Codes: Copy;

    /// How much more than a code [`Meeting::add`] multiplies by.
    fn bias() -> i32;

    /// Puts high and low digits of 64 numbers as [`Meeting::add`] wants them.
    ///
    /// # Safety
    /// The instructions of `V` are there, as in all that follows.
    unsafe fn arrange(_digits: [&mut [[i8; STEP]; STEPS]; 2]) {}

    /// Sums of no products yet, in the end to be `128 · starts[0] + starts[1]` more.
    unsafe fn begin(starts: [i32; 2]) -> Self::Sums;

    /// The 64 bytes at `at`, each 128 more than the code.
    unsafe fn codes(at: *const u8) -> Self::Codes;

    /// Adds four products to each sum, exactly. `x` is what became of the two digits of four numbers.
    unsafe fn add(sums: Self::Sums, codes: Self::Codes, x: [[i8; STEP]; 2]) -> Self::Sums;

    /// The sums, rounded once.
    unsafe fn end(sums: Self::Sums) -> V;
}

/// A sum for each digit.
pub(crate) struct DigitByDigit;

impl<V: Lanes> Meeting<V> for DigitByDigit {
    type Sums = [V::Ints; 2];
    type Codes = V::Bytes;

    #[inline(always)]
    fn bias() -> i32 {
        Bytes::bias(V::BIASED)
    }

    #[inline(always)]
    unsafe fn begin(starts: [i32; 2]) -> Self::Sums {
        // SAFETY: here and in all that follows, the trait's condition.
        unsafe { [V::splat_int(starts[0]), V::splat_int(starts[1])] }
    }

    #[inline(always)]
    unsafe fn codes(at: *const u8) -> V::Bytes {
        // SAFETY: the trait's condition.
        unsafe { V::bytes(at) }
    }

    #[inline(always)]
    unsafe fn add([high, low]: Self::Sums, codes: V::Bytes, x: [[i8; STEP]; 2]) -> Self::Sums {
        // SAFETY: the trait's condition.
        unsafe { [V::dot_bytes(high, codes, x[0]), V::dot_bytes(low, codes, x[1])] }
    }

    #[inline(always)]
    unsafe fn end([high, low]: Self::Sums) -> V {
        // SAFETY: the trait's condition.
        unsafe { V::from_ints(low).plus_product(V::from_ints(high), V::splat(BASE as f32)) }
    }
}
