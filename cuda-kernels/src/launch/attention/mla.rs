//! Multi-head latent attention over the paged cache.

use super::{
    Batch, DECODE, DECODE_ROWS, THREADS, TILE, Workspace, check_heads, check_scale,
    shared_tile_bytes, splits,
};
use crate::launch::Argument::{F32, I32, I64, Pointer};
use crate::launch::cache::check_bases;
use crate::launch::{Address, Error, Launch, MAX_GRID_X, Parts, multiple, within};

/// Elements of a latent with its part for RoPE, as [`MlaAttention`] reads it.
pub const MLA_KEY: usize = 576;
/// Elements of a latent without it.
pub const MLA_VALUE: usize = 512;

const ROWS: usize = 32;
const PREFILL: &str = include_str!("../../../ptx/mla_prefill.ptx");

/// Multi-head latent attention in its absorbed form: one head of keys for all queries, [`MLA_KEY`] elements, whose first
/// [`MLA_VALUE`] are the value.
#[derive(Debug, Clone, Copy)]
pub struct MlaAttention {
    /// `[rows][heads][MLA_VALUE]` in bf16, written.
    pub out: Address,
    /// `[rows][heads][MLA_KEY]` in bf16.
    pub queries: Address,
    /// One layer's part of block 0, `[BLOCK_TOKENS][MLA_KEY]` in bf16.
    pub latents: Address,
    /// Elements from a block to the next.
    pub block_stride: i64,
    /// Whose queries they are, and how far they see.
    pub batch: Batch,
    /// Query heads.
    pub heads: usize,
    /// What a score is multiplied with before the softmax; positive.
    pub scale: f32,
}

impl MlaAttention {
    /// That queries, outputs and latents begin where the kernels can read and write 16 bytes at a time.
    fn check_aligned(&self, entry: &'static str) -> Result<(), Error> {
        let stride = self.block_stride.unsigned_abs() as usize;
        multiple(entry, "elements from a block to the next", stride, 8)?;
        check_bases(
            entry,
            [
                ("where the output begins", self.out),
                ("where queries begin", self.queries),
                ("where latents begin", self.latents),
            ],
        )
    }

    /// One block of threads for each 32 rows of queries and heads. It gives the bits that [`MlaAttention::decode`] gives.
    ///
    /// # Errors
    /// If an array or a block in it does not begin at a multiple of 16 bytes, if there is nothing to do, or more than a grid or a
    /// 32-bit index can hold.
    pub fn prefill(&self) -> Result<Launch, Error> {
        let entry = "mla_prefill";
        self.check_aligned(entry)?;
        let group = check_heads(entry, self.heads, 1)?;
        let batch = self.batch.check(entry)?;
        let tiles = (self.batch.most_queries * group).div_ceil(ROWS);
        let slots = TILE + TILE / 2;
        let elements = (ROWS + slots) * MLA_KEY;
        Ok(Launch(Parts {
            ptx: PREFILL,
            entry,
            grid: [
                within(entry, "tiles of queries", tiles, MAX_GRID_X)?,
                1,
                self.batch.requests as u32,
            ],
            threads: 256,
            shared_bytes: (elements * 2) as u32 + shared_tile_bytes(ROWS),
            arguments: [self.out, self.queries, self.latents]
                .map(Pointer)
                .into_iter()
                .chain(batch)
                .chain([I32(self.heads as i32), I64(self.block_stride)])
                .chain([F32(check_scale(entry, self.scale)?)])
                .collect(),
        }))
    }

    /// As [`PagedAttention::decode`](super::PagedAttention::decode); the workspace's parts have [`MLA_VALUE`] elements.
    ///
    /// # Errors
    /// As [`MlaAttention::prefill`].
    pub fn decode(&self, workspace: Workspace) -> Result<[Launch; 2], Error> {
        let entry = "mla_decode";
        self.check_aligned(entry)?;
        let group = check_heads(entry, self.heads, 1)?;
        let batch = self.batch.check(entry)?;
        let scale = check_scale(entry, self.scale)?;
        let arguments = [workspace.parts, workspace.states, self.queries, self.latents]
            .map(Pointer)
            .into_iter()
            .chain(batch)
            .chain([splits(self.batch.most_keys), self.heads].map(|n| I32(n as i32)))
            .chain([I64(self.block_stride), F32(scale)])
            .collect();
        let tiles = (self.batch.most_queries * group).div_ceil(DECODE_ROWS);
        let decode = Launch(Parts {
            ptx: DECODE,
            entry,
            grid: self.batch.decode_grid(entry, tiles)?,
            threads: THREADS,
            shared_bytes: ((DECODE_ROWS + TILE) * MLA_KEY * 2) as u32
                + shared_tile_bytes(DECODE_ROWS),
            arguments,
        });
        Ok([decode, self.batch.join(self.out, workspace, self.heads, MLA_VALUE, scale)?])
    }
}
