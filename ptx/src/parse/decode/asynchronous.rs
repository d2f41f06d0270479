//! Copies that go on by themselves, and the barriers that know of them.

use super::{Decoded, Decoder};
use crate::isa::{Bulk, Mbarrier, Op, Operand, Type, WaitFor};
use crate::parse::operand::Raw;
use crate::parse::words::Words;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn copy(&mut self, words: &mut Words<'a>) -> Decoded {
        if words.take("reduce") {
            return self.bulk(words, true);
        }
        if !words.take("async") {
            return Err("`cp` is known as `cp.async` alone".into());
        }
        if words.take("bulk") {
            return self.bulk(words, false);
        }
        if words.take("commit_group") {
            self.arity(&[0])?;
            return Ok(Op::CopyAsyncCommit);
        }
        if words.take("wait_group") {
            return Ok(Op::CopyAsyncWait { most: Some(self.group_count(0)?) });
        }
        if words.take("wait_all") {
            return Ok(Op::CopyAsyncWait { most: None });
        }
        if words.take("mbarrier") {
            words.take("arrive");
            let counted = words.take("noinc");
            words.ignore(&["shared", "shared::cta", "b64"]);
            self.arity(&[1])?;
            // With `noinc` the arrival is one of those that the barrier was made for.
            return Ok(Op::CopyAsyncArrive { barrier: self.address(0)?, counted });
        }
        words.ignore(&["ca", "cg", "L2::64B", "L2::128B", "L2::256B"]);
        if words.space().is_none() || words.space().is_none() {
            return Err("`cp.async` goes `.shared.global`".into());
        }
        self.arity(&[3, 4])?;
        let bytes = match self.raw(2)? {
            Raw::Integer(bytes @ (4 | 8 | 16)) => *bytes as u32,
            _ => return Err("`cp.async` copies 4, 8 or 16 bytes".into()),
        };
        let source_bytes =
            if self.operands.len() == 4 { Some(self.src(3, Type::U32)?) } else { None };
        Ok(Op::CopyAsync { to: self.address(0)?, from: self.address(1)?, bytes, source_bytes })
    }

    /// After `cp.async.bulk` (or `cp.reduce`).
    fn bulk(&mut self, words: &mut Words<'a>, reduces: bool) -> Decoded {
        words.ignore(&["async", "bulk"]);
        if words.take("commit_group") {
            return Ok(Op::Bulk(Bulk::Commit));
        }
        if words.take("wait_group") {
            // `read` waits for the reading of shared memory alone; here reading and writing are over together.
            words.take("read");
            return Ok(Op::Bulk(Bulk::Wait { most: self.group_count(0)? }));
        }
        if words.take("prefetch") {
            words.ignore(&["tensor", "L2", "global", "1d", "2d", "3d", "4d", "5d", "tile"]);
            return Ok(Op::Nothing);
        }
        let tensor = words.take("tensor");
        let dimensions = words.one_of(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)]);
        words.take("tile");
        let add = reduces && words.take("add");
        if reduces && !(add && tensor) {
            return Err("of `cp.reduce` the interpreter knows `.add` of tensors".into());
        }
        let global = |space: &str| space == "global";
        let spaces = ["shared::cluster", "shared::cta", "global"];
        let pick =
            |words: &mut Words<'a>| words.find(|word| spaces.contains(&word).then_some(word));
        let (to, from) = (pick(words), pick(words));
        let (Some(to), Some(from)) = (to, from) else {
            return Err("a bulk copy names where it goes and where from".into());
        };
        words.ignore(&["mbarrier::complete_tx::bytes", "bulk_group"]);
        if dimensions.is_some() != tensor {
            return Err("a tensor copy says its dimensions, such as `.2d`".into());
        }
        let place_fits = |at: &[Operand]| {
            let right = dimensions.unwrap_or(0);
            if at.len() == right {
                Ok(())
            } else {
                Err(format!("{} coordinates for {right} dimensions", at.len()))
            }
        };
        match (tensor, global(to), global(from)) {
            (true, false, true) => {
                self.arity(&[3])?;
                let (map, at) = self.tensor_address(1)?;
                place_fits(&at)?;
                let (to, barrier) = (self.address(0)?, self.address(2)?);
                Ok(Op::Bulk(Bulk::LoadTensor { to, map, at, barrier }))
            }
            (true, true, false) => {
                self.arity(&[2])?;
                let (map, at) = self.tensor_address(0)?;
                place_fits(&at)?;
                Ok(Op::Bulk(Bulk::StoreTensor { map, at, from: self.address(1)?, add }))
            }
            (false, false, true) => {
                self.arity(&[4])?;
                let bytes = self.src(2, Type::U32)?;
                let (to, from, barrier) = (self.address(0)?, self.address(1)?, self.address(3)?);
                Ok(Op::Bulk(Bulk::Load { to, from, bytes, barrier }))
            }
            (false, true, false) => {
                self.arity(&[3])?;
                let bytes = self.src(2, Type::U32)?;
                Ok(Op::Bulk(Bulk::Store { to: self.address(0)?, from: self.address(1)?, bytes }))
            }
            _ => Err("a bulk copy goes between global and shared memory".into()),
        }
    }

    pub(super) fn mbarrier(&mut self, words: &mut Words<'a>) -> Decoded {
        words.ignore(&[
            "shared",
            "shared::cta",
            "shared::cluster",
            "b64",
            "cta",
            "cluster",
            "release",
            "acquire",
            "relaxed",
        ]);
        let one = Operand::Constant(1);
        if words.take("init") {
            self.arity(&[2])?;
            let what = Mbarrier::Init { count: self.src(1, Type::U32)? };
            return Ok(Op::Mbarrier { at: self.address(0)?, what });
        }
        if words.take("inval") {
            self.arity(&[1])?;
            return Ok(Op::Mbarrier { at: self.address(0)?, what: Mbarrier::Invalidate });
        }
        if words.take("arrive") {
            let expects = words.take("expect_tx");
            if words.take("noComplete") {
                return Err("`.noComplete` is not known to the interpreter".into());
            }
            self.arity(if expects { &[3] } else { &[2, 3] })?;
            let state = self.dst_or_sink(0)?;
            let extra = if self.operands.len() == 3 { Some(self.src(2, Type::U32)?) } else { None };
            let (count, expect) = if expects { (one, extra) } else { (extra.unwrap_or(one), None) };
            return Ok(Op::Mbarrier {
                at: self.address(1)?,
                what: Mbarrier::Arrive { state, count, expect },
            });
        }
        if words.take("expect_tx") {
            self.arity(&[2])?;
            let what = Mbarrier::Expect { bytes: self.src(1, Type::U32)? };
            return Ok(Op::Mbarrier { at: self.address(0)?, what });
        }
        if words.take("complete_tx") {
            self.arity(&[2])?;
            let what = Mbarrier::Complete { bytes: self.src(1, Type::U32)? };
            return Ok(Op::Mbarrier { at: self.address(0)?, what });
        }
        let blocks = words.take("try_wait");
        if blocks || words.take("test_wait") {
            self.arity(&[3, 4])?;
            let phase = if words.take("parity") {
                WaitFor::Parity(self.src(2, Type::U32)?)
            } else {
                WaitFor::State(self.src(2, Type::B64)?)
            };
            let what = Mbarrier::Wait { dst: self.pred_dst(0)?, blocks, phase };
            return Ok(Op::Mbarrier { at: self.address(1)?, what });
        }
        Err("the interpreter does not know this form of `mbarrier`".into())
    }
}
