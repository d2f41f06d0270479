//! Types, state spaces and the other small words that mnemonics are made of.

/// The type of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
    F32,
    F64,
}

impl Type {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pred" => Self::Pred,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::BF16,
            "bf16x2" => Self::BF16x2,
            "tf32" => Self::TF32,
            "e4m3" => Self::E4M3,
            "e5m2" => Self::E5M2,
            "e4m3x2" => Self::E4M3x2,
            "e5m2x2" => Self::E5M2x2,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// Size in bytes; a predicate counts as one.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Pred | Self::B8 | Self::U8 | Self::S8 | Self::E4M3 | Self::E5M2 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::BF16 => 2,
            Self::E4M3x2 | Self::E5M2x2 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::TF32 => 4,
            Self::F16x2 | Self::BF16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    pub(crate) fn bits(self) -> u32 {
        self.bytes() * 8
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Not an integer and not bare bits.
    pub(crate) fn is_float(self) -> bool {
        !self.is_signed()
            && !matches!(self, Self::Pred | Self::B8 | Self::B16 | Self::B32 | Self::B64)
            && !matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::U64)
    }

    /// The bits that a value of this type may have, of a 64-bit register.
    pub(crate) fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// A value of this type, widened to 64 bits with its sign if it has one.
    pub(crate) fn extend(self, bits: u64) -> u64 {
        let unused = 64 - self.bits();
        if self.is_signed() {
            (((bits << unused) as i64) >> unused) as u64
        } else {
            bits & self.mask()
        }
    }
}

/// Where an address points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

/// How a result is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero (`rna`, into tf32).
    Away,
    /// Towards zero.
    Zero,
    /// Towards negative infinity.
    Down,
    /// Towards positive infinity.
    Up,
}

/// A comparison of `setp` and `set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// True if equal or if one is NaN; the others with `U` likewise.
    EqU,
    NeU,
    LtU,
    LeU,
    GtU,
    GeU,
    /// Both are numbers.
    Num,
    /// One is NaN.
    Nan,
}

impl Compare {
    pub(crate) const WORDS: [(&'static str, Self); 18] = [
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("le", Self::Le),
        ("gt", Self::Gt),
        ("ge", Self::Ge),
        ("lo", Self::Lt),
        ("ls", Self::Le),
        ("hi", Self::Gt),
        ("hs", Self::Ge),
        ("equ", Self::EqU),
        ("neu", Self::NeU),
        ("ltu", Self::LtU),
        ("leu", Self::LeU),
        ("gtu", Self::GtU),
        ("geu", Self::GeU),
        ("num", Self::Num),
        ("nan", Self::Nan),
    ];
}

/// A logical connective between predicates, and of `red` and `redux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connective {
    And,
    Or,
    Xor,
}

/// A register that the hardware fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Thread in the block, by dimension.
    Tid(u8),
    /// Threads in a block.
    Ntid(u8),
    /// Block in the grid.
    Ctaid(u8),
    /// Blocks in the grid.
    Nctaid(u8),
    LaneId,
    WarpId,
    WarpCount,
    /// Lanes below this one; the others of `lanemask` likewise.
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    LaneBit,
    DynamicShared,
    TotalShared,
    /// Instructions that the warp has executed: what stands for a clock.
    Clock,
    /// What is 0 for a grid without clusters: rank and index in the cluster, the multiprocessor.
    Zero,
    /// What is 1 for a grid without clusters: blocks in the cluster.
    One,
}

impl Special {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let dimension = |word: &str| match word {
            "x" => Some(0),
            "y" => Some(1),
            "z" => Some(2),
            _ => None,
        };
        if let Some((name, axis)) = word.split_once('.') {
            let axis = dimension(axis)?;
            return Some(match name {
                "%tid" => Self::Tid(axis),
                "%ntid" => Self::Ntid(axis),
                "%ctaid" | "%clusterid" => Self::Ctaid(axis),
                "%nctaid" | "%nclusterid" => Self::Nctaid(axis),
                "%cluster_ctaid" => Self::Zero,
                "%cluster_nctaid" => Self::One,
                _ => return None,
            });
        }
        Some(match word {
            "%laneid" => Self::LaneId,
            "%warpid" => Self::WarpId,
            "%nwarpid" => Self::WarpCount,
            "%lanemask_lt" => Self::LanesBelow,
            "%lanemask_le" => Self::LanesUpTo,
            "%lanemask_gt" => Self::LanesAbove,
            "%lanemask_ge" => Self::LanesFrom,
            "%lanemask_eq" => Self::LaneBit,
            "%dynamic_smem_size" => Self::DynamicShared,
            "%total_smem_size" => Self::TotalShared,
            "%clock" | "%clock64" => Self::Clock,
            "%smid" | "%cluster_ctarank" => Self::Zero,
            "%cluster_nctarank" | "%nsmid" => Self::One,
            _ => return None,
        })
    }
}
