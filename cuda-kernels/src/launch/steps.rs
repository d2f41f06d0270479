//! Attention from its simplest form to Hopper, a kernel for each idea.

use super::Argument::{self, F32, I32, Pointer};
use super::attention::check_scale;
use super::{Address, Error, Launch, MAX_GRID_X, Parts, TensorMap, count, must, within};
use std::f32::consts::LOG2_E;

/// Elements of a head in steps 1 to 5.
pub const HEAD_DIM: usize = 64;

macro_rules! module {
    ($name:literal) => {
        ($name, include_str!(concat!("../../ptx/", $name, ".ptx")))
    };
}

/// One of the steps 1 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A thread for each query, everything from global memory.
    Naive,
    /// Keys and values in shared memory, a tile at a time.
    Tiled,
    /// Chunks of a row exchanged, so that banks do not conflict.
    Swizzled,
    /// The next tile on its way while one is worked with.
    Pipelined,
    /// Products in the tensor cores.
    TensorCores,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 5] =
        [Step::Naive, Step::Tiled, Step::Swizzled, Step::Pipelined, Step::TensorCores];
}

/// Causal attention of one sequence with itself.
#[derive(Debug, Clone, Copy)]
pub struct StepAttention {
    /// `[tokens][heads][64]` in bf16, written.
    pub out: Address,
    /// `[tokens][heads][64]` in bf16.
    pub queries: Address,
    /// `[tokens][kv_heads][64]` in bf16.
    pub keys: Address,
    /// `[tokens][kv_heads][64]` in bf16.
    pub values: Address,
    /// Number of tokens.
    pub tokens: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// What a score is multiplied with before the softmax.
    pub scale: f32,
}

impl StepAttention {
    /// The launch of one step.
    ///
    /// # Errors
    /// If heads are no multiple of kv heads, if there is nothing to do, or more than a grid can hold.
    pub fn launch(&self, step: Step) -> Result<Launch, Error> {
        let ((entry, ptx), queries, threads) = match step {
            Step::Naive => (module!("attention_01_naive"), 64, 64),
            Step::Tiled => (module!("attention_02_tiled"), 32, 128),
            Step::Swizzled => (module!("attention_03_swizzled"), 32, 128),
            Step::Pipelined => (module!("attention_04_pipelined"), 32, 128),
            Step::TensorCores => (module!("attention_05_tensor_cores"), 64, 128),
        };
        let heads = within(entry, "number of heads", self.heads, 4_096)?;
        let kv_heads = count(entry, "number of kv heads", self.kv_heads)?;
        let is_grouped = self.heads.is_multiple_of(self.kv_heads);
        must(is_grouped, entry, "number of heads", self.heads, "a multiple of kv heads")?;
        let tokens = count(entry, "number of tokens", self.tokens)?;
        let tiles = within(entry, "tiles of queries", self.tokens.div_ceil(queries), MAX_GRID_X)?;
        let pointers = [self.out, self.queries, self.keys, self.values].map(Pointer);
        let heads_argument = count(entry, "number of heads", self.heads)?;
        let rest = [tokens, heads_argument, kv_heads, F32(self.scale * LOG2_E)];
        Ok(Launch(Parts {
            ptx,
            entry,
            grid: [tiles, heads, 1],
            threads,
            shared_bytes: 0,
            arguments: pointers.into_iter().chain(rest).collect(),
        }))
    }
}

/// Step 6, for Hopper (compute capability 9.0): attention of one sequence with itself.
#[derive(Debug, Clone, Copy)]
pub struct HopperAttention {
    /// `[tokens][heads][head_dim]` in bf16, written.
    pub out: Address,
    /// `[tokens][heads][head_dim]` in bf16.
    pub queries: Address,
    /// `[tokens][kv_heads][head_dim]` in bf16.
    pub keys: Address,
    /// `[tokens][kv_heads][head_dim]` in bf16.
    pub values: Address,
    /// Number of tokens.
    pub tokens: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// 64 or 128.
    pub head_dim: usize,
    /// Whether a query sees only the keys up to its own.
    pub is_causal: bool,
    /// What a score is multiplied with before the softmax; positive, because the largest score is found first.
    pub scale: f32,
}

impl HopperAttention {
    /// The launch.
    ///
    /// # Errors
    /// If the head size is not 64 or 128, if heads are no multiple of kv heads, if the scale is not positive and finite, if there
    /// is nothing to do, or more than a grid can hold.
    pub fn launch(&self) -> Result<Launch, Error> {
        let (_, ptx) = module!("attention_06_hopper");
        let entry = match self.head_dim {
            64 => "attention_06_hopper_64",
            _ => "attention_06_hopper_128",
        };
        let is_known = [64, 128].contains(&self.head_dim);
        must(is_known, entry, "head size", self.head_dim, "64 or 128")?;
        let (rows, tile, stages, barriers) = (128, 128, 2, 9);
        let heads = within(entry, "number of heads", self.heads, 4_096)?;
        let kv_heads = count(entry, "number of kv heads", self.kv_heads)?;
        let is_grouped = self.heads.is_multiple_of(self.kv_heads);
        must(is_grouped, entry, "number of heads", self.heads, "a multiple of kv heads")?;
        let tokens = count(entry, "number of tokens", self.tokens)?;
        let map = |base: Address, heads: usize, box_tokens: u32| {
            Argument::TensorMap(TensorMap {
                base,
                sizes: [self.head_dim, heads, self.tokens].map(|size| size as u64),
                strides: [self.head_dim * 2, heads * self.head_dim * 2].map(|size| size as u64),
                box_sizes: [64, 1, box_tokens],
            })
        };
        Ok(Launch(Parts {
            ptx,
            entry,
            grid: [self.tokens.div_ceil(rows) as u32, heads, 1],
            threads: 384,
            shared_bytes: ((rows + 2 * stages * tile) * self.head_dim * 2 + barriers * 8) as u32,
            arguments: vec![
                Pointer(self.out),
                map(self.queries, self.heads, rows as u32),
                map(self.keys, self.kv_heads, tile as u32),
                map(self.values, self.kv_heads, tile as u32),
                tokens,
                I32(heads as i32),
                kv_heads,
                I32(self.is_causal.into()),
                F32(check_scale(entry, self.scale)?),
            ],
        }))
    }
}
