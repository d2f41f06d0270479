//! A statement's operands, resolved: registers, constants, predicates and addresses.

use super::{Decoded, Decoder};
use crate::isa::{Address, Condition, Operand, Pred, Reg, Space, Special, Type};
use crate::parse::module::DYNAMIC;
use crate::parse::names::Named;
use crate::parse::operand::Raw;

impl<'d, 'a> Decoder<'d, 'a> {
    pub(super) fn arity(&self, counts: &[usize]) -> Decoded<()> {
        if counts.contains(&self.operands.len()) {
            return Ok(());
        }
        let right: Vec<String> = counts.iter().map(ToString::to_string).collect();
        Err(format!(
            "it has {} operands; right would be {}",
            self.operands.len(),
            right.join(" or ")
        ))
    }

    pub(super) fn raw(&self, index: usize) -> Decoded<&'d Raw<'a>> {
        self.operands.get(index).ok_or_else(|| format!("operand {} is missing", index + 1))
    }

    pub(super) fn register(&self, name: &str) -> Decoded<Reg> {
        match self.names.register(name) {
            Some(Named::Reg(reg)) => Ok(reg),
            Some(Named::Pred(_)) => Err(format!("`{name}` is a predicate; a register is needed")),
            None => Err(format!("`{name}` is not a register that this kernel declares")),
        }
    }

    pub(super) fn predicate(&self, name: &str) -> Decoded<Pred> {
        match self.names.register(name) {
            Some(Named::Pred(pred)) => Ok(pred),
            Some(Named::Reg(_)) => Err(format!("`{name}` is not a predicate; one is needed")),
            None => Err(format!("`{name}` is not a predicate that this kernel declares")),
        }
    }

    pub(super) fn is_predicate(&self, index: usize) -> bool {
        matches!(self.operands.get(index), Some(Raw::Name(name))
            if matches!(self.names.register(name), Some(Named::Pred(_))))
    }

    pub(super) fn dst_of(&mut self, raw: &Raw<'a>) -> Decoded<Reg> {
        let Raw::Name(name) = raw else { return Err("a result goes to a register".into()) };
        let reg = self.register(name)?;
        self.writes.push(reg);
        Ok(reg)
    }

    pub(super) fn dst(&mut self, index: usize) -> Decoded<Reg> {
        let raw = self.raw(index)?;
        self.dst_of(raw)
    }

    /// A result that `_` throws away.
    pub(super) fn dst_or_sink(&mut self, index: usize) -> Decoded<Option<Reg>> {
        if self.raw(index)? == &Raw::Name("_") { Ok(None) } else { self.dst(index).map(Some) }
    }

    pub(super) fn width(&self, reg: Reg) -> u32 {
        self.names.registers[reg.0 as usize].bytes
    }

    pub(super) fn pred_dst(&self, index: usize) -> Decoded<Pred> {
        match self.raw(index)? {
            Raw::Name(name) => self.predicate(name),
            _ => Err("a predicate is needed for the result".into()),
        }
    }

    pub(super) fn condition(&self, index: usize) -> Decoded<Condition> {
        match self.raw(index)? {
            Raw::Name(name) => Ok(Condition::Pred { pred: self.predicate(name)?, negated: false }),
            Raw::Not(name) => Ok(Condition::Pred { pred: self.predicate(name)?, negated: true }),
            Raw::Integer(value) => Ok(Condition::Constant(*value != 0)),
            _ => Err(format!("operand {} should be a predicate", index + 1)),
        }
    }

    pub(super) fn symbol(&self, name: &str) -> Option<(Space, u64)> {
        let symbol = self.names.symbols.get(name)?;
        let offset = if symbol.offset == DYNAMIC { self.dynamic_start } else { symbol.offset };
        Some((symbol.space, offset))
    }

    /// A value of type `ty`.
    pub(super) fn src_of(&mut self, raw: &Raw<'a>, ty: Type) -> Decoded<Operand> {
        let constant = |bits: u64| Ok(Operand::Constant(bits & ty.mask()));
        match raw {
            Raw::Name(name) => {
                if let Some(special) = Special::parse(name) {
                    return Ok(Operand::Special(special));
                }
                if *name == "WARP_SZ" {
                    return constant(32);
                }
                if let Some((_, offset)) = self.symbol(name) {
                    return constant(offset);
                }
                let reg = self.register(name)?;
                self.reads.push(reg);
                Ok(Operand::Reg(reg))
            }
            Raw::Beyond(name, offset) => match self.symbol(name) {
                Some((_, start)) => constant(start.wrapping_add(*offset as u64)),
                None => Err(format!("`{name}` is not a variable")),
            },
            Raw::Integer(value) if matches!(ty, Type::F32 | Type::F64) && *value != 0 => {
                Err(format!(
                    "{value} is a whole number; a constant of this type is written 0f00000000 or 1.0"
                ))
            }
            Raw::Integer(value) => constant(*value),
            Raw::Single(bits) if ty == Type::F64 => {
                constant(f64::from(f32::from_bits(*bits)).to_bits())
            }
            Raw::Single(bits) => constant(u64::from(*bits)),
            Raw::Double(bits) if ty.bytes() == 4 => {
                constant(u64::from((f64::from_bits(*bits) as f32).to_bits()))
            }
            Raw::Double(bits) => constant(*bits),
            Raw::Not(_) | Raw::Pair(..) | Raw::Vector(_) | Raw::Address { .. } => {
                Err("a register or a constant is needed here".into())
            }
        }
    }

    pub(super) fn src(&mut self, index: usize, ty: Type) -> Decoded<Operand> {
        let raw = self.raw(index)?;
        self.src_of(raw, ty)
    }

    /// The registers of `{…}`, or of one alone.
    pub(super) fn dsts(&mut self, index: usize) -> Decoded<Box<[Reg]>> {
        match self.raw(index)? {
            Raw::Vector(parts) => parts.iter().map(|part| self.dst_of(part)).collect(),
            single => Ok(Box::new([self.dst_of(single)?])),
        }
    }

    /// As [`Self::dsts`], where `_` throws away.
    pub(super) fn dsts_or_sinks(&mut self, index: usize) -> Decoded<Box<[Option<Reg>]>> {
        match self.raw(index)? {
            Raw::Vector(parts) => {
                parts
                    .iter()
                    .map(|part| {
                        if part == &Raw::Name("_") { Ok(None) } else { self.dst_of(part).map(Some) }
                    })
                    .collect()
            }
            _ => Ok(Box::new([self.dst_or_sink(index)?])),
        }
    }

    pub(super) fn srcs(&mut self, index: usize, ty: Type) -> Decoded<Box<[Operand]>> {
        match self.raw(index)? {
            Raw::Vector(parts) => parts.iter().map(|part| self.src_of(part, ty)).collect(),
            single => Ok(Box::new([self.src_of(single, ty)?])),
        }
    }

    /// `[base+offset]`.
    pub(super) fn address(&mut self, index: usize) -> Decoded<Address> {
        match self.raw(index)? {
            Raw::Address { base, offset, at: None } => {
                Ok(Address { base: self.src_of(base, Type::U64)?, offset: *offset })
            }
            _ => Err(format!("operand {} should be an address in brackets", index + 1)),
        }
    }

    /// `[map, {x, y, …}]`.
    pub(super) fn tensor_address(&mut self, index: usize) -> Decoded<(Address, Box<[Operand]>)> {
        match self.raw(index)? {
            Raw::Address { base, offset, at: Some(at) } => {
                let map = Address { base: self.src_of(base, Type::U64)?, offset: *offset };
                let at =
                    at.iter().map(|raw| self.src_of(raw, Type::S32)).collect::<Decoded<_>>()?;
                Ok((map, at))
            }
            _ => Err(format!(
                "operand {} should be a tensor and a place, [map, {{x, y}}]",
                index + 1
            )),
        }
    }

    /// The state space that a symbol used as a base lies in.
    pub(super) fn space_of_base(&self, index: usize) -> Option<Space> {
        match self.operands.get(index)? {
            Raw::Address { base, .. } => match **base {
                Raw::Name(name) => self.symbol(name).map(|(space, _)| space),
                _ => None,
            },
            _ => None,
        }
    }
}
