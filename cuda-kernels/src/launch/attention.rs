//! Attention over the paged cache.
//!
//! [`PagedAttention::prefill`] and [`PagedAttention::decode`] give the same bits for the same queries; which one to
//! launch is a question of speed. `decode` reads a request's keys once for every sixteen rows of queries and heads that
//! share a kv head, by a block of threads for each split, or for a few; `prefill` reads them once for every 64, by one.
//! [`PagedAttention::prefill_hopper`] does what `prefill` does with the instructions that Hopper has beside.
//! `attention/mla.rs` holds the same for latents.

mod mla;

pub use mla::{MLA_KEY, MLA_VALUE, MlaAttention};

use super::Argument::{F32, I32, I64, Pointer};
use super::cache::{BLOCK_TOKENS, Cache, check_bases};
use super::{
    Address, Argument, Error, Launch, MAX_GRID_X, MAX_GRID_YZ, MAX_WIDTH, Parts, TensorMap, count,
    must, within,
};
use std::f32::consts::LOG2_E;

/// Keys after which a sum is closed; `SPLIT` in `cuda/attention.cuh`.
pub const SPLIT: usize = 256;

const TILE: usize = 64;
const PREFILL_ROWS: usize = 64;
const DECODE_ROWS: usize = 16;
/// Blocks of threads of a decoding kernel, about, from which on each has several splits. A grid has room for the longest
/// request's splits in every request: where one is long among many that are short, nearly all blocks would have nothing to do.
const DECODE_BLOCKS: usize = 4_096;
/// But so many share a request's splits at least, so that one that is long among others is not walked through by few.
const LEAST_ACROSS: usize = 32;
const THREADS: u32 = 128;
/// Rows of a block of threads of the kernel for Hopper, and tiles of keys and of values in its shared memory.
const HOPPER_ROWS: usize = 128;
const HOPPER_STAGES: usize = 4;
const HOPPER: &str = include_str!("../../ptx/paged_prefill_hopper.ptx");
const PREFILL: &str = include_str!("../../ptx/paged_prefill.ptx");
const DECODE: &str = include_str!("../../ptx/paged_decode.ptx");

/// Queries of several requests, and the keys that they meet.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// `[requests][table_width]` in i32: blocks of the cache, of each request in order.
    pub tables: Address,
    /// `[requests]` in i32: keys of a request, those of its queries included.
    pub lengths: Address,
    /// `[requests + 1]` in i32: a request's first row among the queries, and the number of rows.
    pub query_starts: Address,
    /// `[rows]` in u64, if some requests' queries are trees: bit j says that the row sees node j of its tree, itself
    /// included; a request with n queries has them as nodes behind its first length - n keys. 0 for a causal row. Keys that are
    /// not seen keep their places in the order of sums: where some lie between those that are, a row is that of its own tokens
    /// up to rounding.
    pub ancestors: Option<Address>,
    /// Number of requests.
    pub requests: usize,
    /// Blocks that a request's table has room for.
    pub table_width: usize,
    /// The largest number of queries of a request.
    pub most_queries: usize,
    /// The largest of `lengths`, or more.
    pub most_keys: usize,
}

/// Attention with grouped queries over the paged cache.
#[derive(Debug, Clone, Copy)]
pub struct PagedAttention {
    /// `[rows][heads][head_dim]` in bf16, written.
    pub out: Address,
    /// `[rows][heads][head_dim]` in bf16.
    pub queries: Address,
    /// Keys and values.
    pub cache: Cache,
    /// Whose queries they are, and how far they see.
    pub batch: Batch,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// 64 or 128.
    pub head_dim: usize,
    /// What a score is multiplied with before the softmax; positive.
    pub scale: f32,
}

/// Room for what the blocks of threads of a decoding step leave for the kernel that joins them.
#[derive(Debug, Clone, Copy)]
pub struct Workspace {
    /// `[rows][heads][splits(most_keys)][head_dim]` in f32.
    pub parts: Address,
    /// `[rows][heads][splits(most_keys)][2]` in f32.
    pub states: Address,
}

/// In how many splits so many keys are read.
pub fn splits(keys: usize) -> usize {
    keys.div_ceil(SPLIT)
}

fn check_heads(entry: &'static str, heads: usize, kv_heads: usize) -> Result<usize, Error> {
    within(entry, "number of kv heads", kv_heads, 4_096)?;
    within(entry, "number of heads", heads, 4_096)?;
    must(
        heads.is_multiple_of(kv_heads),
        entry,
        "number of heads",
        heads,
        "a multiple of kv heads",
    )?;
    Ok(heads / kv_heads)
}

pub(super) fn check_scale(entry: &'static str, scale: f32) -> Result<f32, Error> {
    let is_fine = scale > 0.0 && scale.is_finite();
    must(is_fine, entry, "the scale, rounded", scale as usize, "positive and finite")?;
    Ok(scale * LOG2_E)
}

impl PagedAttention {
    /// The kernel's name, of those for heads of 64 and those for heads of 128 elements, once its arrays are where it can
    /// read them.
    fn entry(
        &self,
        narrow: [&'static str; 3],
        wide: [&'static str; 3],
    ) -> Result<&'static str, Error> {
        let entry = self.cache.entry(if self.head_dim == 64 { narrow } else { wide });
        let is_known = [64, 128].contains(&self.head_dim);
        must(is_known, entry, "head size", self.head_dim, "64 or 128")?;
        self.check_aligned(entry)?;
        Ok(entry)
    }

    fn check_aligned(&self, entry: &'static str) -> Result<(), Error> {
        check_bases(
            entry,
            [("where the output begins", self.out), ("where queries begin", self.queries)],
        )?;
        self.cache.check_aligned(entry)
    }

    /// One block of threads for each 64 rows of queries and heads of a group.
    ///
    /// # Errors
    /// If the head size is not 64 or 128, if heads are no multiple of kv heads, if an array or a head in it does not begin at a
    /// multiple of 16 bytes, if there is nothing to do, or more than a grid or a 32-bit index can hold.
    pub fn prefill(&self) -> Result<Launch, Error> {
        let entry = self.entry(
            ["paged_prefill_64", "paged_prefill_int8_64", "paged_prefill_fp8_64"],
            ["paged_prefill_128", "paged_prefill_int8_128", "paged_prefill_fp8_128"],
        )?;
        let group = check_heads(entry, self.heads, self.kv_heads)?;
        let batch = self.batch.check(entry)?;
        let tiles = (self.batch.most_queries * group).div_ceil(PREFILL_ROWS);
        let grid = [
            within(entry, "tiles of queries", tiles, MAX_GRID_X)?,
            self.kv_heads as u32,
            self.batch.requests as u32,
        ];
        let arguments = [Pointer(self.out), Pointer(self.queries)]
            .into_iter()
            .chain(self.cache.pointers())
            .chain(batch)
            .chain([I32(self.heads as i32)])
            .chain(self.cache.strides())
            .chain([F32(check_scale(entry, self.scale)?)])
            .collect();
        let shared_bytes = ((PREFILL_ROWS + 4 * TILE) * self.head_dim * 2) as u32;
        Ok(Launch(Parts { ptx: PREFILL, entry, grid, threads: THREADS, shared_bytes, arguments }))
    }

    /// For Hopper (compute capability 9.0): one block of threads for each 128 queries of a head. It adds the products
    /// that [`PagedAttention::prefill`] adds, in the same order; whether a device rounds the sums alike, the device has to
    /// show. `rows`: the number of all requests' queries; `blocks`: of the pool.
    ///
    /// # Errors
    /// As [`PagedAttention::prefill`]; and if keys are not bf16, or a block's stride is not a multiple of a head's.
    pub fn prefill_hopper(&self, rows: usize, blocks: usize) -> Result<Launch, Error> {
        let entry = match self.head_dim {
            64 => "paged_prefill_hopper_64",
            _ => "paged_prefill_hopper_128",
        };
        must([64, 128].contains(&self.head_dim), entry, "head size", self.head_dim, "64 or 128")?;
        let is_bf16 = self.cache.scales.is_none();
        must(is_bf16, entry, "bytes of a key's element", 1, "2, which is bf16")?;
        self.check_aligned(entry)?;
        check_heads(entry, self.heads, self.kv_heads)?;
        let batch = self.batch.check(entry)?;
        let row = self.head_dim * 2;
        // A block's heads lie side by side, so that heads of all blocks can be counted through.
        let [block_stride, head_stride] = [self.cache.block_stride, self.cache.head_stride]
            .map(|stride| usize::try_from(stride).unwrap_or(0));
        let head = BLOCK_TOKENS * self.head_dim;
        let expected = || format!("a multiple of 8, at least {head}");
        let is_head = head_stride >= head && head_stride.is_multiple_of(8);
        must(is_head, entry, "elements from a kv head to the next", head_stride, expected())?;
        let is_whole =
            block_stride >= self.kv_heads * head_stride && block_stride.is_multiple_of(head_stride);
        let expected = || format!("{} times {head_stride}, or a larger multiple", self.kv_heads);
        must(is_whole, entry, "elements from a block to the next", block_stride, expected())?;
        let per_block = block_stride / head_stride;
        within(entry, "number of rows", rows, MAX_WIDTH)?;
        let pool_heads = blocks.saturating_mul(per_block);
        within(entry, "heads of all blocks", pool_heads, MAX_WIDTH)?;
        let queries = TensorMap {
            base: self.queries,
            sizes: [self.head_dim, self.heads, rows].map(|size| size as u64),
            strides: [row, self.heads * row].map(|bytes| bytes as u64),
            box_sizes: [64, 1, HOPPER_ROWS as u32],
        };
        let pages = |base: Address| TensorMap {
            base,
            // Behind the last block's last head there may be other layers' or nothing.
            sizes: [self.head_dim, BLOCK_TOKENS, pool_heads - per_block + self.kv_heads]
                .map(|size| size as u64),
            strides: [row, head_stride * 2].map(|bytes| bytes as u64),
            box_sizes: [64, BLOCK_TOKENS as u32, 1],
        };
        let Cache { keys, values, .. } = self.cache;
        let maps = [queries, pages(keys), pages(values)].map(Argument::TensorMap);
        let numbers = [self.heads, self.kv_heads, per_block].map(|n| I32(n as i32));
        let tiles = self.batch.most_queries.div_ceil(HOPPER_ROWS) as u32;
        let elements = (HOPPER_ROWS + 2 * HOPPER_STAGES * TILE) * self.head_dim;
        let barriers = 1 + 4 * HOPPER_STAGES;
        Ok(Launch(Parts {
            ptx: HOPPER,
            entry,
            grid: [tiles, self.heads as u32, self.batch.requests as u32],
            threads: 384,
            shared_bytes: (elements * 2 + barriers * 8) as u32,
            arguments: [Pointer(self.out)]
                .into_iter()
                .chain(maps)
                .chain([Pointer(values)])
                .chain(batch)
                .chain(numbers)
                .chain([I64(self.cache.head_stride)])
                .chain([F32(check_scale(entry, self.scale)?)])
                .collect(),
        }))
    }

    /// One block of threads for each [`SPLIT`] keys and 16 rows of queries and heads of a group, or for several splits of them
    /// where there are very many; and the kernel that joins the splits.
    ///
    /// # Errors
    /// As [`PagedAttention::prefill`].
    pub fn decode(&self, workspace: Workspace) -> Result<[Launch; 2], Error> {
        let entry = self.entry(
            ["paged_decode_64", "paged_decode_int8_64", "paged_decode_fp8_64"],
            ["paged_decode_128", "paged_decode_int8_128", "paged_decode_fp8_128"],
        )?;
        let group = check_heads(entry, self.heads, self.kv_heads)?;
        let batch = self.batch.check(entry)?;
        let tiles = (self.batch.most_queries * group).div_ceil(DECODE_ROWS) * self.kv_heads;
        let scale = check_scale(entry, self.scale)?;
        let arguments = [workspace.parts, workspace.states, self.queries]
            .map(Pointer)
            .into_iter()
            .chain(self.cache.pointers())
            .chain(batch)
            .chain([splits(self.batch.most_keys), self.heads, self.kv_heads].map(|n| I32(n as i32)))
            .chain(self.cache.strides())
            .chain([F32(scale)])
            .collect();
        let tile = DECODE_ROWS * self.head_dim + 4 * TILE * self.head_dim;
        let decode = Launch(Parts {
            ptx: DECODE,
            entry,
            grid: self.batch.decode_grid(entry, tiles)?,
            threads: THREADS,
            shared_bytes: (tile * 2) as u32 + shared_tile_bytes(DECODE_ROWS),
            arguments,
        });
        Ok([decode, self.batch.join(self.out, workspace, self.heads, self.head_dim, scale)?])
    }
}

/// What warps that share a tile tell each other: its weights, and four times its highest scores. `SharedTile::BYTES` in
/// `cuda/shared_tile.cuh`.
fn shared_tile_bytes(rows: usize) -> u32 {
    (rows * TILE * 2 + 4 * rows * 4) as u32
}

impl Batch {
    /// The kernels' parameters for it.
    fn check(&self, entry: &'static str) -> Result<[Argument; 5], Error> {
        within(entry, "number of requests", self.requests, MAX_GRID_YZ)?;
        // Rows are counted with heads.
        within(entry, "queries of a request", self.most_queries, 1 << 18)?;
        within(entry, "keys of a request", self.most_keys, 1 << 30)?;
        let room = self.table_width.saturating_mul(BLOCK_TOKENS);
        let expected = || format!("at most the {room} that a table has room for");
        must(self.most_keys <= room, entry, "keys of a request", self.most_keys, expected())?;
        let ancestors = self.ancestors.unwrap_or(0);
        let [tables, lengths, starts, ancestors] =
            [self.tables, self.lengths, self.query_starts, ancestors].map(Pointer);
        let width = count(entry, "blocks of a table", self.table_width)?;
        Ok([tables, lengths, starts, ancestors, width])
    }

    fn decode_grid(&self, entry: &'static str, tiles: usize) -> Result<[u32; 3], Error> {
        let down = within(entry, "tiles of queries", tiles, MAX_GRID_YZ)?;
        let most = DECODE_BLOCKS.div_ceil(tiles * self.requests).max(LEAST_ACROSS);
        Ok([splits(self.most_keys).min(most) as u32, down, self.requests as u32])
    }

    /// The kernel that joins the splits of a decoding step.
    fn join(
        &self,
        out: Address,
        workspace: Workspace,
        heads: usize,
        width: usize,
        scale: f32,
    ) -> Result<Launch, Error> {
        let entry = "join_splits";
        let rows = within(entry, "queries of a request", self.most_queries, MAX_GRID_YZ)?;
        let pointers =
            [out, workspace.parts, workspace.states, self.lengths, self.query_starts].map(Pointer);
        let counts = [splits(self.most_keys), width].map(|n| I32(n as i32));
        Ok(Launch(Parts {
            ptx: DECODE,
            entry,
            grid: [
                heads as u32 * width.div_ceil(THREADS as usize) as u32,
                rows,
                self.requests as u32,
            ],
            threads: THREADS,
            shared_bytes: 0,
            arguments: pointers.into_iter().chain(counts).chain([F32(scale)]).collect(),
        }))
    }
}
