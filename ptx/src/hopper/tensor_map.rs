//! Tensor maps: how a tensor lies in global memory, and how boxes of it lie in shared memory.

use crate::memory::Buffer;

/// Bytes of a tensor map, as a kernel takes it.
pub(crate) const BYTES: usize = 128;
/// What tells an encoded map from other bytes.
const MAGIC: u32 = 0x7454_4d41;

/// Types of a tensor's elements: their size is what matters to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// One byte: INT8, FP8.
    Byte,
    /// bfloat16.
    BFloat16,
    /// IEEE half precision.
    Float16,
    /// Single precision, or 32-bit integers.
    Float32,
}

impl ElementType {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::BFloat16 | Self::Float16 => 2,
            Self::Float32 => 4,
        }
    }
}

/// How the 16-byte chunks of a row are exchanged in shared memory, so that columns do not fall into one bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Within rows of 32 bytes.
    Bytes32,
    /// Within rows of 64 bytes.
    Bytes64,
    /// Within rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Bytes of a row, and so the most that a box's innermost dimension may have; without a swizzle any.
    pub(crate) fn span(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// Where a byte goes: address bits 4 to 6 are combined with bits 7 to 9, as many of them as the span has chunks.
    pub(crate) fn apply(self, address: usize) -> usize {
        let bits = match self {
            Self::None => return address,
            Self::Bytes32 => 1,
            Self::Bytes64 => 3,
            Self::Bytes128 => 7,
        };
        address ^ (address >> 7 & bits) << 4
    }
}

/// A tensor of one to five dimensions in global memory, and the boxes that it is copied in. Innermost dimension first.
///
/// On a device the driver encodes this into 128 opaque bytes (`cuTensorMapEncodeTiled`). The interpreter has an encoding of
/// its own: the same fields go in, and kernels only hand it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of the first element; a multiple of 16.
    pub address: u64,
    /// Type of its elements.
    pub element: ElementType,
    /// Elements in each dimension.
    pub dims: Vec<u64>,
    /// Bytes from one element to the next in each dimension but the innermost; multiples of 16.
    pub strides: Vec<u64>,
    /// Elements of a box in each dimension, up to 256.
    pub box_dims: Vec<u32>,
    /// How a box lies in shared memory.
    pub swizzle: Swizzle,
}

impl TensorMap {
    /// A dense tensor over a whole buffer.
    pub fn dense<T>(
        buffer: Buffer<T>,
        element: ElementType,
        dims: &[u64],
        box_dims: &[u32],
        swizzle: Swizzle,
    ) -> Self {
        let strides =
            dims.iter().take(dims.len().saturating_sub(1)).scan(element.bytes(), |bytes, dim| {
                *bytes = bytes.saturating_mul(*dim);
                Some(*bytes)
            });
        Self {
            address: buffer.address(),
            element,
            strides: strides.collect(),
            dims: dims.to_vec(),
            box_dims: box_dims.to_vec(),
            swizzle,
        }
    }

    /// Bytes of one box.
    pub fn box_bytes(&self) -> u64 {
        self.box_dims
            .iter()
            .fold(self.element.bytes(), |bytes, &dim| bytes.saturating_mul(dim.into()))
    }

    /// What is wrong with the map; what `cuTensorMapEncodeTiled` would refuse.
    fn check(&self) -> Result<(), String> {
        let rank = self.dims.len();
        if !(1..=5).contains(&rank) || self.box_dims.len() != rank || self.strides.len() + 1 != rank
        {
            return Err(
                "a tensor has 1 to 5 dimensions, as many of a box, and one stride less".into()
            );
        }
        if !self.address.is_multiple_of(16)
            || self.strides.iter().any(|stride| !stride.is_multiple_of(16))
        {
            return Err("a tensor's address and strides are multiples of 16 bytes".into());
        }
        if self.dims.iter().any(|&dim| dim == 0 || dim > 1 << 32)
            || self.box_dims.iter().any(|dim| !(1..=256).contains(dim))
        {
            return Err("dimensions are at least 1, a box's at most 256".into());
        }
        let row = u64::from(self.box_dims[0]) * self.element.bytes();
        if !row.is_multiple_of(16) || self.swizzle.span().is_some_and(|span| row > span) {
            return Err(format!(
                "a box's row has {row} bytes: a multiple of 16 within the swizzle's span is needed"
            ));
        }
        Ok(())
    }

    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = Vec::with_capacity(BYTES);
        let rank = self.dims.len().min(5);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.push(rank as u8);
        bytes.push(self.element as u8);
        bytes.push(self.swizzle as u8);
        bytes.push(u8::from(self.check().is_err()));
        bytes.extend(self.address.to_le_bytes());
        for axis in 0..5 {
            bytes.extend(self.dims.get(axis).copied().unwrap_or(1).to_le_bytes());
        }
        for axis in 0..4 {
            bytes.extend(self.strides.get(axis).copied().unwrap_or(0).to_le_bytes());
        }
        for axis in 0..5 {
            bytes.extend(self.box_dims.get(axis).copied().unwrap_or(1).to_le_bytes());
        }
        bytes.resize(BYTES, 0);
        let mut found = [0; BYTES];
        found.copy_from_slice(&bytes);
        found
    }

    /// The counterpart of [`Self::encode`].
    ///
    /// # Errors
    /// In words, if the bytes are no tensor map, or a malformed one.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let eight = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        let four = |at: usize| (eight(at - 4) >> 32) as u32;
        if bytes.len() != BYTES || eight(0) as u32 != MAGIC {
            return Err("these bytes are not a tensor map".into());
        }
        let rank = usize::from(bytes[4]).min(5);
        let element = match bytes[5] {
            0 => ElementType::Byte,
            1 => ElementType::BFloat16,
            2 => ElementType::Float16,
            _ => ElementType::Float32,
        };
        let swizzle = match bytes[6] {
            0 => Swizzle::None,
            1 => Swizzle::Bytes32,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes128,
        };
        let map = Self {
            address: eight(8),
            element,
            dims: (0..rank).map(|axis| eight(16 + 8 * axis)).collect(),
            strides: (0..rank.saturating_sub(1)).map(|axis| eight(56 + 8 * axis)).collect(),
            box_dims: (0..rank).map(|axis| four(88 + 4 * axis)).collect(),
            swizzle,
        };
        map.check()?;
        Ok(map)
    }
}
