//! How weights lie in files: plain numbers, or blocks of small integers with a scale.

mod dequantise;
mod iq4;
mod k_quants;
mod recode;

pub use dequantise::dequantise;

use std::borrow::Cow;
use std::fmt;

/// A tensor as its file stores it, for whoever packs it without a detour through f32.
#[derive(Debug, Clone)]
pub struct RawTensor<'a> {
    /// What the bytes are.
    pub kind: BlockType,
    /// Outermost dimension first, as Hugging Face has it: `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Row after row, each a whole number of blocks.
    pub bytes: Cow<'a, [u8]>,
}

/// What a run of numbers is stored as. Those that begin with Q or IQ are ggml's; the first digit is the
/// number of bits, `_0` has a scale for each block, `_1` a smallest value besides, and `_K` has
/// blocks of 256 whose scales are themselves small integers. Codes of IQ4 are places in a list of sixteen numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// 32-bit floats.
    F32,
    /// 16-bit floats of IEEE 754.
    F16,
    /// 16-bit floats with the exponent of f32.
    BF16,
    /// 32 of 4 bits: scale.
    Q4_0,
    /// 32 of 4 bits: scale and smallest value.
    Q4_1,
    /// 32 of 5 bits: scale.
    Q5_0,
    /// 32 of 5 bits: scale and smallest value.
    Q5_1,
    /// 32 of 8 bits: scale.
    Q8_0,
    /// 256 of 2 bits: sixteen scales and smallest values of 4 bits each.
    Q2K,
    /// 256 of 3 bits: sixteen scales of 6 bits.
    Q3K,
    /// 256 of 4 bits: eight scales and smallest values of 6 bits each.
    Q4K,
    /// 256 of 5 bits: eight scales and smallest values of 6 bits each.
    Q5K,
    /// 256 of 6 bits: sixteen scales of 8 bits.
    Q6K,
    /// 32 of 4 bits: scale.
    Iq4Nl,
    /// 256 of 4 bits: eight scales of 6 bits.
    Iq4Xs,
}

impl BlockType {
    /// Every type, with the number that GGUF writes for it.
    pub const ALL: [(u32, BlockType); 15] = [
        (0, BlockType::F32),
        (1, BlockType::F16),
        (2, BlockType::Q4_0),
        (3, BlockType::Q4_1),
        (6, BlockType::Q5_0),
        (7, BlockType::Q5_1),
        (8, BlockType::Q8_0),
        (10, BlockType::Q2K),
        (11, BlockType::Q3K),
        (12, BlockType::Q4K),
        (13, BlockType::Q5K),
        (14, BlockType::Q6K),
        (20, BlockType::Iq4Nl),
        (23, BlockType::Iq4Xs),
        (30, BlockType::BF16),
    ];

    /// The type that GGUF means by `code`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == code).map(|(_, kind)| kind)
    }

    /// Numbers in one block.
    pub fn block_numbers(self) -> usize {
        self.layout().0
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.layout().1
    }

    fn layout(self) -> (usize, usize) {
        match self {
            BlockType::F32 => (1, 4),
            BlockType::F16 | BlockType::BF16 => (1, 2),
            BlockType::Q4_0 => (32, 18),
            BlockType::Q4_1 => (32, 20),
            BlockType::Q5_0 => (32, 22),
            BlockType::Q5_1 => (32, 24),
            BlockType::Q8_0 => (32, 34),
            BlockType::Q2K => (256, 84),
            BlockType::Q3K => (256, 110),
            BlockType::Q4K => (256, 144),
            BlockType::Q5K => (256, 176),
            BlockType::Q6K => (256, 210),
            BlockType::Iq4Nl => (32, 18),
            BlockType::Iq4Xs => (256, 136),
        }
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlockType::F32 => "F32",
            BlockType::F16 => "F16",
            BlockType::BF16 => "BF16",
            BlockType::Q4_0 => "Q4_0",
            BlockType::Q4_1 => "Q4_1",
            BlockType::Q5_0 => "Q5_0",
            BlockType::Q5_1 => "Q5_1",
            BlockType::Q8_0 => "Q8_0",
            BlockType::Q2K => "Q2_K",
            BlockType::Q3K => "Q3_K",
            BlockType::Q4K => "Q4_K",
            BlockType::Q5K => "Q5_K",
            BlockType::Q6K => "Q6_K",
            BlockType::Iq4Nl => "IQ4_NL",
            BlockType::Iq4Xs => "IQ4_XS",
        })
    }
}
