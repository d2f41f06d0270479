//! What many codes share (scales, zero points, norms), in half precision as KIVI keeps it.
//!
//! A number is quantised with the scale that is kept, not with the one that was wanted. The scale is
//! therefore rounded up and a zero point down: the range of the codes never shrinks, and no number
//! falls off its end. Past half precision's range, 65,504, they saturate, and so do the numbers.

use half::f16;

/// The nearest half-precision number, at most 65,504 in size.
pub(super) fn nearest(x: f32) -> f16 {
    let bound = f16::MAX.to_f32();
    f16::from_f32(x.clamp(-bound, bound))
}

/// The smallest half-precision number that is not below `x`, but at most 65,504.
pub(super) fn at_least(x: f32) -> f16 {
    let near = nearest(x);
    if near.to_f32() >= x || near == f16::MAX { near } else { next_up(near) }
}

/// The largest half-precision number that is not above `x`, but at least -65,504.
pub(super) fn at_most(x: f32) -> f16 {
    -at_least(-x)
}

/// The next larger one of a number below the largest.
fn next_up(x: f16) -> f16 {
    match x.to_bits() {
        0x0000 | 0x8000 => f16::from_bits(1),
        bits if x.is_sign_negative() => f16::from_bits(bits - 1),
        bits => f16::from_bits(bits + 1),
    }
}

/// Bytes that one takes.
pub(super) const BYTES: usize = size_of::<f16>();

/// Writes the `i`th of some half-precision numbers.
pub(super) fn put(bytes: &mut [u8], i: usize, x: f16) {
    bytes[i * BYTES..][..BYTES].copy_from_slice(&x.to_le_bytes());
}

/// Reads it.
#[inline]
pub(super) fn get(bytes: &[u8], i: usize) -> f32 {
    f16::from_le_bytes([bytes[i * BYTES], bytes[i * BYTES + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_goes_the_way_it_is_told() {
        let mut state = 1u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(state);
            if !x.is_finite() || x.abs() > 65_504.0 {
                continue;
            }
            let (up, down) = (at_least(x), at_most(x));
            assert!(down.to_f32() <= x && x <= up.to_f32(), "{x}: {down} {up}");
            // Neighbours, or the same: nothing lies between.
            assert!(down == up || next_up(down) == up, "{x}: {down} {up}");
        }
        for (x, up, down) in
            [(0.0, 0.0, 0.0), (1e9, 65_504.0, 65_504.0), (-1e9, -65_504.0, -65_504.0)]
        {
            assert_eq!((at_least(x).to_f32(), at_most(x).to_f32()), (up, down));
        }
        assert_eq!(at_least(1e-30), f16::from_bits(1));
    }
}
