//! Instructions as they are executed: every word of a mnemonic decoded once, every name resolved.
//!
//! | File | Holds |
//! |---|---|
//! | `op.rs` | every operation |
//! | `arithmetic.rs` | what each lane does by itself |
//! | `collective.rs` | what lanes and threads do together |
//! | `tensor.rs` | what tensor cores multiply |
//! | `asynchronous.rs` | bulk copies and mbarriers |
//! | `types.rs` | types, state spaces, and other words of mnemonics |

mod arithmetic;
mod asynchronous;
mod collective;
mod op;
mod tensor;
mod types;

pub(crate) use arithmetic::{Alu, AluOp, Convert, FloatTest};
pub(crate) use asynchronous::{Bulk, Mbarrier, WaitFor};
pub(crate) use collective::{BarrierKind, Combine, Shuffle, Vote};
pub(crate) use op::Op;
pub(crate) use tensor::{Element, Mma, Wgmma, WgmmaA};
pub(crate) use types::{Compare, Connective, Round, Space, Special, Type};

/// A register, by its index in the kernel's register file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reg(pub(crate) u32);

/// A predicate register, by its index among the kernel's predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pred(pub(crate) u32);

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    /// The bits of a constant, of the width that the instruction reads.
    Constant(u64),
    Special(Special),
}

/// A predicate as a source: perhaps negated, perhaps constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Pred { pred: Pred, negated: bool },
    Constant(bool),
}

/// `[base + offset]`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Operand,
    pub(crate) offset: i64,
}

/// One instruction of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    /// Line of the module's text, from 1.
    pub(crate) line: u32,
    /// Where the statement stands in the module's text.
    pub(crate) span: (u32, u32),
    /// `@%p` or `@!%p`.
    pub(crate) guard: Option<(Pred, bool)>,
    pub(crate) op: Op,
    /// Registers that are written, for traces and for what is in flight.
    pub(crate) writes: Box<[Reg]>,
    /// Registers that are read.
    pub(crate) reads: Box<[Reg]>,
}
