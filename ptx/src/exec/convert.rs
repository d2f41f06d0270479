//! Conversions between types.

use super::Lanes;
use super::float;
use crate::isa::{Convert, Round, Type};

/// The result in every lane; `b` is the lower half of a packed one.
pub(super) fn convert(i: &Convert, a: &Lanes, b: &Lanes) -> Lanes {
    std::array::from_fn(|l| one(i, a[l], b[l]))
}

fn one(i: &Convert, a: u64, b: u64) -> u64 {
    match i.to {
        Type::F16x2 if i.from != Type::F32 => {
            let half = |bits: u64| {
                u64::from(float::to_half(Type::F16, float::from_eight(i.from, bits as u8).into()))
            };
            return half(a) | half(a >> 8) << 16;
        }
        Type::F16x2 => return narrow(i, Type::F16, b) | narrow(i, Type::F16, a) << 16,
        Type::BF16x2 => return narrow(i, Type::BF16, b) | narrow(i, Type::BF16, a) << 16,
        Type::E4M3x2 | Type::E5M2x2 if i.from == Type::F16x2 => {
            let eight = |bits: u64| {
                let value = float::from_half(Type::F16, bits as u16);
                u64::from(float::to_eight(i.to, relu(i, value)))
            };
            return eight(a) | eight(a >> 16) << 8;
        }
        Type::E4M3x2 | Type::E5M2x2 => {
            let eight = |bits: u64| u64::from(float::to_eight(i.to, relu(i, float::single(bits))));
            return eight(b) | eight(a) << 8;
        }
        _ => {}
    }
    if !i.from.is_float() {
        let value = if i.from.is_signed() {
            i128::from(i.from.extend(a) as i64)
        } else {
            i128::from(i.from.extend(a))
        };
        return from_integer(i, value);
    }
    let value = match i.from {
        Type::F64 => float::double(a),
        Type::F32 => {
            let value = float::single(a);
            (if i.ftz { float::flush(value) } else { value }).into()
        }
        from => float::from_half(from, a as u16).into(),
    };
    let value = if i.integral { integral(value, i.round) } else { value };
    if !i.to.is_float() {
        return to_integer(value, i);
    }
    match i.to {
        Type::F64 => value.to_bits(),
        Type::F32 => {
            let value =
                if i.from == Type::F64 { round_single(value, i.round) } else { value as f32 };
            let value = if i.ftz { float::flush(value) } else { value };
            float::bits(if i.saturate { float::saturate(value) } else { value })
        }
        Type::TF32 => to_tf32(value as f32, i.round),
        to => {
            let single = value as f32;
            let single = if i.saturate { float::saturate(single) } else { single };
            if i.from == Type::F64 {
                u64::from(float::to_half(to, value))
            } else {
                half(i, to, single)
            }
        }
    }
}

fn relu(i: &Convert, value: f32) -> f32 {
    if i.relu && !value.is_nan() { value.max(0.0) } else { value }
}

fn narrow(i: &Convert, ty: Type, bits: u64) -> u64 {
    half(i, ty, float::single(bits))
}

fn half(i: &Convert, ty: Type, value: f32) -> u64 {
    u64::from(float::round_half(ty, relu(i, value), i.round))
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Away => value.round(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

/// What does not fit becomes the nearest that does. NaN becomes 0, or the highest bit alone where one of the two types
/// has 64 bits.
fn to_integer(value: f64, i: &Convert) -> u64 {
    let to = i.to;
    let wide = i.from == Type::F64 || matches!(to, Type::S64 | Type::U64);
    let found = match to {
        _ if value.is_nan() && wide => to.extend(1 << (to.bits() - 1)),
        Type::S8 => i64::from(value as i8) as u64,
        Type::S16 => i64::from(value as i16) as u64,
        Type::S32 => i64::from(value as i32) as u64,
        Type::S64 => value as i64 as u64,
        Type::U8 => u64::from(value as u8),
        Type::U16 => u64::from(value as u16),
        Type::U32 => u64::from(value as u32),
        _ => value as u64,
    };
    in_register(found, i)
}

/// A value that has been widened to 64 bits, cut to the register that it goes to.
fn in_register(value: u64, i: &Convert) -> u64 {
    value & (u64::MAX >> (64 - 8 * i.dst_bytes))
}

fn from_integer(i: &Convert, value: i128) -> u64 {
    match i.to {
        Type::F64 => (value as f64).to_bits(),
        Type::F32 => {
            let near = value as f32;
            let off = value - near as i128;
            let found = match i.round {
                Round::Up if off > 0 => near.next_up(),
                Round::Down if off < 0 => near.next_down(),
                Round::Zero if off < 0 && value > 0 => near.next_down(),
                Round::Zero if off > 0 && value < 0 => near.next_up(),
                _ => near,
            };
            float::bits(if i.saturate { float::saturate(found) } else { found })
        }
        Type::F16 | Type::BF16 => u64::from(float::to_half(i.to, float::odd_of_integer(value))),
        to => {
            let bits = to.bits();
            let (least, most) = match (i.saturate, to.is_signed()) {
                (false, _) => (i128::MIN, i128::MAX),
                (true, true) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                (true, false) => (0, (1i128 << bits) - 1),
            };
            in_register(to.extend(value.clamp(least, most) as u64), i)
        }
    }
}

fn round_single(value: f64, round: Round) -> f32 {
    let near = value as f32;
    let off = value - f64::from(near);
    match round {
        Round::Up if off > 0.0 => near.next_up(),
        Round::Down if off < 0.0 => near.next_down(),
        Round::Zero if off < 0.0 && value > 0.0 => near.next_down(),
        Round::Zero if off > 0.0 && value < 0.0 => near.next_up(),
        _ => near,
    }
}

/// 10 bits of mantissa; ties go away from zero with `rna`.
fn to_tf32(value: f32, round: Round) -> u64 {
    let bits = value.to_bits();
    if !value.is_finite() {
        return float::bits(value);
    }
    let rest = bits & 0x1fff;
    let up = match round {
        Round::Away => rest >= 0x1000,
        Round::Nearest => rest > 0x1000 || rest == 0x1000 && bits & 0x2000 != 0,
        _ => false,
    };
    u64::from((bits & !0x1fff) + if up { 0x2000 } else { 0 })
}
