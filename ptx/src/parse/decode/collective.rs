//! What the lanes of a warp or the warps of a block do together.

use super::{Decoded, Decoder};
use crate::isa::{BarrierKind, Combine, Connective, Op, Shuffle, Type, Vote};
use crate::parse::operand::Raw;
use crate::parse::words::Words;

/// What `redux`, `red` and `atom` may all do to integers.
pub(super) const COMBINATIONS: [(&str, Combine); 6] = [
    ("add", Combine::Add),
    ("min", Combine::Min),
    ("max", Combine::Max),
    ("and", Combine::And),
    ("or", Combine::Or),
    ("xor", Combine::Xor),
];

impl<'a> Decoder<'_, 'a> {
    pub(super) fn barrier(&mut self, words: &mut Words<'a>) -> Decoded {
        words.ignore(&["cta", "aligned"]);
        if words.take("warp") {
            words.take("sync");
            self.arity(&[1])?;
            return Ok(Op::WarpBarrier { members: self.src(0, Type::B32)? });
        }
        if words.take("cluster") {
            words.ignore(&["release", "relaxed", "acquire"]);
            self.arity(&[0])?;
            return match (words.take("arrive"), words.take("wait")) {
                (true, false) => Ok(Op::ClusterArrive),
                (false, true) => Ok(Op::ClusterWait),
                _ => Err("`barrier.cluster` needs `.arrive` or `.wait`".into()),
            };
        }
        if words.take("sync") {
            self.arity(&[1, 2])?;
            return self.block_barrier(0, BarrierKind::Sync);
        }
        if words.take("arrive") {
            self.arity(&[2])?;
            return self.block_barrier(0, BarrierKind::Arrive);
        }
        if words.take("red") {
            self.arity(&[3, 4])?;
            let value = self.condition(self.operands.len() - 1)?;
            let op = [("and", Connective::And), ("or", Connective::Or)];
            let kind = if words.take("popc") {
                words.take("u32");
                BarrierKind::Count { value, dst: self.dst(0)? }
            } else {
                let op = words.one_of(&op).ok_or("`red` needs `.popc`, `.and` or `.or`")?;
                words.take("pred");
                BarrierKind::Reduce { op, value, dst: self.pred_dst(0)? }
            };
            return self.block_barrier(1, kind);
        }
        Err("a barrier needs `.sync`, `.arrive` or `.red`".into())
    }

    fn block_barrier(&mut self, first: usize, kind: BarrierKind) -> Decoded {
        let id = self.src(first, Type::U32)?;
        let last = match kind {
            BarrierKind::Sync | BarrierKind::Arrive => self.operands.len(),
            _ => self.operands.len() - 1,
        };
        let threads = if last > first + 1 { Some(self.src(first + 1, Type::U32)?) } else { None };
        Ok(Op::Barrier { id, threads, kind })
    }

    pub(super) fn shuffle(&mut self, words: &mut Words<'a>) -> Decoded {
        if !words.take("sync") {
            return Err("`shfl` without `.sync` is not there since PTX 6.4".into());
        }
        let how = words.one_of(&[
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Butterfly),
            ("idx", Shuffle::Index),
        ]);
        let how = how.ok_or("`shfl` needs `.up`, `.down`, `.bfly` or `.idx`")?;
        words.take("b32");
        self.arity(&[5])?;
        let (dst, valid) = match self.raw(0)? {
            Raw::Pair(dst, valid) => (self.dst_of(&Raw::Name(dst))?, Some(self.predicate(valid)?)),
            _ => (self.dst(0)?, None),
        };
        let b32 = Type::B32;
        let (a, lane, clamp) = (self.src(1, b32)?, self.src(2, b32)?, self.src(3, b32)?);
        Ok(Op::Shuffle { how, dst, valid, a, lane, clamp, members: self.src(4, b32)? })
    }

    pub(super) fn vote(&mut self, words: &mut Words<'a>) -> Decoded {
        if !words.take("sync") {
            return Err("`vote` without `.sync` is not there since PTX 6.4".into());
        }
        self.arity(&[3])?;
        let a = self.condition(1)?;
        let members = self.src(2, Type::B32)?;
        if words.take("ballot") {
            words.take("b32");
            return Ok(Op::Ballot { dst: self.dst(0)?, a, members });
        }
        let vote = words.one_of(&[("all", Vote::All), ("any", Vote::Any), ("uni", Vote::Uniform)]);
        let vote = vote.ok_or("`vote` needs `.all`, `.any`, `.uni` or `.ballot`")?;
        words.take("pred");
        Ok(Op::Vote { vote, dst: self.pred_dst(0)?, a, members })
    }

    pub(super) fn matching(&mut self, words: &mut Words<'a>) -> Decoded {
        let all = words.take("all");
        words.ignore(&["any", "sync"]);
        let ty = words.ty()?;
        self.arity(&[3])?;
        let (dst, pred) = match self.raw(0)? {
            Raw::Pair(dst, pred) => (self.dst_of(&Raw::Name(dst))?, Some(self.predicate(pred)?)),
            _ => (self.dst(0)?, None),
        };
        let all = all.then_some(pred);
        Ok(Op::Match { all, ty, dst, a: self.src(1, ty)?, members: self.src(2, Type::B32)? })
    }

    pub(super) fn reduce(&mut self, words: &mut Words<'a>) -> Decoded {
        words.take("sync");
        let combine =
            words.one_of(&COMBINATIONS).ok_or("`redux` needs an operation, such as `.add`")?;
        let ty = words.ty()?;
        if ty.bytes() != 4 || ty.is_float() {
            return Err("`redux` combines 32-bit integers".into());
        }
        self.arity(&[3])?;
        Ok(Op::Reduce {
            combine,
            ty,
            dst: self.dst(0)?,
            a: self.src(1, ty)?,
            members: self.src(2, Type::B32)?,
        })
    }

    pub(super) fn elect(&mut self, words: &mut Words<'a>) -> Decoded {
        words.take("sync");
        self.arity(&[2])?;
        let Raw::Pair(dst, leader) = self.raw(0)? else {
            return Err("`elect` gives a lane and a predicate, `%r1|%p1`".into());
        };
        let leader = self.predicate(leader)?;
        let dst = if *dst == "_" { None } else { Some(self.dst_of(&Raw::Name(dst))?) };
        Ok(Op::Elect { dst, leader, members: self.src(1, Type::B32)? })
    }
}
