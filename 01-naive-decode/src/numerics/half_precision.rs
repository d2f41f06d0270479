//! f32 to IEEE half precision and back, and to bfloat16, in operations that every instruction set has for many numbers at once.
//!
//! The half precision of a processor is an extension here, a library call there. These are a few integer and float
//! operations each, and a loop over them becomes the instruction set's own.

use half::{bf16, f16};

/// From here on numbers are nearer to the next power of two, which half precision does not have.
const TOO_LARGE: f32 = 65_520.0;

/// The smallest number with all bits of its significand, 2^-14.
const SMALLEST_NORMAL: f32 = 6.103_515_6e-5;

/// How far the two exponents' biases are apart, as a factor: 2^112.
const BIAS: f32 = f32::from_bits((127 + 112) << 23);

/// The nearest number of half precision, ties to even; infinity above all.
#[inline(always)]
pub fn round_to_f16(value: f32) -> f32 {
    let bits = value.to_bits();
    let size = f32::from_bits(bits & 0x7fff_ffff);
    // Thirteen bits of significand go.
    let even = (bits >> 13) & 1;
    let normal = f32::from_bits((size.to_bits() + 0x0fff + even) & !0x1fff);
    // Between a half and one, floats lie 2^-24 apart, as small halves do.
    let small = (size + 0.5) - 0.5;
    let rounded = if size < SMALLEST_NORMAL { small } else { normal };
    let rounded = if size >= TOO_LARGE { f32::INFINITY } else { rounded };
    let rounded = if size.is_nan() { size } else { rounded };
    f32::from_bits(rounded.to_bits() | (bits & 0x8000_0000))
}

/// The nearest bfloat16, ties to even; infinity above all.
#[inline(always)]
pub fn round_to_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    // Sixteen bits of significand go.
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + even);
    // A NaN's significand may be all in the bits that go; it stays one.
    let rounded = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
    f32::from_bits(rounded & 0xffff_0000)
}

/// The same, as such.
#[inline(always)]
pub fn to_bf16(value: f32) -> bf16 {
    bf16::from_bits((round_to_bf16(value).to_bits() >> 16) as u16)
}

/// A number that half precision has, as such.
#[inline(always)]
pub fn to_f16(value: f32) -> f16 {
    let bits = value.to_bits();
    let size = f32::from_bits(bits & 0x7fff_ffff);
    let normal = (size.to_bits() >> 13).wrapping_sub(112 << 10);
    // As a multiple of the smallest.
    let small = (size.min(SMALLEST_NORMAL) * 16_777_216.0) as u32;
    let number = if size < SMALLEST_NORMAL { small } else { normal };
    let number = if size == f32::INFINITY { 0x7c00 } else { number };
    let number = if size.is_nan() { 0x7e00 } else { number };
    f16::from_bits(((bits >> 16) & 0x8000 | number & 0x7fff) as u16)
}

/// A number of half precision, widened.
#[inline(always)]
pub fn from_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    // With the exponent's bias still that of half precision. Small ones are small here too, and exact.
    let narrow = (bits & 0x7fff) << 13;
    let size = (f32::from_bits(narrow) * BIAS).to_bits();
    let size = if bits & 0x7c00 == 0x7c00 { narrow | 0x7f80_0000 } else { size };
    f32::from_bits(size | ((bits & 0x8000) << 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_goes_there_and_back() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            if value.is_nan() {
                assert!(from_f16(value).is_nan() && to_f16(from_f16(value)).is_nan());
            } else {
                let wide = from_f16(value);
                assert_eq!(wide.to_bits(), value.to_f32().to_bits(), "{value}");
                assert_eq!(to_f16(wide).to_bits(), bits, "{value}");
                assert_eq!(round_to_f16(wide).to_bits(), wide.to_bits(), "{value}");
            }
        }
    }

    /// Halfway between neighbours, the f32s beside that, and what is no number.
    #[test]
    fn rounding_to_bfloat16_is_as_the_library_has_it() {
        for bits in 0..=u16::MAX {
            let halfway = u32::from(bits) << 16 | 0x8000;
            for bits in [halfway - 0x8000, halfway - 1, halfway, halfway + 1, halfway + 0x7fff] {
                let (value, expected) =
                    (f32::from_bits(bits), bf16::from_f32(f32::from_bits(bits)));
                assert_eq!(to_bf16(value).to_bits(), expected.to_bits(), "{value:e}");
                assert_eq!(
                    round_to_bf16(value).to_bits(),
                    expected.to_f32().to_bits(),
                    "{value:e}"
                );
            }
        }
    }

    /// Halfway between every two neighbours, the f32s beside that, and what is too large.
    #[test]
    fn rounding_is_to_the_nearest_and_ties_to_even() {
        let mut checked = 0;
        for bits in 0..f16::MAX.to_bits() {
            let (low, high) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            let halfway = (low.to_f32() + high.to_f32()) / 2.0;
            for value in [halfway.next_down(), halfway, halfway.next_up()] {
                for value in [value, -value] {
                    let expected = f16::from_f32(value).to_f32();
                    assert_eq!(round_to_f16(value).to_bits(), expected.to_bits(), "{value:e}");
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, 6 * 31_743);
        let odd = [65_519.996, TOO_LARGE, 1e30, f32::INFINITY, 1e-45, 2e-8, 3.0e-8, 6e-8];
        for value in odd.into_iter().flat_map(|value| [value, -value]) {
            assert_eq!(round_to_f16(value), f16::from_f32(value).to_f32(), "{value:e}");
        }
        assert!(round_to_f16(f32::NAN).is_nan());
    }
}
