//! Arithmetic, logic, comparisons, conversions and moves: what each lane does by itself.

use super::{Decoded, Decoder, forms};
use crate::isa::{Alu, AluOp, Compare, Connective, Convert, FloatTest, Op, Operand, Round, Type};
use crate::parse::operand::Raw;
use crate::parse::words::Words;

const CONNECTIVES: [(&str, Connective); 3] =
    [("and", Connective::And), ("or", Connective::Or), ("xor", Connective::Xor)];

impl<'a> Decoder<'_, 'a> {
    pub(super) fn arithmetic(&mut self, words: &mut Words<'a>) -> Decoded {
        match words.name {
            "mov" => self.mov(words),
            "cvt" => self.convert(words),
            "setp" => self.set_predicate(words),
            "set" => self.set(words),
            "selp" => {
                let ty = words.ty()?;
                self.arity(&[4])?;
                let (a, b) = (self.src(1, ty)?, self.src(2, ty)?);
                Ok(Op::Select { dst: self.dst(0)?, a, b, condition: self.condition(3)? })
            }
            "testp" => {
                let test = words.one_of(&[
                    ("finite", FloatTest::Finite),
                    ("infinite", FloatTest::Infinite),
                    ("number", FloatTest::Number),
                    ("notanumber", FloatTest::NotANumber),
                    ("normal", FloatTest::Normal),
                    ("subnormal", FloatTest::Subnormal),
                ]);
                let test = test.ok_or("`testp` needs a test, such as `.finite`")?;
                let ty = words.ty()?;
                if !matches!(ty, Type::F32 | Type::F64) {
                    return Err("`testp` is not there for this type".into());
                }
                Ok(Op::PredTest { test, ty, dst: self.pred_dst(0)?, a: self.src(1, ty)? })
            }
            "bfi" => {
                let ty = words.ty()?;
                self.arity(&[5])?;
                let (a, b) = (self.src(1, ty)?, self.src(2, ty)?);
                let (start, length) = (self.src(3, Type::U32)?, self.src(4, Type::U32)?);
                Ok(Op::InsertBits { ty, dst: self.dst(0)?, a, b, start, length })
            }
            "and" | "or" | "xor" | "not" if self.is_predicate(0) => self.predicate_logic(words),
            _ => self.alu(words),
        }
    }

    fn alu(&mut self, words: &mut Words<'a>) -> Decoded {
        use AluOp::*;
        let name = words.name;
        let round = words.round().unwrap_or(Round::Nearest);
        let (mut ftz, saturate) = (words.take("ftz"), words.take("sat"));
        // `approx` and `full` allow any of several results; the interpreter gives the nearest one.
        words.ignore(&["approx", "full", "noftz"]);
        let nan = words.take("NaN");
        let wide = words.take("wide");
        let high = words.take("hi");
        words.take("lo");
        let mode = |words: &mut Words<'_>| words.one_of(&[("wrap", true), ("clamp", false)]);
        let shift_left = name == "shf" && words.take("l");
        let shift_right = name == "shf" && words.take("r");
        let wraps = mode(words);
        let relu = name == "fma" && words.take("relu");
        let from_top = words.take("shiftamt");
        let ty = words.ty()?;
        let integer = !ty.is_float();
        let (op, count) = match name {
            "add" => (Add, 2),
            "sub" => (Sub, 2),
            "mul" if wide => (MulWide, 2),
            "mul" if high => (MulHi, 2),
            "mul" => (Mul, 2),
            "mad" if wide => (MadWide, 3),
            "mad" if high => (MadHi, 3),
            "mad" if integer => (Mad, 3),
            "mad" | "fma" => (if relu { FmaRelu } else { Fma }, 3),
            "div" => (Div, 2),
            "rem" => (Rem, 2),
            "min" => (if nan { MinNan } else { Min }, 2),
            "max" => (if nan { MaxNan } else { Max }, 2),
            "neg" => (Neg, 1),
            "abs" => (Abs, 1),
            "sqrt" => (Sqrt, 1),
            "rcp" => (Rcp, 1),
            "rsqrt" => (Rsqrt, 1),
            "ex2" => (Ex2, 1),
            "lg2" => (Lg2, 1),
            "sin" => (Sin, 1),
            "cos" => (Cos, 1),
            "tanh" => (Tanh, 1),
            "copysign" => (CopySign, 2),
            "and" => (And, 2),
            "or" => (Or, 2),
            "xor" => (Xor, 2),
            "not" => (Not, 1),
            "cnot" => (CNot, 1),
            "shl" => (Shl, 2),
            "shr" => (Shr, 2),
            "shf" if shift_left || shift_right => {
                let wraps = wraps.ok_or("`shf` needs `.wrap` or `.clamp`")?;
                (if shift_left { ShfLeft(wraps) } else { ShfRight(wraps) }, 3)
            }
            "lop3" => (Lop3(0), 3),
            "prmt" => (Prmt, 3),
            "bfe" => (Bfe, 3),
            "popc" => (Popc, 1),
            "clz" => (Clz, 1),
            "brev" => (Brev, 1),
            "bfind" => (Bfind(from_top), 1),
            "sad" => (Sad, 3),
            "dp4a" => {
                let other = words.ty()?;
                (Dp4a(ty.is_signed(), other.is_signed()), 3)
            }
            _ => return Err(format!("the interpreter does not know this form of `{name}`")),
        };
        forms::check(name, op, ty)?;
        let directed = ty == Type::F32
            && [Add, Sub, Mul, Fma, FmaRelu, Div, Sqrt, Rcp].contains(&op)
            && round != Round::Away;
        if round != Round::Nearest && !directed {
            return Err(format!("the interpreter knows `{name}` of this type to nearest alone"));
        }
        if wide && ty.bytes() > 4 {
            return Err(format!("`{name}` is not there for this type"));
        }
        // sm_20 and later: only f32 (and f16) can flush.
        ftz &= ty != Type::F64;
        let with_lut = usize::from(matches!(op, Lop3(_)));
        self.arity(&[1 + count + with_lut])?;
        let op = match (op, self.operands.last()) {
            (Lop3(_), Some(Raw::Integer(table))) => Lop3(*table as u8),
            (Lop3(_), _) => return Err("`lop3` needs its table as a constant".into()),
            (op, _) => op,
        };
        let mut sources = [Operand::Constant(0); 3];
        for (index, source) in sources.iter_mut().enumerate().take(count) {
            let ty = match (op, index) {
                // Amounts of shifts and positions are 32 bits wide whatever is shifted.
                (Shl | Shr, 1) | (Bfe, 1 | 2) => Type::U32,
                (ShfLeft(_) | ShfRight(_) | Prmt, _) => Type::B32,
                (MadWide, 2) => wider(ty),
                (Dp4a(..), _) => Type::B32,
                _ => ty,
            };
            *source = self.src(index + 1, ty)?;
        }
        let [a, b, c] = sources;
        Ok(Op::Alu(Alu { op, ty, round, ftz, saturate, dst: self.dst(0)?, a, b, c }))
    }

    fn mov(&mut self, words: &mut Words<'a>) -> Decoded {
        let ty = words.ty()?;
        self.arity(&[2])?;
        if ty == Type::Pred {
            return Ok(Op::PredMove { dst: self.pred_dst(0)?, a: self.condition(1)? });
        }
        let part = |count: usize| match ty.bits() / count.max(1) as u32 {
            64 => Ok(Type::B64),
            32 => Ok(Type::B32),
            16 => Ok(Type::B16),
            8 => Ok(Type::B8),
            _ => Err(format!("{} bits cannot be split into {count}", ty.bits())),
        };
        match (self.raw(0)?, self.raw(1)?) {
            (_, Raw::Vector(parts)) => {
                let each = part(parts.len())?;
                let parts = self.srcs(1, each)?;
                Ok(Op::Pack { bits: each.bits(), dst: self.dst(0)?, parts })
            }
            (Raw::Vector(parts), _) => {
                let each = part(parts.len())?;
                Ok(Op::Unpack {
                    bits: each.bits(),
                    dst: self.dsts_or_sinks(0)?,
                    a: self.src(1, ty)?,
                })
            }
            _ => {
                let (a, zero) = (self.src(1, ty)?, Operand::Constant(0));
                let (op, round, dst) = (AluOp::Mov, Round::Nearest, self.dst(0)?);
                Ok(Op::Alu(Alu {
                    op,
                    ty,
                    round,
                    ftz: false,
                    saturate: false,
                    dst,
                    a,
                    b: zero,
                    c: zero,
                }))
            }
        }
    }

    fn convert(&mut self, words: &mut Words<'a>) -> Decoded {
        let integral = [
            ("rni", Round::Nearest),
            ("rzi", Round::Zero),
            ("rmi", Round::Down),
            ("rpi", Round::Up),
        ];
        let integral = words.one_of(&integral);
        let round = words.round();
        let ftz = words.take("ftz");
        let (saturate, satfinite) = (words.take("sat"), words.take("satfinite"));
        let relu = words.take("relu");
        let (to, from) = (words.ty()?, words.ty()?);
        let pair = matches!(to, Type::F16x2 | Type::BF16x2 | Type::E4M3x2 | Type::E5M2x2)
            && from == Type::F32;
        self.arity(&[if pair { 3 } else { 2 }])?;
        let known = |ty: Type| !matches!(ty, Type::Pred | Type::E4M3 | Type::E5M2);
        let packed =
            |ty: Type| matches!(ty, Type::F16x2 | Type::BF16x2 | Type::E4M3x2 | Type::E5M2x2);
        let eight = |ty: Type| matches!(ty, Type::E4M3x2 | Type::E5M2x2);
        let fits = match (packed(to), packed(from)) {
            (false, false) => true,
            (true, false) => pair,
            (true, true) => eight(to) && from == Type::F16x2 || to == Type::F16x2 && eight(from),
            (false, true) => false,
        };
        if !known(to)
            || !known(from)
            || !fits
            || from == Type::TF32
            || to == Type::TF32 && from != Type::F32
        {
            return Err("the interpreter does not know this conversion".into());
        }
        let single = matches!(from, Type::F32 | Type::F16 | Type::BF16);
        let half = matches!(to, Type::F16 | Type::BF16 | Type::F16x2 | Type::BF16x2) && single;
        let narrows = half || eight(to);
        let rounds = match round {
            None | Some(Round::Nearest) => true,
            Some(Round::Zero) => half || !to.is_float() || matches!(to, Type::F32 | Type::TF32),
            Some(Round::Down | Round::Up) => !to.is_float() || to == Type::F32,
            Some(Round::Away) => to == Type::TF32,
        };
        let saturates = !to.is_float() || to == Type::F32 || half && !pair;
        if !rounds || saturate && !saturates || satfinite && !eight(to) || relu && !narrows {
            return Err("the interpreter does not know these modifiers of this conversion".into());
        }
        let b = if pair { Some(self.src(2, from)?) } else { None };
        let a = self.src(1, from)?;
        // To an integer without a mode: towards zero, as the ISA has it for integers made of floats.
        let to_integer = !to.is_float() && from.is_float();
        let round =
            integral.or(round).unwrap_or(if to_integer { Round::Zero } else { Round::Nearest });
        let integral = integral.is_some() || to_integer;
        let dst = self.dst(0)?;
        Ok(Op::Convert(Convert {
            to,
            from,
            round,
            integral,
            ftz,
            saturate,
            relu,
            dst,
            dst_bytes: self.width(dst),
            a,
            b,
        }))
    }

    fn set_predicate(&mut self, words: &mut Words<'a>) -> Decoded {
        let compare =
            words.one_of(&Compare::WORDS).ok_or("`setp` needs a comparison, such as `.lt`")?;
        let connective = words.one_of(&CONNECTIVES);
        let ftz = words.take("ftz");
        let ty = words.ty()?;
        self.arity(&[if connective.is_some() { 4 } else { 3 }])?;
        let (dst, inverse) = match self.raw(0)? {
            Raw::Pair(dst, inverse) => {
                let inverse = if *inverse == "_" { None } else { Some(self.predicate(inverse)?) };
                (self.predicate(dst)?, inverse)
            }
            _ => (self.pred_dst(0)?, None),
        };
        let with = match connective {
            Some(connective) => Some((connective, self.condition(3)?)),
            None => None,
        };
        let (a, b) = (self.src(1, ty)?, self.src(2, ty)?);
        if matches!(ty, Type::F16x2 | Type::BF16x2 | Type::Pred) {
            return Err("the interpreter does not know `setp` of this type".into());
        }
        Ok(Op::Compare { compare, ty, ftz, dst, inverse, a, b, with })
    }

    fn set(&mut self, words: &mut Words<'a>) -> Decoded {
        let compare =
            words.one_of(&Compare::WORDS).ok_or("`set` needs a comparison, such as `.lt`")?;
        let ftz = words.take("ftz");
        let (to, ty) = (words.ty()?, words.ty()?);
        self.arity(&[3])?;
        if !matches!(to, Type::F32 | Type::U32 | Type::S32)
            || matches!(ty, Type::F16x2 | Type::BF16x2)
        {
            return Err("the interpreter does not know `set` of these types".into());
        }
        let (a, b) = (self.src(1, ty)?, self.src(2, ty)?);
        Ok(Op::Set { compare, ty, ftz, float: to == Type::F32, dst: self.dst(0)?, a, b })
    }

    fn predicate_logic(&mut self, words: &mut Words<'a>) -> Decoded {
        words.take("pred");
        let dst = self.pred_dst(0)?;
        if words.name == "not" {
            self.arity(&[2])?;
            let a = self.condition(1)?;
            // not a = a xor true
            let b = crate::isa::Condition::Constant(true);
            return Ok(Op::PredLogic { op: Connective::Xor, dst, a, b });
        }
        self.arity(&[3])?;
        let op = CONNECTIVES.iter().find(|(word, _)| *word == words.name).map(|(_, op)| *op);
        let op = op.ok_or("a connective is needed")?;
        Ok(Op::PredLogic { op, dst, a: self.condition(1)?, b: self.condition(2)? })
    }
}

fn wider(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::S32 => Type::S64,
        _ => Type::U64,
    }
}
