//! Mnemonic and operands to [`Op`]: one family of instructions per file.

mod arithmetic;
mod asynchronous;
mod collective;
mod memory;
mod tensor;

use super::module::DYNAMIC;
use super::names::{Named, Names};
use super::operand::Raw;
use super::words::Words;
use crate::isa::{Address, Condition, Op, Operand, Pred, Reg, Space, Special, Type};

/// Every instruction that is executed, by its first word.
const KNOWN: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "and",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bra",
    "brev",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "griddepcontrol",
    "isspacep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mapa",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "mul",
    "mul24",
    "nanosleep",
    "neg",
    "not",
    "or",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "sqrt",
    "st",
    "stmatrix",
    "sub",
    "tanh",
    "testp",
    "trap",
    "vote",
    "wgmma",
    "xor",
];

/// Those that are left out on purpose, which an error says.
const LEFT_OUT: &[&str] = &[
    "createpolicy",
    "applypriority",
    "brkpt",
    "pmevent",
    "fns",
    "szext",
    "bmsk",
    "subc",
    "addc",
    "madc",
    "vadd",
    "call",
    "brx",
    "alloca",
    "stackrestore",
    "stacksave",
    "tex",
    "suld",
    "slct",
    "mad24",
];

pub(super) fn is_known(mnemonic: &str) -> bool {
    let name = mnemonic.split('.').next().unwrap_or_default();
    KNOWN.contains(&name)
}

/// Why a mnemonic is not known, and what it may have been meant to be.
pub(super) fn unknown(mnemonic: &str) -> String {
    let name = mnemonic.split('.').next().unwrap_or_default();
    if LEFT_OUT.contains(&name) {
        return format!("`{name}` is an instruction of PTX that this interpreter leaves out");
    }
    let nearest = KNOWN.iter().min_by_key(|known| distance(name, known)).unwrap_or(&"mov");
    format!("unknown instruction `{}`; the nearest known is `{nearest}`", super::one_line(name))
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(32).collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, letter) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..a.len() {
            let change = diagonal + usize::from(a[j] != letter);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[a.len()]
}

/// What decoding may answer: the operation, or what is wrong with the statement.
type Decoded<T = Op> = Result<T, String>;

/// One statement on its way to an [`Op`].
pub(super) struct Decoder<'d, 'a> {
    names: &'d Names,
    dynamic_start: u64,
    operands: &'d [Raw<'a>],
    pub(super) writes: Vec<Reg>,
    pub(super) reads: Vec<Reg>,
    /// The label that a branch leads to; its place is known once the kernel has been read.
    pub(super) label: Option<&'a str>,
}

impl<'d, 'a> Decoder<'d, 'a> {
    pub(super) fn new(names: &'d Names, dynamic_start: u64, operands: &'d [Raw<'a>]) -> Self {
        Self { names, dynamic_start, operands, writes: vec![], reads: vec![], label: None }
    }

    /// # Errors
    /// On a word or an operand that the instruction does not have.
    pub(super) fn decode(&mut self, mnemonic: &'a str) -> Decoded {
        let mut words = Words::new(mnemonic);
        let op = match words.name {
            "bra" => self.branch(&mut words)?,
            "ret" | "exit" => {
                words.take("uni");
                self.arity(&[0])?;
                Op::Exit
            }
            "trap" => Op::Trap,
            "ld" | "ldu" => self.load(&mut words)?,
            "st" => self.store(&mut words)?,
            "atom" | "red" => self.atomic(&mut words)?,
            "cvta" => self.convert_address(&mut words)?,
            "isspacep" => {
                self.arity(&[2])?;
                let space = words.space().ok_or("`isspacep` needs a state space")?;
                Op::IsSpace { space, dst: self.pred_dst(0)?, a: self.src(1, Type::U64)? }
            }
            "mapa" => self.map_address(&mut words)?,
            "bar" | "barrier" => self.barrier(&mut words)?,
            "shfl" => self.shuffle(&mut words)?,
            "vote" => self.vote(&mut words)?,
            "activemask" => {
                words.take("b32");
                self.arity(&[1])?;
                Op::ActiveMask { dst: self.dst(0)? }
            }
            "match" => self.matching(&mut words)?,
            "redux" => self.reduce(&mut words)?,
            "elect" => self.elect(&mut words)?,
            "ldmatrix" | "stmatrix" => self.matrix(&mut words)?,
            "mma" => self.mma(&mut words)?,
            "wgmma" => self.wgmma(&mut words)?,
            "cp" => self.copy(&mut words)?,
            "mbarrier" => self.mbarrier(&mut words)?,
            // Every write is seen at once here, and there are as many registers as a kernel likes.
            "fence" | "membar" | "prefetch" | "prefetchu" | "discard" | "nanosleep"
            | "setmaxnreg" | "griddepcontrol" => return Ok(Op::Nothing),
            _ => self.arithmetic(&mut words)?,
        };
        words.finish()?;
        Ok(op)
    }

    fn branch(&mut self, words: &mut Words<'a>) -> Decoded {
        words.take("uni");
        self.arity(&[1])?;
        let Raw::Name(label) = self.operands[0] else {
            return Err("a branch leads to a label".into());
        };
        self.label = Some(label);
        Ok(Op::Branch { target: 0, reconverge: 0 })
    }

    fn arity(&self, counts: &[usize]) -> Decoded<()> {
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

    fn raw(&self, index: usize) -> Decoded<&'d Raw<'a>> {
        self.operands.get(index).ok_or_else(|| format!("operand {} is missing", index + 1))
    }

    fn register(&self, name: &str) -> Decoded<Reg> {
        match self.names.register(name) {
            Some(Named::Reg(reg)) => Ok(reg),
            Some(Named::Pred(_)) => Err(format!("`{name}` is a predicate; a register is needed")),
            None => Err(format!("`{name}` is not a register that this kernel declares")),
        }
    }

    fn predicate(&self, name: &str) -> Decoded<Pred> {
        match self.names.register(name) {
            Some(Named::Pred(pred)) => Ok(pred),
            Some(Named::Reg(_)) => Err(format!("`{name}` is not a predicate; one is needed")),
            None => Err(format!("`{name}` is not a predicate that this kernel declares")),
        }
    }

    fn is_predicate(&self, index: usize) -> bool {
        matches!(self.operands.get(index), Some(Raw::Name(name))
            if matches!(self.names.register(name), Some(Named::Pred(_))))
    }

    fn dst_of(&mut self, raw: &Raw<'a>) -> Decoded<Reg> {
        let Raw::Name(name) = raw else { return Err("a result goes to a register".into()) };
        let reg = self.register(name)?;
        self.writes.push(reg);
        Ok(reg)
    }

    fn dst(&mut self, index: usize) -> Decoded<Reg> {
        let raw = self.raw(index)?;
        self.dst_of(raw)
    }

    /// A result that `_` throws away.
    fn dst_or_sink(&mut self, index: usize) -> Decoded<Option<Reg>> {
        if self.raw(index)? == &Raw::Name("_") { Ok(None) } else { self.dst(index).map(Some) }
    }

    fn width(&self, reg: Reg) -> u32 {
        self.names.registers[reg.0 as usize].bytes
    }

    fn pred_dst(&self, index: usize) -> Decoded<Pred> {
        match self.raw(index)? {
            Raw::Name(name) => self.predicate(name),
            _ => Err("a predicate is needed for the result".into()),
        }
    }

    fn condition(&self, index: usize) -> Decoded<Condition> {
        match self.raw(index)? {
            Raw::Name(name) => Ok(Condition::Pred { pred: self.predicate(name)?, negated: false }),
            Raw::Not(name) => Ok(Condition::Pred { pred: self.predicate(name)?, negated: true }),
            Raw::Integer(value) => Ok(Condition::Constant(*value != 0)),
            _ => Err(format!("operand {} should be a predicate", index + 1)),
        }
    }

    fn symbol(&self, name: &str) -> Option<(Space, u64)> {
        let symbol = self.names.symbols.get(name)?;
        let offset = if symbol.offset == DYNAMIC { self.dynamic_start } else { symbol.offset };
        Some((symbol.space, offset))
    }

    /// A value of type `ty`.
    fn src_of(&mut self, raw: &Raw<'a>, ty: Type) -> Decoded<Operand> {
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

    fn src(&mut self, index: usize, ty: Type) -> Decoded<Operand> {
        let raw = self.raw(index)?;
        self.src_of(raw, ty)
    }

    /// The registers of `{…}`, or of one alone.
    fn dsts(&mut self, index: usize) -> Decoded<Box<[Reg]>> {
        match self.raw(index)? {
            Raw::Vector(parts) => parts.iter().map(|part| self.dst_of(part)).collect(),
            single => Ok(Box::new([self.dst_of(single)?])),
        }
    }

    /// As [`Self::dsts`], where `_` throws away.
    fn dsts_or_sinks(&mut self, index: usize) -> Decoded<Box<[Option<Reg>]>> {
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

    fn srcs(&mut self, index: usize, ty: Type) -> Decoded<Box<[Operand]>> {
        match self.raw(index)? {
            Raw::Vector(parts) => parts.iter().map(|part| self.src_of(part, ty)).collect(),
            single => Ok(Box::new([self.src_of(single, ty)?])),
        }
    }

    /// `[base+offset]`.
    fn address(&mut self, index: usize) -> Decoded<Address> {
        match self.raw(index)? {
            Raw::Address { base, offset, at: None } => {
                Ok(Address { base: self.src_of(base, Type::U64)?, offset: *offset })
            }
            _ => Err(format!("operand {} should be an address in brackets", index + 1)),
        }
    }

    /// `[map, {x, y, …}]`.
    fn tensor_address(&mut self, index: usize) -> Decoded<(Address, Box<[Operand]>)> {
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
    fn space_of_base(&self, index: usize) -> Option<Space> {
        match self.operands.get(index)? {
            Raw::Address { base, .. } => match **base {
                Raw::Name(name) => self.symbol(name).map(|(space, _)| space),
                _ => None,
            },
            _ => None,
        }
    }
}
