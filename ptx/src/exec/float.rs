//! Floating-point results that Rust does not give by itself: other roundings, other widths, NaN as PTX has it.

use half::{bf16, f16};

use crate::isa::{Round, Type};

/// What PTX makes of every NaN of a single-precision result.
const NAN: u32 = 0x7fff_ffff;

pub(super) fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

pub(super) fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

pub(super) fn bits(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN } else { value.to_bits() })
}

/// Subnormal values become zero with their sign: `.ftz`.
pub(super) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// As [`flush`], of 16 bits.
pub(super) fn flush_half(ty: Type, bits: u16) -> u16 {
    let exponent = if ty == Type::F16 { 0x7c00 } else { 0x7f80 };
    if bits & exponent == 0 { bits & 0x8000 } else { bits }
}

/// `.sat`: into [0, 1], NaN to 0.
pub(super) fn saturate(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// As [`saturate`], before the one rounding.
pub(super) fn saturate_double(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// `a + b` and what it is off by, exactly (Knuth's two-sum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// The exact value `near + rest`, where `rest` is below `near`'s last bit, rounded to single precision.
fn directed(near: f64, rest: f64, round: Round) -> f32 {
    let found = near as f32;
    if !near.is_finite() {
        return found;
    }
    // Beyond the largest finite value, the nearest is infinite and the two others may not be.
    let above = if f64::from(found) == near { rest } else { near - f64::from(found) };
    let up = match round {
        Round::Nearest | Round::Away => return found,
        Round::Up => true,
        Round::Down => false,
        Round::Zero => near < 0.0,
    };
    if up && above > 0.0 {
        found.next_up()
    } else if !up && above < 0.0 {
        found.next_down()
    } else {
        found
    }
}

pub(super) fn add(a: f32, b: f32, round: Round) -> f32 {
    if matches!(round, Round::Nearest) {
        return a + b;
    }
    add_directed(a.into(), b.into(), round)
}

/// `a + b`, each exact, rounded once.
fn add_directed(a: f64, b: f64, round: Round) -> f32 {
    let (sum, rest) = two_sum(a, b);
    // A zero from two opposite signs is negative when rounding down, and only then: also of two zeros.
    if sum == 0.0 && a.is_sign_negative() != b.is_sign_negative() {
        return if round == Round::Down { -0.0 } else { 0.0 };
    }
    directed(sum, rest, round)
}

pub(super) fn mul(a: f32, b: f32, round: Round) -> f32 {
    if matches!(round, Round::Nearest) {
        return a * b;
    }
    directed(f64::from(a) * f64::from(b), 0.0, round)
}

pub(super) fn fma(a: f32, b: f32, c: f32, round: Round) -> f32 {
    if matches!(round, Round::Nearest) {
        return a.mul_add(b, c);
    }
    // The product of two singles is exact in double precision.
    add_directed(f64::from(a) * f64::from(b), c.into(), round)
}

pub(super) fn div(a: f32, b: f32, round: Round) -> f32 {
    if matches!(round, Round::Nearest) {
        return a / b;
    }
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    directed(quotient, if b < 0.0 { -rest } else { rest }, round)
}

pub(super) fn sqrt(a: f32, round: Round) -> f32 {
    if matches!(round, Round::Nearest) {
        return a.sqrt();
    }
    let a = f64::from(a);
    let root = a.sqrt();
    directed(root, (-root).mul_add(root, a), round)
}

/// `a * b + c` rounded to odd: enough bits that rounding once more to half precision is right.
pub(super) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    let (sum, rest) = two_sum(a * b, c);
    if rest == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    if (rest > 0.0) == (sum > 0.0) {
        f64::from_bits(sum.to_bits() + 1)
    } else {
        f64::from_bits(sum.to_bits() - 1)
    }
}

/// The smaller; a number rather than NaN, and -0 before +0.
pub(super) fn min(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

/// The larger; a number rather than NaN, and +0 before -0.
pub(super) fn max(a: f32, b: f32) -> f32 {
    -min(-a, -b)
}

/// A half-precision value, exactly.
pub(super) fn from_half(ty: Type, bits: u16) -> f32 {
    if ty == Type::BF16 { bf16::from_bits(bits).to_f32() } else { f16::from_bits(bits).to_f32() }
}

/// `value` rounded to odd: of the two values around it, the one with a last bit of 1. So what was cut off still shows,
/// and rounding once more to half precision is right.
fn odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || near.to_bits() & 1 == 1 {
        near
    } else if back < value {
        near.next_up()
    } else {
        near.next_down()
    }
}

/// As [`odd`], of an integer in double precision, which has not all of its bits.
pub(super) fn odd_of_integer(value: i128) -> f64 {
    let near = value as f64;
    let off = value - near as i128;
    if off == 0 || near.to_bits() & 1 == 1 {
        near
    } else if off > 0 {
        near.next_up()
    } else {
        near.next_down()
    }
}

/// To half precision, to nearest. The `half` crate's own way from double precision takes a detour through single
/// precision on some processors, and forgets the lower half of the bits on others.
pub(super) fn to_half(ty: Type, value: f64) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let value = odd(value);
    if ty == Type::BF16 { bf16::from_f32(value).to_bits() } else { f16::from_f32(value).to_bits() }
}

/// To half precision, with a rounding.
pub(super) fn round_half(ty: Type, value: f32, round: Round) -> u16 {
    let near = to_half(ty, value.into());
    if round != Round::Zero || value.is_nan() {
        return near;
    }
    // Of a value's bits without the sign, one less is one step towards zero.
    if from_half(ty, near).abs() > value.abs() { near - 1 } else { near }
}

/// The shape of an 8-bit format.
struct Eight {
    mantissa: i32,
    bias: i32,
    largest: f64,
    nan: u8,
}

fn eight(ty: Type) -> Eight {
    if matches!(ty, Type::E4M3 | Type::E4M3x2) {
        Eight { mantissa: 3, bias: 7, largest: 448.0, nan: 0x7f }
    } else {
        Eight { mantissa: 2, bias: 15, largest: 57_344.0, nan: 0x7f }
    }
}

/// To E4M3 or E5M2, to nearest, what is too large to the largest finite value: `.rn.satfinite`.
pub(super) fn to_eight(ty: Type, value: f32) -> u8 {
    let Eight { mantissa, bias, largest, nan } = eight(ty);
    if value.is_nan() {
        return nan;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = f64::from(value.abs()).min(largest);
    // Below the smallest normal value the steps get no smaller.
    let exponent = if size == 0.0 { 1 - bias } else { (size.log2().floor() as i32).max(1 - bias) };
    let steps = (size * 2f64.powi(mantissa - exponent)).round_ties_even();
    let whole = (steps * 2f64.powi(exponent - mantissa)).min(largest);
    let steps = whole * 2f64.powi(mantissa - exponent);
    // A full mantissa carries into the exponent by itself.
    let bits = (exponent + bias - 1) * (1 << mantissa) + steps as i32;
    sign | bits as u8
}

/// An E4M3 or E5M2 value, exactly.
pub(super) fn from_eight(ty: Type, bits: u8) -> f32 {
    let Eight { mantissa, bias, .. } = eight(ty);
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (size, ones) = (i32::from(bits & 0x7f), (1 << mantissa) - 1);
    let (exponent, fraction) = (size >> mantissa, size & ones);
    if matches!(ty, Type::E4M3 | Type::E4M3x2) {
        if size == 0x7f {
            return f32::NAN;
        }
    } else if exponent == 31 {
        return if fraction == 0 { sign * f32::INFINITY } else { f32::NAN };
    }
    let (whole, exponent) =
        if exponent == 0 { (fraction, 1) } else { (fraction | 1 << mantissa, exponent) };
    (f64::from(sign) * f64::from(whole) * 2f64.powi(exponent - bias - mantissa)) as f32
}
