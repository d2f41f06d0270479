//! What tensor cores multiply.

use super::{Condition, Operand, Reg, Type};

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
