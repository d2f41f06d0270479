//! What atomics and reductions make of two values.

use super::float;
use crate::isa::{Combine, Type};

/// As [`combine`]. In global memory a float that is added to counts as zero where it is subnormal, and so do what is added and the
/// sum; in shared memory they do not (PTX ISA, `atom`).
pub(super) fn in_global(how: Combine, ty: Type, old: u64, a: u64, b: u64) -> u64 {
    if (how, ty) != (Combine::Add, Type::F32) {
        return combine(how, ty, old, a, b);
    }
    let [old, a] = [old, a].map(|bits| float::flush(float::single(bits)));
    float::bits(float::flush(old + a))
}

/// What an atomic leaves behind.
pub(super) fn combine(how: Combine, ty: Type, old: u64, a: u64, b: u64) -> u64 {
    if ty.is_float() && how != Combine::Exchange && how != Combine::CompareAndSwap {
        return combine_float(how, ty, old, a);
    }
    let wide = |bits: u64| {
        if ty.is_signed() {
            i128::from(ty.extend(bits) as i64)
        } else {
            i128::from(ty.extend(bits))
        }
    };
    let new = match how {
        Combine::Add => old.wrapping_add(a),
        Combine::Min => {
            if wide(a) < wide(old) {
                a
            } else {
                old
            }
        }
        Combine::Max => {
            if wide(a) > wide(old) {
                a
            } else {
                old
            }
        }
        Combine::And => old & a,
        Combine::Or => old | a,
        Combine::Xor => old ^ a,
        Combine::Exchange => a,
        Combine::CompareAndSwap => {
            if old == a & ty.mask() {
                b
            } else {
                old
            }
        }
        Combine::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Combine::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    };
    new & ty.mask()
}

fn combine_float(how: Combine, ty: Type, old: u64, a: u64) -> u64 {
    let one = |half: Type, old: u64, a: u64| {
        let (x, y) = (float::from_half(half, old as u16), float::from_half(half, a as u16));
        let value = match how {
            Combine::Min => float::min(x, y),
            Combine::Max => float::max(x, y),
            _ => x + y,
        };
        u64::from(float::to_half(half, value.into()))
    };
    match ty {
        Type::F64 => (float::double(old) + float::double(a)).to_bits(),
        Type::F16x2 | Type::BF16x2 => {
            let half = if ty == Type::F16x2 { Type::F16 } else { Type::BF16 };
            one(half, old, a) | one(half, old >> 16, a >> 16) << 16
        }
        Type::F16 | Type::BF16 => one(ty, old, a),
        _ => {
            let (x, y) = (float::single(old), float::single(a));
            float::bits(match how {
                Combine::Min => float::min(x, y),
                Combine::Max => float::max(x, y),
                _ => x + y,
            })
        }
    }
}
