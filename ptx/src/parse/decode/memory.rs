//! Loads, stores, atomics and addresses.

use super::collective::COMBINATIONS;
use super::{Decoded, Decoder};
use crate::isa::{Alu, AluOp, Combine, Op, Operand, Round, Space, Type};
use crate::parse::operand::Raw;
use crate::parse::words::Words;

/// Words about ordering, caches and coherence: every access here is seen by everyone at once.
const HINTS: [&str; 26] = [
    "nc",
    "ca",
    "cg",
    "cs",
    "cv",
    "lu",
    "wb",
    "wt",
    "volatile",
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "mmio",
    "cta",
    "gpu",
    "sys",
    "cluster",
    "L1::evict_normal",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
];

impl<'a> Decoder<'_, 'a> {
    /// The space that is named, that of the variable that is the base, or generic.
    fn access(&self, words: &mut Words<'a>, address: usize) -> (Space, usize) {
        words.ignore(&HINTS);
        let space = words.space().or_else(|| self.space_of_base(address)).unwrap_or(Space::Generic);
        (space, words.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1))
    }

    fn of_vector(&self, index: usize, count: usize) -> Decoded<()> {
        let found = match self.raw(index)? {
            Raw::Vector(parts) => parts.len(),
            _ => 1,
        };
        if found == count { Ok(()) } else { Err(format!("{found} registers for {count} values")) }
    }

    pub(super) fn load(&mut self, words: &mut Words<'a>) -> Decoded {
        let (space, count) = self.access(words, 1);
        let ty = words.ty()?;
        self.arity(&[2])?;
        self.of_vector(0, count)?;
        let dst = self.dsts_or_sinks(0)?;
        let dst_bytes =
            dst.iter().flatten().map(|reg| self.width(*reg)).max().unwrap_or(ty.bytes());
        if ty.bytes() * count as u32 > 16 {
            return Err("a load has at most 16 bytes".into());
        }
        Ok(Op::Load { space, ty, dst_bytes, dst, from: self.address(1)? })
    }

    pub(super) fn store(&mut self, words: &mut Words<'a>) -> Decoded {
        let (space, count) = self.access(words, 0);
        let ty = words.ty()?;
        self.arity(&[2])?;
        self.of_vector(1, count)?;
        if ty.bytes() * count as u32 > 16 {
            return Err("a store has at most 16 bytes".into());
        }
        Ok(Op::Store { space, ty, src: self.srcs(1, ty)?, to: self.address(0)? })
    }

    pub(super) fn atomic(&mut self, words: &mut Words<'a>) -> Decoded {
        let returns = words.name == "atom";
        let (space, _) = self.access(words, usize::from(returns));
        words.take("noftz");
        let of_a_place = [
            ("exch", Combine::Exchange),
            ("cas", Combine::CompareAndSwap),
            ("inc", Combine::Increment),
            ("dec", Combine::Decrement),
        ];
        let combine = words.one_of(&COMBINATIONS).or_else(|| words.one_of(&of_a_place));
        let combine = combine.ok_or("an atomic needs an operation, such as `.add`")?;
        let ty = words.ty()?;
        if ty.bytes() < 2 || matches!(ty, Type::TF32 | Type::E4M3x2 | Type::E5M2x2) {
            return Err("atomics are not there for this type".into());
        }
        let first = usize::from(returns);
        let swaps = combine == Combine::CompareAndSwap;
        self.arity(&[first + 2 + usize::from(swaps)])?;
        let a = self.src(first + 1, ty)?;
        let b = if swaps { self.src(first + 2, ty)? } else { Operand::Constant(0) };
        let at = self.address(first)?;
        let dst = if returns { self.dst_or_sink(0)? } else { None };
        Ok(Op::Atomic { space, combine, ty, dst, at, a, b })
    }

    pub(super) fn convert_address(&mut self, words: &mut Words<'a>) -> Decoded {
        let to_space = words.take("to");
        let space = words.space().ok_or("`cvta` needs a state space")?;
        let ty = words.ty()?;
        self.arity(&[2])?;
        Ok(Op::ConvertAddress {
            space,
            to_generic: !to_space,
            dst: self.dst(0)?,
            a: self.src(1, ty)?,
        })
    }

    /// `mapa`: without clusters the only block to map to is the own one.
    pub(super) fn map_address(&mut self, words: &mut Words<'a>) -> Decoded {
        words.space();
        let ty = words.ty()?;
        self.arity(&[3])?;
        let rank = self.src(2, Type::U32)?;
        if matches!(rank, Operand::Constant(rank) if rank != 0) {
            return Err("the interpreter runs blocks without clusters: only rank 0 is there".into());
        }
        let (a, zero) = (self.src(1, ty)?, Operand::Constant(0));
        let (op, round, dst) = (AluOp::Mov, Round::Nearest, self.dst(0)?);
        Ok(Op::Alu(Alu { op, ty, round, ftz: false, saturate: false, dst, a, b: zero, c: zero }))
    }
}
