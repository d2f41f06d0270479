//! What an instruction does.

use super::{
    Address, Alu, BarrierKind, Bulk, Combine, Compare, Condition, Connective, Convert, FloatTest,
    Mbarrier, Mma, Operand, Pred, Reg, Shuffle, Space, Type, Vote, Wgmma,
};

/// An operation, with its operands.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Alu(Alu),
    Convert(Convert),
    /// `bfi`: `a`'s lower bits into `b`, `length` of them at `start`.
    InsertBits {
        ty: Type,
        dst: Reg,
        a: Operand,
        b: Operand,
        start: Operand,
        length: Operand,
    },
    /// Several narrow values into one wide, lowest first.
    Pack {
        bits: u32,
        dst: Reg,
        parts: Box<[Operand]>,
    },
    /// One wide value into several narrow ones, lowest first.
    Unpack {
        bits: u32,
        dst: Box<[Option<Reg>]>,
        a: Operand,
    },
    Compare {
        compare: Compare,
        ty: Type,
        ftz: bool,
        dst: Pred,
        inverse: Option<Pred>,
        a: Operand,
        b: Operand,
        with: Option<(Connective, Condition)>,
    },
    /// `set`: a comparison into a register: all ones, or 1.0.
    Set {
        compare: Compare,
        ty: Type,
        ftz: bool,
        float: bool,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    Select {
        dst: Reg,
        a: Operand,
        b: Operand,
        condition: Condition,
    },
    PredMove {
        dst: Pred,
        a: Condition,
    },
    PredLogic {
        op: Connective,
        dst: Pred,
        a: Condition,
        b: Condition,
    },
    PredTest {
        test: FloatTest,
        ty: Type,
        dst: Pred,
        a: Operand,
    },

    Load {
        space: Space,
        ty: Type,
        dst_bytes: u32,
        dst: Box<[Option<Reg>]>,
        from: Address,
    },
    Store {
        space: Space,
        ty: Type,
        src: Box<[Operand]>,
        to: Address,
    },
    Atomic {
        space: Space,
        combine: Combine,
        ty: Type,
        dst: Option<Reg>,
        at: Address,
        a: Operand,
        b: Operand,
    },
    /// Between the generic addresses and one space's: `to_generic` or back.
    ConvertAddress {
        space: Space,
        to_generic: bool,
        dst: Reg,
        a: Operand,
    },
    IsSpace {
        space: Space,
        dst: Pred,
        a: Operand,
    },

    Branch {
        target: usize,
        reconverge: usize,
    },
    Exit,
    Trap,
    /// What orders memory, hints, or changes the number of registers: nothing to do, as every write is seen at once.
    Nothing,

    Barrier {
        id: Operand,
        threads: Option<Operand>,
        kind: BarrierKind,
    },
    /// Lanes of a warp wait for one another.
    WarpBarrier {
        members: Operand,
    },
    ClusterArrive,
    ClusterWait,

    Shuffle {
        how: Shuffle,
        dst: Reg,
        valid: Option<Pred>,
        a: Operand,
        lane: Operand,
        clamp: Operand,
        members: Operand,
    },
    Vote {
        vote: Vote,
        dst: Pred,
        a: Condition,
        members: Operand,
    },
    Ballot {
        dst: Reg,
        a: Condition,
        members: Operand,
    },
    ActiveMask {
        dst: Reg,
    },
    Match {
        all: Option<Option<Pred>>,
        ty: Type,
        dst: Reg,
        a: Operand,
        members: Operand,
    },
    Reduce {
        combine: Combine,
        ty: Type,
        dst: Reg,
        a: Operand,
        members: Operand,
    },
    Elect {
        dst: Option<Reg>,
        leader: Pred,
        members: Operand,
    },

    LoadMatrix {
        transposed: bool,
        dst: Box<[Reg]>,
        from: Address,
    },
    StoreMatrix {
        transposed: bool,
        src: Box<[Operand]>,
        to: Address,
    },
    Mma(Mma),

    CopyAsync {
        to: Address,
        from: Address,
        bytes: u32,
        source_bytes: Option<Operand>,
    },
    CopyAsyncCommit,
    /// Until at most so many groups are under way; `None`: until nothing is.
    CopyAsyncWait {
        most: Option<u32>,
    },
    /// The mbarrier hears of it once the lane's copies so far have landed.
    CopyAsyncArrive {
        barrier: Address,
        counted: bool,
    },

    Mbarrier {
        at: Address,
        what: Mbarrier,
    },
    Bulk(Bulk),
    Wgmma(Box<Wgmma>),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        most: u32,
    },
}
