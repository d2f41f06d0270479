//! Instructions as they are executed: every word of a mnemonic decoded once, every name resolved.

mod types;

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

/// An operation on up to three values of each lane by itself.
#[derive(Debug, Clone)]
pub(crate) struct Alu {
    pub(crate) op: AluOp,
    pub(crate) ty: Type,
    pub(crate) round: Round,
    /// Subnormal inputs and results become zero.
    pub(crate) ftz: bool,
    /// The result is clamped: to [0, 1] for floats, to the type's range for integers.
    pub(crate) saturate: bool,
    pub(crate) dst: Reg,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    pub(crate) c: Operand,
}

/// What [`Alu`] does. `d`, `a`, `b`, `c` are as the PTX ISA names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AluOp {
    Mov,
    Add,
    Sub,
    /// Lower half of the product.
    Mul,
    /// Upper half of the product.
    MulHi,
    /// The whole product, twice as wide as the type.
    MulWide,
    Mad,
    MadHi,
    MadWide,
    Fma,
    /// `max(fma, 0)`.
    FmaRelu,
    Div,
    Rem,
    Min,
    Max,
    MinNan,
    MaxNan,
    Neg,
    Abs,
    Sqrt,
    Rcp,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
    CopySign,
    And,
    Or,
    Xor,
    Not,
    CNot,
    Shl,
    Shr,
    /// Funnel shifts; `true` wraps the amount, `false` clamps it.
    ShfLeft(bool),
    ShfRight(bool),
    Lop3(u8),
    Prmt,
    Bfe,
    Popc,
    Clz,
    Brev,
    /// Position of the highest bit that is set (or, for signed values, that is not the sign); `true` counts from the top.
    Bfind(bool),
    Sad,
    /// Four-way dot product of bytes; whether each of `a` and `b` is signed.
    Dp4a(bool, bool),
}

/// A conversion of one value, or of two into one packed register.
#[derive(Debug, Clone)]
pub(crate) struct Convert {
    pub(crate) to: Type,
    pub(crate) from: Type,
    pub(crate) round: Round,
    /// To an integral value: `.rni` and its like.
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    pub(crate) saturate: bool,
    pub(crate) relu: bool,
    pub(crate) dst: Reg,
    pub(crate) a: Operand,
    /// The lower half of a packed result.
    pub(crate) b: Option<Operand>,
}

/// How `shfl.sync` names its source lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What lanes vote on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
}

/// What `atom`, `red` and `redux` do to a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    /// Up to a limit, then from zero again.
    Increment,
    /// Down from a limit.
    Decrement,
}

/// What happens at one of the sixteen named barriers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// Arrive and wait.
    Sync,
    /// Arrive only.
    Arrive,
    /// Arrive, wait, and combine a predicate over all threads.
    Reduce { op: Connective, value: Condition, dst: Pred },
    /// Arrive, wait, and count the threads whose predicate holds.
    Count { value: Condition, dst: Reg },
}

/// The element types that tensor cores multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    BF16,
    TF32,
    E4M3,
    E5M2,
    S8,
    U8,
}

impl Element {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "f16" => Self::F16,
            "bf16" => Self::BF16,
            "tf32" => Self::TF32,
            "e4m3" => Self::E4M3,
            "e5m2" => Self::E5M2,
            "s8" => Self::S8,
            "u8" => Self::U8,
            _ => return None,
        })
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::TF32 => 4,
            Self::E4M3 | Self::E5M2 | Self::S8 | Self::U8 => 1,
        }
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Self::S8 | Self::U8)
    }
}

/// `mma.sync`: a warp's product `[16][k] x [k][8]`, each matrix spread over the lanes' registers.
#[derive(Debug, Clone)]
pub(crate) struct Mma {
    pub(crate) k: usize,
    pub(crate) a_type: Element,
    pub(crate) b_type: Element,
    /// Accumulator: `F32`, `F16` or `S32`.
    pub(crate) d_type: Type,
    pub(crate) saturate: bool,
    pub(crate) d: Box<[Reg]>,
    pub(crate) a: Box<[Operand]>,
    pub(crate) b: Box<[Operand]>,
    pub(crate) c: Box<[Operand]>,
}

/// `wgmma.mma_async`: a warp group's product `[64][k] x [k][n]`, B and perhaps A in shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Wgmma {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a_type: Element,
    pub(crate) b_type: Element,
    /// Accumulator: `F32`, `F16` or `S32`.
    pub(crate) d_type: Type,
    pub(crate) d: Box<[Reg]>,
    pub(crate) a: WgmmaA,
    pub(crate) b: Operand,
    /// Add to what D holds.
    pub(crate) accumulate: Condition,
    pub(crate) negate_a: bool,
    pub(crate) negate_b: bool,
    pub(crate) a_transposed: bool,
    pub(crate) b_transposed: bool,
}

/// The left operand of [`Wgmma`].
#[derive(Debug, Clone)]
pub(crate) enum WgmmaA {
    Descriptor(Operand),
    Registers(Box<[Operand]>),
}

/// What happens at an mbarrier.
#[derive(Debug, Clone)]
pub(crate) enum Mbarrier {
    Init {
        count: Operand,
    },
    Invalidate,
    /// Arrive, perhaps announcing bytes first, perhaps without completing the phase's data.
    Arrive {
        state: Option<Reg>,
        count: Operand,
        expect: Option<Operand>,
    },
    /// Announce bytes without arriving.
    Expect {
        bytes: Operand,
    },
    /// Give bytes without a copy.
    Complete {
        bytes: Operand,
    },
    /// `try_wait` (blocks) and `test_wait` (does not).
    Wait {
        dst: Pred,
        blocks: bool,
        phase: WaitFor,
    },
}

/// Which phase of an mbarrier is waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitFor {
    /// The phase with this parity.
    Parity(Operand),
    /// The phase that an arrival saw.
    State(Operand),
}

/// An asynchronous copy through the tensor memory accelerator.
#[derive(Debug, Clone)]
pub(crate) enum Bulk {
    /// Bytes in a row, global to shared.
    Load {
        to: Address,
        from: Address,
        bytes: Operand,
        barrier: Address,
    },
    /// Bytes in a row, shared to global.
    Store {
        to: Address,
        from: Address,
        bytes: Operand,
    },
    /// A box of a tensor, global to shared.
    LoadTensor {
        to: Address,
        map: Address,
        at: Box<[Operand]>,
        barrier: Address,
    },
    /// A box of a tensor, shared to global; with `add`, added to what is there.
    StoreTensor {
        map: Address,
        at: Box<[Operand]>,
        from: Address,
        add: bool,
    },
    Commit,
    /// Until at most so many groups are under way.
    Wait {
        most: u32,
    },
}

/// What an instruction does.
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

/// What `testp` asks of a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}
