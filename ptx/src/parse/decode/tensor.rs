//! Tensor cores, and the loads and stores that feed them.

use super::{Decoded, Decoder};
use crate::isa::{Element, Mma, Op, Type, Wgmma, WgmmaA};
use crate::parse::operand::Raw;
use crate::parse::words::Words;

/// `m16n8k16` and the like. Sizes have 16 bits: whoever asks what they take in bytes multiplies them.
fn shape(word: &str) -> Option<(usize, usize, usize)> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    let size = |digits: &str| digits.parse::<u16>().ok().map(usize::from);
    Some((size(m)?, size(n)?, size(k)?))
}

impl<'a> Decoder<'_, 'a> {
    pub(super) fn matrix(&mut self, words: &mut Words<'a>) -> Decoded {
        words.ignore(&["sync", "aligned"]);
        if !words.take("m8n8") {
            return Err(format!("the interpreter knows `{}` of shape `.m8n8` alone", words.name));
        }
        let count = words
            .one_of(&[("x1", 1), ("x2", 2), ("x4", 4)])
            .ok_or("`.x1`, `.x2` or `.x4` is needed")?;
        let transposed = words.take("trans");
        words.space();
        if !words.take("b16") {
            return Err("matrices have elements of type `.b16`".into());
        }
        self.arity(&[2])?;
        let (registers, address) = if words.name == "ldmatrix" { (0, 1) } else { (1, 0) };
        let found = match self.raw(registers)? {
            Raw::Vector(parts) => parts.len(),
            _ => 1,
        };
        if found != count {
            return Err(format!("{found} registers for {count} matrices"));
        }
        if words.name == "ldmatrix" {
            return Ok(Op::LoadMatrix { transposed, dst: self.dsts(0)?, from: self.address(1)? });
        }
        Ok(Op::StoreMatrix {
            transposed,
            src: self.srcs(registers, Type::B32)?,
            to: self.address(address)?,
        })
    }

    pub(super) fn mma(&mut self, words: &mut Words<'a>) -> Decoded {
        words.ignore(&["sync", "aligned"]);
        let shape = words.find(shape).ok_or("`mma` needs a shape, such as `.m16n8k16`")?;
        if !words.take("row") || !words.take("col") {
            return Err("`mma` has its matrices as `.row.col`".into());
        }
        let saturate = words.take("satfinite");
        let d_type = accumulator(words)?;
        let a_type = words.find(Element::parse).ok_or("`mma` needs the type of A")?;
        let b_type = words.find(Element::parse).ok_or("`mma` needs the type of B")?;
        let c_type = accumulator(words)?;
        let k = shape.2;
        let width = a_type.bytes();
        let fits = shape.0 == 16 && shape.1 == 8 && (k * width == 16 || k * width == 32);
        if !fits
            || b_type.bytes() != width
            || c_type != d_type
            || (d_type == Type::S32) != a_type.is_integer()
        {
            return Err(
                "the interpreter knows m16n8 with 16 or 32 bytes of k, C and D of one type".into(),
            );
        }
        self.arity(&[4])?;
        let (d, a) = (self.dsts(0)?, self.srcs(1, Type::B32)?);
        let (b, c) = (self.srcs(2, Type::B32)?, self.srcs(3, d_type)?);
        let accumulators = if d_type == Type::F16 { 2 } else { 4 };
        let words_of_k = k * width / 16;
        if [d.len(), a.len(), b.len(), c.len()]
            != [accumulators, 2 * words_of_k, words_of_k, accumulators]
        {
            return Err(format!(
                "D, A, B, C have {}, {}, {}, {} registers; right would be {accumulators}, {}, {words_of_k}, {accumulators}",
                d.len(),
                a.len(),
                b.len(),
                c.len(),
                2 * words_of_k
            ));
        }
        Ok(Op::Mma(Mma { k, a_type, b_type, d_type, saturate, d, a, b, c }))
    }

    pub(super) fn wgmma(&mut self, words: &mut Words<'a>) -> Decoded {
        words.ignore(&["sync", "aligned"]);
        if words.take("fence") {
            return Ok(Op::WgmmaFence);
        }
        if words.take("commit_group") {
            return Ok(Op::WgmmaCommit);
        }
        if words.take("wait_group") {
            return Ok(Op::WgmmaWait { most: self.group_count(0)? });
        }
        if !words.take("mma_async") {
            return Err(
                "`wgmma` needs `.mma_async`, `.fence`, `.commit_group` or `.wait_group`".into()
            );
        }
        let (m, n, k) = words.find(shape).ok_or("`wgmma` needs a shape, such as `.m64n128k16`")?;
        let d_type = accumulator(words)?;
        let a_type = words.find(Element::parse).ok_or("`wgmma` needs the type of A")?;
        let b_type = words.find(Element::parse).ok_or("`wgmma` needs the type of B")?;
        if m != 64
            || n == 0
            || n > 256
            || !n.is_multiple_of(8)
            || k * a_type.bytes() != 32
            || b_type.bytes() != a_type.bytes()
        {
            return Err(
                "`wgmma` is 64 rows, 8 to 256 columns in steps of 8, and 32 bytes of k".into()
            );
        }
        let d = self.dsts(0)?;
        let registers = if d_type == Type::F16 { n / 4 } else { n / 2 };
        if d.len() != registers {
            return Err(format!("D has {} registers; right would be {registers}", d.len()));
        }
        // What D holds is added to: it is read as well.
        self.reads.extend(d.iter().copied());
        let a = match self.raw(1)? {
            Raw::Vector(parts) if parts.len() == 4 => WgmmaA::Registers(self.srcs(1, Type::B32)?),
            Raw::Vector(parts) => {
                return Err(format!("A has {} registers; right would be 4", parts.len()));
            }
            _ => WgmmaA::Descriptor(self.src(1, Type::B64)?),
        };
        let b = self.src(2, Type::B64)?;
        let accumulate = self.condition(3)?;
        let integer = a_type.is_integer();
        let sixteen = a_type.bytes() == 2;
        let from_registers = matches!(a, WgmmaA::Registers(_));
        let scales = if integer { 0 } else { 2 };
        let transposes = if !sixteen {
            0
        } else if from_registers {
            1
        } else {
            2
        };
        self.arity(&[4 + scales + transposes])?;
        let negated = |index: usize| match self.raw(index)? {
            Raw::Integer(1) => Ok(false),
            Raw::Integer(value) if *value == u64::MAX => Ok(true),
            _ => Err::<bool, String>("the scales of A and B are 1 or -1".into()),
        };
        let flag = |index: usize| match self.raw(index)? {
            Raw::Integer(value @ 0..=1) => Ok(*value == 1),
            _ => Err::<bool, String>("whether a matrix is transposed is 0 or 1".into()),
        };
        let (negate_a, negate_b) =
            if integer { (false, false) } else { (negated(4)?, negated(5)?) };
        let (a_transposed, b_transposed) = match transposes {
            0 => (false, false),
            1 => (false, flag(6)?),
            _ => (flag(6)?, flag(7)?),
        };
        Ok(Op::Wgmma(Box::new(Wgmma {
            n,
            k,
            a_type,
            b_type,
            d_type,
            d,
            a,
            b,
            accumulate,
            negate_a,
            negate_b,
            a_transposed,
            b_transposed,
        })))
    }

    /// A number of groups: a constant.
    pub(super) fn group_count(&self, index: usize) -> Decoded<u32> {
        match self.raw(index)? {
            Raw::Integer(count) if *count < 1 << 16 => Ok(*count as u32),
            _ => Err("the number of groups is a constant".into()),
        }
    }
}

fn accumulator(words: &mut Words<'_>) -> Decoded<Type> {
    let known = [("f32", Type::F32), ("f16", Type::F16), ("s32", Type::S32)];
    words.one_of(&known).ok_or_else(|| "accumulators are `.f32`, `.f16` or `.s32`".into())
}
