//! Multi-head latent attention over the paged latents.

use super::numbers::{HALF_ULP, Random, from_bf16, near};
use super::paged::{Request, textbook, upload_batch};
use super::{Bench, Buffer, Problem, same};
use crate::attention::{MLA_KEY, MLA_VALUE, MlaAttention, Workspace, splits};
use crate::cache::BLOCK_TOKENS;

const SCALE: f32 = 0.06;

/// Requests with their queries, and the pool in which their latents lie.
pub struct Case {
    heads: usize,
    requests: Vec<Request>,
    tables: Vec<Vec<i32>>,
    /// `[blocks][BLOCK_TOKENS][MLA_KEY]`; NaN where no request has anything.
    pool: Vec<f32>,
    /// Of each request, `[queries][heads][MLA_KEY]`.
    queries: Vec<Vec<f32>>,
}

impl Case {
    /// Requests with latents from a seed.
    pub fn new(heads: usize, requests: &[Request], seed: u64) -> Self {
        let mut random = Random(seed);
        let mut blocks = 0..;
        let tables: Vec<Vec<i32>> = requests
            .iter()
            .map(|r| {
                let mut table: Vec<i32> =
                    blocks.by_ref().take(r.keys.div_ceil(BLOCK_TOKENS)).collect();
                table.reverse();
                table
            })
            .collect();
        let blocks = blocks.next().unwrap() as usize;
        let mut pool = vec![f32::NAN; blocks * BLOCK_TOKENS * MLA_KEY];
        for (request, table) in requests.iter().zip(&tables) {
            for key in 0..request.keys {
                let row = table[key / BLOCK_TOKENS] as usize * BLOCK_TOKENS + key % BLOCK_TOKENS;
                pool[row * MLA_KEY..][..MLA_KEY].copy_from_slice(&random.bf16s(MLA_KEY, 2.0));
            }
        }
        let rows = requests.iter().map(|r| r.queries * heads * MLA_KEY);
        let queries = rows.map(|len| random.bf16s(len, 1.0)).collect();
        Case { heads, requests: requests.to_vec(), tables, pool, queries }
    }

    /// The launches' description, and where they write.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn place(
        &self,
        gpu: &mut Bench,
    ) -> Result<(MlaAttention, Workspace, Buffer<u16>), Problem> {
        let rows: usize = self.requests.iter().map(|r| r.queries).sum();
        let out = gpu.alloc::<u16>(rows * self.heads * MLA_VALUE)?;
        let batch = upload_batch(gpu, &self.requests, &self.tables)?;
        let parts = rows * self.heads * splits(batch.most_keys);
        let workspace = Workspace {
            parts: gpu.alloc::<f32>(parts * MLA_VALUE)?.address(),
            states: gpu.alloc::<f32>(parts * 2)?.address(),
        };
        let attention = MlaAttention {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries.concat())?,
            latents: gpu.upload_bf16(&self.pool)?,
            block_stride: (BLOCK_TOKENS * MLA_KEY) as i64,
            batch,
            heads: self.heads,
            scale: SCALE,
        };
        Ok((attention, workspace, out))
    }

    /// The same with one of its requests; latents stay where they are.
    #[must_use]
    pub fn only(&self, request: usize) -> Self {
        Case {
            heads: self.heads,
            requests: vec![self.requests[request].clone()],
            tables: vec![self.tables[request].clone()],
            pool: self.pool.clone(),
            queries: vec![self.queries[request].clone()],
        }
    }

    /// Queries `from..to` of a request of text alone, as when its prompt comes in pieces.
    #[must_use]
    pub fn piece(&self, request: usize, from: usize, to: usize) -> Self {
        let mut piece = self.only(request);
        let Request { keys, queries, .. } = piece.requests[0];
        piece.requests[0] = Request::text(keys - queries + to, to - from);
        let row = self.heads * MLA_KEY;
        piece.queries[0] = piece.queries[0][from * row..to * row].to_vec();
        piece
    }

    /// Attention by the textbook, in f64, `[queries][heads][MLA_VALUE]`.
    pub fn right(&self) -> Vec<f64> {
        let latent = |request: usize, key: usize| {
            let block = self.tables[request][key / BLOCK_TOKENS] as usize;
            &self.pool[(block * BLOCK_TOKENS + key % BLOCK_TOKENS) * MLA_KEY..][..MLA_KEY]
        };
        let mut out = Vec::new();
        for (i, request) in self.requests.iter().enumerate() {
            for (row, query) in self.queries[i].chunks(MLA_KEY).enumerate() {
                let seen = (0..request.keys).filter(|&key| request.sees(row / self.heads, key));
                let latents = seen.map(|key| latent(i, key));
                out.extend(textbook(query, latents.map(|c| (c, &c[..MLA_VALUE])), SCALE));
            }
        }
        out
    }
}

/// Ragged lengths, and a tree.
pub fn requests() -> Vec<Request> {
    vec![
        Request::text(1, 1),
        Request::text(290, 1),
        Request::text(65, 2),
        Request::tree(30, &[None, Some(0), Some(0)]),
        Request::text(270, 20),
    ]
}

/// Whether both kernels are right, and give the same bits.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    // More heads than a block of threads of the first kernel has rows, and no multiple of either's. Several splits, ends
    // beside the edges of tiles, and a tree behind more than a split.
    let mut requests = requests();
    requests.extend([Request::text(520, 3), Request::text(64, 64), Request::text(257, 2)]);
    requests.push(Request::tree(262, &[None, Some(0), Some(1), Some(0)]));
    let case = Case::new(20, &requests, 1);
    let right = case.right();
    let (attention, workspace, out) = case.place(gpu)?;
    let decode = gpu.written(out, &attention.decode(workspace)?)?;
    let prefill = gpu.written(out, [&attention.prefill()?])?;
    // As in paged.rs, with values below 2.
    let bound = |i: usize| 2.0 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
    for (kernel, found) in [("decode", &decode), ("prefill", &prefill)] {
        let found: Vec<f32> = found.iter().copied().map(from_bf16).collect();
        near(&format!("latent attention, {kernel}"), &found, &right, bound)?;
    }
    same("latent attention by both kernels", &prefill, &decode)
}
