//! What each lane does by itself: arithmetic, conversions and tests.

use super::{Operand, Reg, Round, Type};

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
    /// Bytes of `dst`, all of which an integer fills: with its sign if it has one.
    pub(crate) dst_bytes: u32,
    pub(crate) a: Operand,
    /// The lower half of a packed result.
    pub(crate) b: Option<Operand>,
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
