//! Attention: the numbered steps, and the kernels over the paged cache.

use super::{bf16s, first};
use crate::Launch;
use crate::attention::{
    Batch, MLA_KEY, MLA_VALUE, MlaAttention, PagedAttention, Workspace, splits,
};
use crate::cache::{BLOCK_TOKENS, Cache, CacheScales, Code};
use crate::steps::{HEAD_DIM, HopperAttention, Step, StepAttention};
use ptx_interpreter::Device;

/// One of the steps 1 to 5: causal attention of one sequence, all heads on one head of keys and values.
///
/// # Panics
/// If the shape does not fit a launch.
pub fn step(device: &mut Device, step: Step, tokens: usize, heads: usize) -> Launch {
    let attention = StepAttention {
        out: device.alloc::<u16>(tokens * heads * HEAD_DIM).address(),
        queries: bf16s(device, tokens * heads * HEAD_DIM),
        keys: bf16s(device, tokens * HEAD_DIM),
        values: bf16s(device, tokens * HEAD_DIM),
        tokens,
        heads,
        kv_heads: 1,
        scale: 0.125,
    };
    attention.launch(step).expect("a shape that fits")
}

/// The same by step 6, for Hopper, with heads of 64.
///
/// # Panics
/// If the shape does not fit a launch.
pub fn hopper(device: &mut Device, tokens: usize, heads: usize) -> Launch {
    let attention = HopperAttention {
        out: device.alloc::<u16>(tokens * heads * 64).address(),
        queries: bf16s(device, tokens * heads * 64),
        keys: bf16s(device, tokens * 64),
        values: bf16s(device, tokens * 64),
        tokens,
        heads,
        kv_heads: 1,
        head_dim: 64,
        is_causal: true,
        scale: 0.125,
    };
    attention.launch().expect("a shape that fits")
}

/// One request over the paged cache, heads of 64.
#[derive(Debug, Clone, Copy)]
pub struct Paged {
    /// Its keys; the last few are those of its queries.
    pub keys: usize,
    /// Its queries.
    pub queries: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Whether keys and values are bytes.
    pub is_int8: bool,
}

/// One request whose blocks lie in the pool from the last to the first.
fn batch(device: &mut Device, keys: usize, queries: usize) -> Batch {
    let blocks = keys.div_ceil(BLOCK_TOKENS);
    let table: Vec<i32> = (0..blocks as i32).rev().collect();
    Batch {
        tables: device.upload(&table).address(),
        lengths: device.upload(&[keys as i32]).address(),
        query_starts: device.upload(&[0, queries as i32]).address(),
        ancestors: None,
        requests: 1,
        table_width: blocks,
        most_queries: queries,
        most_keys: keys,
    }
}

impl Paged {
    fn upload(self, device: &mut Device) -> PagedAttention {
        let Paged { keys, queries, heads, kv_heads, is_int8 } = self;
        let head_dim = 64;
        let blocks = keys.div_ceil(BLOCK_TOKENS);
        let batch = batch(device, keys, queries);
        let elements = kv_heads * BLOCK_TOKENS * head_dim;
        // A block holds its keys, then its values.
        let (pool, bytes, scales) = if is_int8 {
            let codes: Vec<i8> = (0..2 * blocks * elements).map(|i| (i * 37 % 255) as i8).collect();
            let scales = vec![1.0f32 / 64.0; 2 * blocks * kv_heads * BLOCK_TOKENS];
            let scales = device.upload(&scales).address();
            let scales = CacheScales {
                code: Code::Int8,
                keys: scales,
                values: scales + (kv_heads * BLOCK_TOKENS * 4) as u64,
                block_stride: (2 * kv_heads * BLOCK_TOKENS) as i64,
                head_stride: BLOCK_TOKENS as i64,
            };
            (device.upload(&codes).address(), 1, Some(scales))
        } else {
            (bf16s(device, 2 * blocks * elements), 2, None)
        };
        PagedAttention {
            out: device.alloc::<u16>(queries * heads * head_dim).address(),
            queries: bf16s(device, queries * heads * head_dim),
            cache: Cache {
                keys: pool,
                values: pool + (elements * bytes) as u64,
                block_stride: 2 * elements as i64,
                head_stride: (BLOCK_TOKENS * head_dim) as i64,
                scales,
            },
            batch,
            heads,
            kv_heads,
            head_dim,
            scale: 0.125,
        }
    }

    /// All keys by one block of threads.
    ///
    /// # Panics
    /// If the shape does not fit a launch.
    pub fn prefill(self, device: &mut Device) -> Launch {
        self.upload(device).prefill().expect("a shape that fits")
    }

    /// The same with Hopper's instructions; keys and values are bf16.
    ///
    /// # Panics
    /// If the shape does not fit a launch.
    pub fn prefill_hopper(self, device: &mut Device) -> Launch {
        let attention = self.upload(device);
        let blocks = self.keys.div_ceil(BLOCK_TOKENS);
        attention.prefill_hopper(self.queries, blocks).expect("a shape that fits")
    }

    /// In splits, and the kernel that joins them.
    ///
    /// # Panics
    /// If the shape does not fit a launch.
    pub fn decode(self, device: &mut Device) -> [Launch; 2] {
        let attention = self.upload(device);
        let parts = self.queries * self.heads * splits(self.keys);
        let workspace = workspace(device, parts, attention.head_dim);
        attention.decode(workspace).expect("a shape that fits")
    }
}

/// The kernel that joins the splits, after the one that makes them.
pub(super) fn join(device: &mut Device, paged: Paged) -> Launch {
    let [decode, join] = paged.decode(device);
    first(device, &decode);
    join
}

fn workspace(device: &mut Device, parts: usize, width: usize) -> Workspace {
    Workspace {
        parts: device.alloc::<f32>(parts * width).address(),
        states: device.alloc::<f32>(parts * 2).address(),
    }
}

/// Sixteen heads over latents: by one block of threads, or in splits.
pub(super) fn latent(device: &mut Device, queries: usize, in_splits: bool) -> Launch {
    let (heads, keys) = (16, 100);
    let batch = batch(device, keys, queries);
    let attention = MlaAttention {
        out: device.alloc::<u16>(queries * heads * MLA_VALUE).address(),
        queries: bf16s(device, queries * heads * MLA_KEY),
        latents: bf16s(device, batch.table_width * BLOCK_TOKENS * MLA_KEY),
        block_stride: (BLOCK_TOKENS * MLA_KEY) as i64,
        batch,
        heads,
        scale: 0.05,
    };
    if !in_splits {
        return attention.prefill().expect("a shape that fits");
    }
    let workspace = workspace(device, queries * heads, MLA_VALUE);
    let [decode, _] = attention.decode(workspace).expect("a shape that fits");
    decode
}
