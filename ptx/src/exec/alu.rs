//! What each lane computes by itself.

use super::Lanes;
use super::float;
use crate::isa::{Alu, AluOp, Compare, FloatTest, Round, Type};

/// One function for each lane.
fn each(f: impl Fn(usize) -> u64) -> Lanes {
    std::array::from_fn(f)
}

/// The result of an instruction in every lane, in use or not. What there is not of a type was not decoded.
pub(super) fn alu(i: &Alu, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    match i.ty {
        Type::F32 => single(i, a, b, c),
        Type::F64 => double(i, a, b, c),
        Type::F16 | Type::BF16 => {
            each(|l| u64::from(half(i, i.ty, a[l] as u16, b[l] as u16, c[l] as u16)))
        }
        Type::F16x2 | Type::BF16x2 => {
            let ty = if i.ty == Type::F16x2 { Type::F16 } else { Type::BF16 };
            each(|l| {
                let low = half(i, ty, a[l] as u16, b[l] as u16, c[l] as u16);
                let high =
                    half(i, ty, (a[l] >> 16) as u16, (b[l] >> 16) as u16, (c[l] >> 16) as u16);
                u64::from(low) | u64::from(high) << 16
            })
        }
        _ => integer(i, a, b, c),
    }
}

fn single(i: &Alu, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let (ftz, saturate, round) = (i.ftz, i.saturate, i.round);
    let read = |bits: u64| {
        let value = float::single(bits);
        if ftz { float::flush(value) } else { value }
    };
    let write = |value: f32| {
        let value = if ftz { float::flush(value) } else { value };
        float::bits(if saturate { float::saturate(value) } else { value })
    };
    let unary = |f: fn(f32) -> f32| each(|l| write(f(read(a[l]))));
    // The most frequent ones without a branch in their loops, so that they become vector instructions.
    if !ftz && !saturate && round == Round::Nearest {
        match i.op {
            AluOp::Add => return each(|l| float::bits(float::single(a[l]) + float::single(b[l]))),
            AluOp::Sub => return each(|l| float::bits(float::single(a[l]) - float::single(b[l]))),
            AluOp::Mul => return each(|l| float::bits(float::single(a[l]) * float::single(b[l]))),
            _ => {}
        }
    }
    match i.op {
        AluOp::Mov => *a,
        AluOp::Add => each(|l| write(float::add(read(a[l]), read(b[l]), round))),
        AluOp::Sub => each(|l| write(float::add(read(a[l]), -read(b[l]), round))),
        AluOp::Mul => each(|l| write(float::mul(read(a[l]), read(b[l]), round))),
        AluOp::Fma | AluOp::Mad => {
            each(|l| write(float::fma(read(a[l]), read(b[l]), read(c[l]), round)))
        }
        AluOp::Div => each(|l| write(float::div(read(a[l]), read(b[l]), round))),
        AluOp::Min => each(|l| write(float::min(read(a[l]), read(b[l])))),
        AluOp::Max => each(|l| write(float::max(read(a[l]), read(b[l])))),
        AluOp::MinNan => each(|l| write(nan_first(read(a[l]), read(b[l]), float::min))),
        AluOp::MaxNan => each(|l| write(nan_first(read(a[l]), read(b[l]), float::max))),
        AluOp::Neg => unary(|a| -a),
        AluOp::Abs => unary(f32::abs),
        AluOp::Sqrt => each(|l| write(float::sqrt(read(a[l]), round))),
        AluOp::Rcp => each(|l| write(float::div(1.0, read(a[l]), round))),
        // Devices give one of several results within 2^-22 or so. Here it is the exact value, rounded once.
        AluOp::Rsqrt => unary(|a| (1.0 / f64::from(a).sqrt()) as f32),
        AluOp::Ex2 => unary(|a| libm::exp2(a.into()) as f32),
        AluOp::Lg2 => unary(|a| libm::log2(a.into()) as f32),
        AluOp::Sin => unary(|a| libm::sin(a.into()) as f32),
        AluOp::Cos => unary(|a| libm::cos(a.into()) as f32),
        AluOp::Tanh => unary(|a| libm::tanh(a.into()) as f32),
        AluOp::CopySign => each(|l| float::bits(float::single(b[l]).copysign(float::single(a[l])))),
        _ => [0; 32],
    }
}

fn nan_first(a: f32, b: f32, of: fn(f32, f32) -> f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { of(a, b) }
}

fn double(i: &Alu, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let d = float::double;
    let unary = |f: fn(f64) -> f64| each(|l| f(d(a[l])).to_bits());
    match i.op {
        AluOp::Mov => *a,
        AluOp::Add => each(|l| (d(a[l]) + d(b[l])).to_bits()),
        AluOp::Sub => each(|l| (d(a[l]) - d(b[l])).to_bits()),
        AluOp::Mul => each(|l| (d(a[l]) * d(b[l])).to_bits()),
        AluOp::Fma => each(|l| d(a[l]).mul_add(d(b[l]), d(c[l])).to_bits()),
        AluOp::Div => each(|l| (d(a[l]) / d(b[l])).to_bits()),
        AluOp::Min => each(|l| d(a[l]).min(d(b[l])).to_bits()),
        AluOp::Max => each(|l| d(a[l]).max(d(b[l])).to_bits()),
        AluOp::Neg => unary(|a| -a),
        AluOp::Abs => unary(f64::abs),
        AluOp::Sqrt => unary(f64::sqrt),
        AluOp::Rcp => unary(|a| 1.0 / a),
        AluOp::Rsqrt => unary(|a| 1.0 / a.sqrt()),
        AluOp::CopySign => each(|l| d(b[l]).copysign(d(a[l])).to_bits()),
        _ => [0; 32],
    }
}

/// Half precision. Single precision has more than twice the bits and two, so sums and products rounded twice are right.
fn half(i: &Alu, ty: Type, a: u16, b: u16, c: u16) -> u16 {
    let flush = |bits| if i.ftz { float::flush_half(ty, bits) } else { bits };
    let read = |bits| float::from_half(ty, flush(bits));
    let write = |value: f64| {
        let value = if i.saturate { float::saturate_double(value) } else { value };
        flush(float::to_half(ty, value))
    };
    let (x, y, z) = (read(a), read(b), read(c));
    match i.op {
        AluOp::Mov => a,
        AluOp::Add => write((x + y).into()),
        AluOp::Sub => write((x - y).into()),
        AluOp::Mul => write((x * y).into()),
        AluOp::Fma => write(float::fma_odd(x.into(), y.into(), z.into())),
        AluOp::FmaRelu => match float::fma_odd(x.into(), y.into(), z.into()) {
            negative if negative <= 0.0 => write(0.0),
            found => write(found),
        },
        AluOp::Min => write(float::min(x, y).into()),
        AluOp::Max => write(float::max(x, y).into()),
        AluOp::MinNan => write(nan_first(x, y, float::min).into()),
        AluOp::MaxNan => write(nan_first(x, y, float::max).into()),
        AluOp::Neg => flush(a) ^ 0x8000,
        AluOp::Abs => flush(a) & 0x7fff,
        AluOp::Ex2 => write(libm::exp2(x.into())),
        AluOp::Tanh => write(libm::tanh(x.into())),
        _ => 0,
    }
}

fn integer(i: &Alu, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let (ty, mask, bits) = (i.ty, i.ty.mask(), i.ty.bits());
    let signed = ty.is_signed();
    let ext = |value: u64| ty.extend(value);
    let wide =
        |value: u64| if signed { i128::from(ext(value) as i64) } else { i128::from(ext(value)) };
    let low = |l: usize| wide(a[l]).wrapping_mul(wide(b[l]));
    let amount = |l: usize| (b[l] as u32).min(64);
    match i.op {
        AluOp::Mov => each(|l| a[l] & mask),
        AluOp::Add if i.saturate => each(|l| clamp(wide(a[l]) + wide(b[l]), ty)),
        AluOp::Sub if i.saturate => each(|l| clamp(wide(a[l]) - wide(b[l]), ty)),
        AluOp::Add => each(|l| a[l].wrapping_add(b[l]) & mask),
        AluOp::Sub => each(|l| a[l].wrapping_sub(b[l]) & mask),
        AluOp::Mul => each(|l| a[l].wrapping_mul(b[l]) & mask),
        AluOp::MulHi => each(|l| (low(l) >> bits) as u64 & mask),
        AluOp::MulWide => each(|l| ext(a[l]).wrapping_mul(ext(b[l])) & wide_mask(bits)),
        AluOp::Mad => each(|l| a[l].wrapping_mul(b[l]).wrapping_add(c[l]) & mask),
        AluOp::MadHi if i.saturate => each(|l| clamp((low(l) >> bits) + wide(c[l]), ty)),
        AluOp::MadHi => each(|l| ((low(l) >> bits) as u64).wrapping_add(c[l]) & mask),
        AluOp::MadWide => {
            each(|l| ext(a[l]).wrapping_mul(ext(b[l])).wrapping_add(c[l]) & wide_mask(bits))
        }
        // The ISA leaves division by zero open; devices give all ones.
        AluOp::Div => {
            each(|l| wide(a[l]).checked_div(wide(b[l])).map_or(mask, |found| found as u64 & mask))
        }
        AluOp::Rem => {
            each(|l| wide(a[l]).checked_rem(wide(b[l])).map_or(mask, |found| found as u64 & mask))
        }
        AluOp::Min => each(|l| wide(a[l]).min(wide(b[l])) as u64 & mask),
        AluOp::Max => each(|l| wide(a[l]).max(wide(b[l])) as u64 & mask),
        AluOp::Neg => each(|l| a[l].wrapping_neg() & mask),
        AluOp::Abs => each(|l| wide(a[l]).unsigned_abs() as u64 & mask),
        AluOp::And => each(|l| a[l] & b[l]),
        AluOp::Or => each(|l| a[l] | b[l]),
        AluOp::Xor => each(|l| a[l] ^ b[l]),
        AluOp::Not => each(|l| !a[l] & mask),
        AluOp::CNot => each(|l| u64::from(a[l] & mask == 0)),
        AluOp::Shl => each(|l| a[l].checked_shl(amount(l)).unwrap_or(0) & mask),
        AluOp::Shr if signed => each(|l| ((ext(a[l]) as i64) >> amount(l).min(63)) as u64 & mask),
        AluOp::Shr => each(|l| ext(a[l]).checked_shr(amount(l)).unwrap_or(0)),
        AluOp::ShfLeft(wraps) => each(|l| funnel(a[l], b[l], c[l], wraps, true)),
        AluOp::ShfRight(wraps) => each(|l| funnel(a[l], b[l], c[l], wraps, false)),
        AluOp::Lop3(table) => each(|l| lop3(a[l], b[l], c[l], table) & mask),
        AluOp::Prmt => each(|l| prmt(a[l], b[l], c[l])),
        AluOp::Bfe => each(|l| extract(ty, a[l], b[l] as u32 & 0xff, c[l] as u32 & 0xff)),
        AluOp::Popc => each(|l| u64::from((a[l] & mask).count_ones())),
        AluOp::Clz => each(|l| u64::from((a[l] & mask).leading_zeros() - (64 - bits))),
        AluOp::Brev => each(|l| a[l].reverse_bits() >> (64 - bits)),
        AluOp::Bfind(from_top) => each(|l| find_bit(ty, a[l], from_top)),
        AluOp::Sad => each(|l| (wide(c[l]) + (wide(a[l]) - wide(b[l])).abs()) as u64 & mask),
        AluOp::Dp4a(a_signed, b_signed) => each(|l| dp4a(a[l], b[l], c[l], a_signed, b_signed)),
        _ => [0; 32],
    }
}

/// The bits of a result that is twice as wide.
fn wide_mask(bits: u32) -> u64 {
    u64::MAX >> (64 - 2 * bits.min(32))
}

fn clamp(value: i128, ty: Type) -> u64 {
    let bits = ty.bits();
    let (least, most) = if ty.is_signed() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    value.clamp(least, most) as u64 & ty.mask()
}

fn funnel(a: u64, b: u64, c: u64, wraps: bool, left: bool) -> u64 {
    let both = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    let amount = if wraps { c & 31 } else { (c & 0xffff_ffff).min(32) };
    if left { both << amount >> 32 } else { both >> amount & 0xffff_ffff }
}

/// Every bit by a table of eight: which of `a`, `b`, `c` are set there.
fn lop3(a: u64, b: u64, c: u64, table: u8) -> u64 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |found, row| {
        let pick = |value: u64, bit: u8| if row >> bit & 1 == 1 { value } else { !value };
        found | pick(a, 2) & pick(b, 1) & pick(c, 0)
    })
}

/// Four bytes of eight; bit 3 of each choice spreads the byte's sign.
fn prmt(a: u64, b: u64, choices: u64) -> u64 {
    let bytes = ((b & 0xffff_ffff) << 32 | a & 0xffff_ffff).to_le_bytes();
    (0..4).fold(0, |found, at| {
        let choice = choices >> (4 * at) & 15;
        let byte = bytes[choice as usize & 7];
        let byte = if choice & 8 == 0 {
            byte
        } else if byte & 0x80 == 0 {
            0
        } else {
            0xff
        };
        found | u64::from(byte) << (8 * at)
    })
}

fn extract(ty: Type, a: u64, start: u32, length: u32) -> u64 {
    let bits = ty.bits();
    if length == 0 {
        return 0;
    }
    // Beyond the top there are copies of the sign, or zeros.
    let wide =
        if ty.is_signed() { i128::from(ty.extend(a) as i64) } else { i128::from(ty.extend(a)) };
    let moved = wide >> start.min(bits);
    if length >= bits {
        return moved as u64 & ty.mask();
    }
    let field = moved as u64 & ((1u64 << length) - 1);
    let negative = ty.is_signed() && field >> (length - 1) & 1 == 1;
    (if negative { field | u64::MAX << length } else { field }) & ty.mask()
}

/// `bfi`.
pub(super) fn insert(ty: Type, a: u64, b: u64, start: u64, length: u64) -> u64 {
    let (start, length) = (start as u32 & 0xff, length as u32 & 0xff);
    if start >= ty.bits() || length == 0 {
        return b & ty.mask();
    }
    let field = if length >= 64 { u64::MAX } else { (1u64 << length) - 1 } << start;
    (b & !field | a << start & field) & ty.mask()
}

fn find_bit(ty: Type, a: u64, from_top: bool) -> u64 {
    let value = ty.extend(a);
    let value = if ty.is_signed() && (value as i64) < 0 { !value } else { value } & ty.mask();
    if value == 0 {
        return 0xffff_ffff;
    }
    let position = 63 - value.leading_zeros();
    u64::from(if from_top { ty.bits() - 1 - position } else { position })
}

fn dp4a(a: u64, b: u64, c: u64, a_signed: bool, b_signed: bool) -> u64 {
    let byte = |value: u64, at: u32, signed: bool| {
        let byte = (value >> (8 * at)) as u8;
        if signed { i64::from(byte as i8) } else { i64::from(byte) }
    };
    let sum: i64 = (0..4).map(|at| byte(a, at, a_signed) * byte(b, at, b_signed)).sum();
    (c as u32 as u64).wrapping_add(sum as u64) & 0xffff_ffff
}

/// Whether a comparison holds, for each lane one bit.
pub(super) fn compare(compare: Compare, ty: Type, ftz: bool, a: &Lanes, b: &Lanes) -> u32 {
    let bits =
        |holds: &dyn Fn(usize) -> bool| (0..32).fold(0, |bits, l| bits | u32::from(holds(l)) << l);
    if ty == Type::F32 && !ftz {
        return bits(&|l| holds(compare, float::single(a[l]).partial_cmp(&float::single(b[l]))));
    }
    if ty.is_float() {
        let value = |bits: u64| match ty {
            Type::F64 => float::double(bits),
            Type::F32 => float::flush(float::single(bits)).into(),
            _ if ftz => float::from_half(ty, float::flush_half(ty, bits as u16)).into(),
            _ => float::from_half(ty, bits as u16).into(),
        };
        return bits(&|l| holds(compare, value(a[l]).partial_cmp(&value(b[l]))));
    }
    if ty.is_signed() {
        return bits(&|l| {
            holds(compare, Some((ty.extend(a[l]) as i64).cmp(&(ty.extend(b[l]) as i64))))
        });
    }
    bits(&|l| holds(compare, Some(ty.extend(a[l]).cmp(&ty.extend(b[l])))))
}

/// `None`: one of the two is NaN.
fn holds(compare: Compare, order: Option<std::cmp::Ordering>) -> bool {
    let Some(order) = order else {
        use Compare::{EqU, GeU, GtU, LeU, LtU, Nan, NeU};
        return matches!(compare, EqU | NeU | LtU | LeU | GtU | GeU | Nan);
    };
    match compare {
        Compare::Eq | Compare::EqU => order.is_eq(),
        Compare::Ne | Compare::NeU => order.is_ne(),
        Compare::Lt | Compare::LtU => order.is_lt(),
        Compare::Le | Compare::LeU => order.is_le(),
        Compare::Gt | Compare::GtU => order.is_gt(),
        Compare::Ge | Compare::GeU => order.is_ge(),
        Compare::Num => true,
        Compare::Nan => false,
    }
}

/// `testp`.
pub(super) fn test(test: FloatTest, ty: Type, a: &Lanes) -> u32 {
    let holds = |value: f64, subnormal: bool| match test {
        FloatTest::Finite => value.is_finite(),
        FloatTest::Infinite => value.is_infinite(),
        FloatTest::Number => !value.is_nan(),
        FloatTest::NotANumber => value.is_nan(),
        // Zero is normal, says the ISA.
        FloatTest::Normal => value.is_finite() && !subnormal,
        FloatTest::Subnormal => subnormal,
    };
    (0..32).fold(0, |bits, l| {
        let found = if ty == Type::F64 {
            holds(float::double(a[l]), float::double(a[l]).is_subnormal())
        } else {
            holds(float::single(a[l]).into(), float::single(a[l]).is_subnormal())
        };
        bits | u32::from(found) << l
    })
}
