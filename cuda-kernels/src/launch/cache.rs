//! Keys and values in the paged cache, and the kernel that writes them.

use super::Argument::{self, I32, I64, Pointer};
use super::gemm::Product;
use super::{Address, Error, Launch, MAX_GRID_YZ, Parts, count, multiple, must, within};

/// Tokens of a block of the cache.
pub const BLOCK_TOKENS: usize = 16;

const ROPE_CACHE: &str = include_str!("../../ptx/rope_cache.ptx");

/// Where keys and values are: one layer's part of block 0, `[kv_heads][BLOCK_TOKENS][head_dim]`.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// The keys, in bf16 or bytes.
    pub keys: Address,
    /// The values, in the same.
    pub values: Address,
    /// Elements from a block to the next.
    pub block_stride: i64,
    /// Elements from a kv head to the next.
    pub head_stride: i64,
    /// For keys and values in bytes: what the bytes are, and what they are multiplied with.
    pub scales: Option<CacheScales>,
}

/// What a byte of a key or value stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// A whole number with a sign; the largest of a token's head becomes 127.
    Int8,
    /// FP8, E4M3 (arXiv 2209.05433); the largest of a token's head becomes 448. The scale is the token's and head's own, as
    /// [`Code::Int8`]'s, so that nothing has to be calibrated and nothing saturates.
    Fp8,
}

/// Scales of keys and values in bytes: one layer's part of block 0, `[kv_heads][BLOCK_TOKENS]` in f32. A number is its
/// byte's times the scale, rounded to bf16.
#[derive(Debug, Clone, Copy)]
pub struct CacheScales {
    /// What the bytes are.
    pub code: Code,
    /// The keys' scales.
    pub keys: Address,
    /// The values' scales.
    pub values: Address,
    /// Scales from a block to the next.
    pub block_stride: i64,
    /// Scales from a kv head to the next.
    pub head_stride: i64,
}

/// That arrays begin at a multiple of 16 bytes, as [`Address`] says of all.
pub(super) fn check_bases<const N: usize>(
    kernel: &'static str,
    bases: [(&'static str, Address); N],
) -> Result<(), Error> {
    bases.into_iter().try_for_each(|(what, base)| multiple(kernel, what, base as usize, 16))
}

impl Cache {
    /// Keys, values, and their scales if they have some.
    pub(super) fn pointers(&self) -> impl Iterator<Item = Argument> {
        let scales = self.scales.map(|scales| [scales.keys, scales.values]);
        [self.keys, self.values].into_iter().chain(scales.into_iter().flatten()).map(Pointer)
    }

    /// The kernel's name for these keys and values: in bf16, INT8 and FP8.
    pub(super) fn entry(&self, [bf16, int8, fp8]: [&'static str; 3]) -> &'static str {
        match self.scales.map(|scales| scales.code) {
            None => bf16,
            Some(Code::Int8) => int8,
            Some(Code::Fp8) => fp8,
        }
    }

    /// That every head begins where kernels can read 16 bytes at a time.
    pub(super) fn check_aligned(&self, kernel: &'static str) -> Result<(), Error> {
        let elements = if self.scales.is_some() { 16 } else { 8 };
        for (what, stride) in [
            ("elements from a block to the next", self.block_stride),
            ("elements from a kv head to the next", self.head_stride),
        ] {
            multiple(kernel, what, stride.unsigned_abs() as usize, elements)?;
        }
        check_bases(kernel, [("where keys begin", self.keys), ("where values begin", self.values)])
    }

    /// The strides of both.
    pub(super) fn strides(&self) -> impl Iterator<Item = Argument> {
        let scales = self.scales.map(|scales| [scales.block_stride, scales.head_stride]);
        let numbers = [self.block_stride, self.head_stride];
        numbers.into_iter().chain(scales.into_iter().flatten()).map(I64)
    }
}

/// RoPE on queries and keys, and keys and values into the paged cache.
#[derive(Debug, Clone, Copy)]
pub struct RopeCache {
    /// `[rows][heads][head_dim]` in bf16, written.
    pub queries: Address,
    /// Keys and values, written where `slots` say. In bytes, the largest element of a token's
    /// head becomes the largest number of the code.
    pub cache: Cache,
    /// `[rows][heads + 2 * kv_heads][head_dim]`: a row's queries, keys, values. Splits that are apart are added here, if keys and
    /// values are stored in bf16.
    pub qkv: Product,
    /// `[positions][head_dim / 2]` pairs of cosine and sine in f32.
    pub turns: Address,
    /// `[rows]` in i32.
    pub positions: Address,
    /// `[rows]` in i64: block times [`BLOCK_TOKENS`] plus the place in it; negative for padding.
    pub slots: Address,
    /// Number of rows, at most 65,535.
    pub rows: usize,
    /// Query heads, at most 4,096.
    pub heads: usize,
    /// Heads of keys and values, at most 4,096.
    pub kv_heads: usize,
    /// 64 or 128.
    pub head_dim: usize,
}

impl RopeCache {
    /// The launch.
    ///
    /// # Errors
    /// If the head size is not 64 or 128, if there are no heads or more than 4,096, if there are no rows or more
    /// than 65,535, or if splits are apart and keys and values are stored in bytes.
    pub fn launch(&self) -> Result<Launch, Error> {
        let stored = self.cache.entry(["rope_cache", "rope_cache_int8", "rope_cache_fp8"]);
        let (entry, qkv, splits) = match self.qkv {
            Product::Whole(qkv) => (stored, qkv, None),
            Product::Parts { parts, splits } => {
                let is_bf16 = self.cache.scales.is_none();
                must(is_bf16, stored, "number of splits", splits, "1, in bf16")?;
                let entry = "rope_cache_parts";
                (entry, parts, Some(count(entry, "number of splits", splits)?))
            }
        };
        let is_known = [64, 128].contains(&self.head_dim);
        must(is_known, entry, "head size", self.head_dim, "64 or 128")?;
        let heads = within(entry, "number of heads", self.heads, 4_096)?;
        let kv_heads = within(entry, "number of kv heads", self.kv_heads, 4_096)?;
        let rows = within(entry, "number of rows", self.rows, MAX_GRID_YZ)?;
        let inputs = [qkv, self.turns, self.positions, self.slots].map(Pointer);
        let numbers = [heads, kv_heads, self.head_dim as u32].map(|n| I32(n as i32));
        Ok(Launch(Parts {
            ptx: ROPE_CACHE,
            entry,
            grid: [heads + 2 * kv_heads, rows, 1],
            threads: self.head_dim as u32 / 2,
            shared_bytes: 0,
            arguments: [Pointer(self.queries)]
                .into_iter()
                .chain(self.cache.pointers())
                .chain(inputs)
                .chain(splits)
                .chain(numbers)
                .chain(self.cache.strides())
                .collect(),
        }))
    }
}
