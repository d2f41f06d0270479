//! Mnemonic and operands to [`Op`]: one family of instructions per file.
//! `known.rs` lists the mnemonics, `forms.rs` says of which types there are some, `operands.rs` resolves what stands behind them.

mod arithmetic;
mod asynchronous;
mod collective;
mod forms;
mod known;
mod memory;
mod operands;
mod tensor;

pub(super) use known::{is_known, unknown};

use super::names::Names;
use super::operand::Raw;
use super::words::Words;
use crate::isa::{Op, Reg, Type};

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
}
