//! Requests whose keys and values lie in a paged cache, and what attention should give.

use super::numbers::{HALF_ULP, Random, from_bf16, from_e4m3, near, to_bf16};
use super::{Bench, Buffer, Problem};
use crate::Launch;
use crate::attention::{Batch, PagedAttention, Workspace, splits};
use crate::cache::{BLOCK_TOKENS, Cache, CacheScales, Code};

/// One request: so many keys, the last few of which have their queries in the batch.
#[derive(Clone)]
pub struct Request {
    /// Keys.
    pub keys: usize,
    /// The last of them that have queries.
    pub queries: usize,
    /// For each query the one before it in the tree; none for a chain of text.
    pub parents: Option<Vec<Option<usize>>>,
}

impl Request {
    /// A text of so many keys.
    pub fn text(keys: usize, queries: usize) -> Self {
        Request { keys, queries, parents: None }
    }

    /// The same with a tree at its end.
    pub fn tree(keys: usize, parents: &[Option<usize>]) -> Self {
        Request { keys, queries: parents.len(), parents: Some(parents.to_vec()) }
    }

    /// Bit j: the query sees node j. 0 for text.
    fn ancestors(&self, query: usize) -> u64 {
        let Some(parents) = &self.parents else { return 0 };
        let mut seen = 1 << query;
        let mut at = query;
        while let Some(parent) = parents[at] {
            seen |= 1 << parent;
            at = parent;
        }
        seen
    }

    /// Whether a query sees a key.
    pub fn sees(&self, query: usize, key: usize) -> bool {
        let before = self.keys - self.queries;
        match &self.parents {
            None => key <= before + query,
            Some(_) => key < before || self.ancestors(query) >> (key - before) & 1 == 1,
        }
    }
}

/// Sizes of heads.
#[derive(Clone, Copy)]
pub struct Heads {
    /// Of queries.
    pub heads: usize,
    /// Of keys and values.
    pub kv_heads: usize,
    /// Elements of each.
    pub head_dim: usize,
}

/// Requests with their queries, and the pool in which their keys and values lie.
pub struct Case {
    /// Sizes of heads.
    pub heads: Heads,
    /// The requests.
    pub requests: Vec<Request>,
    /// Of each request, `[queries][heads][head_dim]`.
    pub queries: Vec<Vec<f32>>,
    /// Of each request, its blocks.
    tables: Vec<Vec<i32>>,
    /// `[blocks][keys, values][kv_heads][BLOCK_TOKENS][head_dim]`; NaN where no request has anything.
    pool: Vec<f32>,
    /// The bytes and scales that the pool's numbers come from, if they do.
    int8: Option<(Vec<i8>, Vec<f32>)>,
    /// What the bytes are.
    code: Code,
}

impl Case {
    /// Requests with keys and values from a seed, in bf16 or in signed bytes.
    pub fn new(heads: Heads, requests: &[Request], int8: bool, seed: u64) -> Self {
        let mut random = Random(seed);
        let row = BLOCK_TOKENS * heads.head_dim;
        let needed: usize = requests.iter().map(|r| r.keys.div_ceil(BLOCK_TOKENS)).sum();
        // The pool has more blocks than are used, and they are given out in no order.
        let mut free: Vec<i32> = (0..needed as i32 + 3).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, random.below(i + 1));
        }
        let blocks = free.len();
        let mut tables: Vec<Vec<i32>> = Vec::new();
        for request in requests {
            let rest = free.split_off(request.keys.div_ceil(BLOCK_TOKENS));
            tables.push(std::mem::replace(&mut free, rest));
        }
        let rows = blocks * 2 * heads.kv_heads * BLOCK_TOKENS;
        let mut pool = random.bf16s(rows * heads.head_dim, 2.0);
        let int8 = int8.then(|| {
            let codes: Vec<i8> = pool.iter().map(|x| (x * 63.0) as i8).collect();
            let scales: Vec<f32> =
                random.bf16s(rows, 0.01).iter().map(|s| s.abs() + 0.01).collect();
            for (i, number) in pool.iter_mut().enumerate() {
                *number = from_bf16(to_bf16(f32::from(codes[i]) * scales[i / heads.head_dim]));
            }
            (codes, scales)
        });
        let mut case = Case {
            heads,
            queries: requests
                .iter()
                .map(|r| random.bf16s(r.queries * heads.heads * heads.head_dim, 2.0))
                .collect(),
            requests: requests.to_vec(),
            tables,
            pool,
            int8,
            code: Code::Int8,
        };
        case.poison(row);
        case
    }

    /// With keys and values in FP8: every code, and scales so that no number is above 2.
    pub fn fp8(heads: Heads, requests: &[Request], seed: u64) -> Self {
        let mut case = Case { code: Code::Fp8, ..Case::new(heads, requests, true, seed) };
        let Some((codes, scales)) = &mut case.int8 else { return case };
        // Up to 0.02 before, and codes from -126 to 126, of which -1 is no number in FP8.
        scales.iter_mut().for_each(|scale| *scale *= 100.0 / 448.0);
        for (i, number) in case.pool.iter_mut().enumerate() {
            if from_e4m3(codes[i] as u8).is_nan() {
                codes[i] = 0;
            }
            let scaled = from_e4m3(codes[i] as u8) * scales[i / heads.head_dim];
            *number = from_bf16(to_bf16(scaled));
        }
        case
    }

    /// What no request has must not be read, or not matter: it is NaN.
    fn poison(&mut self, row: usize) {
        let kv_heads = self.heads.kv_heads;
        let mut is_used = vec![false; self.pool.len() / (2 * kv_heads * row) * BLOCK_TOKENS];
        for (request, table) in self.requests.iter().zip(&self.tables) {
            for key in 0..request.keys {
                let block = table[key / BLOCK_TOKENS] as usize;
                is_used[block * BLOCK_TOKENS + key % BLOCK_TOKENS] = true;
            }
        }
        for (i, numbers) in self.pool.chunks_mut(self.heads.head_dim).enumerate() {
            let block = i / (2 * kv_heads * BLOCK_TOKENS);
            if !is_used[block * BLOCK_TOKENS + i % BLOCK_TOKENS] {
                numbers.fill(f32::NAN);
                if let Some((_, scales)) = &mut self.int8 {
                    scales[i] = f32::NAN;
                }
            }
        }
    }

    /// The same with some of its requests; keys and values stay where they are.
    pub fn only(&self, which: &[usize]) -> Self {
        Case {
            heads: self.heads,
            requests: which.iter().map(|&i| self.requests[i].clone()).collect(),
            queries: which.iter().map(|&i| self.queries[i].clone()).collect(),
            tables: which.iter().map(|&i| self.tables[i].clone()).collect(),
            pool: self.pool.clone(),
            int8: self.int8.clone(),
            code: self.code,
        }
    }

    /// Queries `from..to` of a request of text alone, as when its prompt comes in pieces.
    pub fn piece(&self, request: usize, from: usize, to: usize) -> Self {
        let mut piece = self.only(&[request]);
        let Request { keys, queries, .. } = piece.requests[0];
        piece.requests[0] = Request::text(keys - queries + to, to - from);
        let row = self.heads.heads * self.heads.head_dim;
        piece.queries[0] = piece.queries[0][from * row..to * row].to_vec();
        piece
    }

    fn number(&self, request: usize, key: usize, kv_head: usize, is_value: bool) -> &[f32] {
        let Heads { kv_heads, head_dim, .. } = self.heads;
        let block = self.tables[request][key / BLOCK_TOKENS] as usize;
        let head = (block * 2 + usize::from(is_value)) * kv_heads + kv_head;
        &self.pool[(head * BLOCK_TOKENS + key % BLOCK_TOKENS) * head_dim..][..head_dim]
    }

    /// Attention by the textbook, in f64, `[queries][heads][head_dim]` of one request.
    pub fn right(&self, request: usize) -> Vec<f64> {
        let Heads { heads, kv_heads, head_dim } = self.heads;
        let this = &self.requests[request];
        let rows = self.queries[request].chunks(head_dim).enumerate();
        let output = |(row, x): (usize, &[f32])| {
            let (query, kv_head) = (row / heads, row % heads / (heads / kv_heads));
            let keys = (0..this.keys).filter(|&key| this.sees(query, key));
            textbook(
                x,
                keys.map(|key| {
                    let [k, v] = [false, true].map(|v| self.number(request, key, kv_head, v));
                    (k, v)
                }),
                self.scale(),
            )
        };
        rows.flat_map(output).collect()
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.head_dim as f32).sqrt()
    }

    /// The launches' description, and where they write: the output, and what decode leaves to be joined.
    ///
    /// # Errors
    /// If the device has too little memory.
    pub fn place(
        &self,
        gpu: &mut Bench,
    ) -> Result<(PagedAttention, Workspace, Buffer<u16>, Buffer<f32>), Problem> {
        let Heads { heads, kv_heads, head_dim } = self.heads;
        let rows: usize = self.requests.iter().map(|r| r.queries).sum();
        let out = gpu.alloc::<u16>(rows * heads * head_dim)?;
        // A row is poisoned until it is written.
        gpu.write(out, &vec![0x7fc0; rows * heads * head_dim])?;
        let batch = upload_batch(gpu, &self.requests, &self.tables)?;
        let splits = splits(batch.most_keys);
        let parts = gpu.alloc::<f32>(rows * heads * splits * head_dim)?;
        let workspace = Workspace {
            parts: parts.address(),
            states: gpu.alloc::<f32>(rows * heads * splits * 2)?.address(),
        };
        let head_stride = BLOCK_TOKENS * head_dim;
        let (pool, bytes) = match &self.int8 {
            None => (gpu.upload_bf16(&self.pool)?, 2),
            Some((codes, _)) => (gpu.upload(codes)?, 1),
        };
        let scales = match &self.int8 {
            None => None,
            Some((_, scales)) => Some(gpu.upload(scales)?),
        };
        let scales = scales.map(|scales| CacheScales {
            code: self.code,
            keys: scales,
            values: scales + (kv_heads * BLOCK_TOKENS * 4) as u64,
            block_stride: (2 * kv_heads * BLOCK_TOKENS) as i64,
            head_stride: BLOCK_TOKENS as i64,
        });
        let cache = Cache {
            keys: pool,
            values: pool + (kv_heads * head_stride * bytes) as u64,
            block_stride: (2 * kv_heads * head_stride) as i64,
            head_stride: head_stride as i64,
            scales,
        };
        let queries = gpu.upload_bf16(&self.queries.concat())?;
        let out_address = out.address();
        let scale = self.scale();
        let attention = PagedAttention {
            out: out_address,
            queries,
            cache,
            batch,
            heads,
            kv_heads,
            head_dim,
            scale,
        };
        Ok((attention, workspace, out, parts))
    }

    /// What the kernels write, of each request `[queries][heads][head_dim]`.
    pub fn split(&self, mut all: Vec<u16>) -> Vec<Vec<u16>> {
        let rows = self.requests.iter().map(|r| r.queries * self.heads.heads * self.heads.head_dim);
        rows.map(|len| {
            let rest = all.split_off(len);
            std::mem::replace(&mut all, rest)
        })
        .collect()
    }

    /// The launches of a kernel, or of a pair of them.
    ///
    /// # Errors
    /// If the kernel is not for this case.
    pub fn launches(
        &self,
        kernel: Kernel,
        attention: PagedAttention,
        workspace: Workspace,
    ) -> Result<Vec<Launch>, Problem> {
        let rows = self.requests.iter().map(|r| r.queries).sum();
        let blocks = self.pool.len() as i64 / attention.cache.block_stride;
        Ok(match kernel {
            Kernel::Prefill => vec![attention.prefill()?],
            Kernel::Decode => attention.decode(workspace)?.into(),
            Kernel::Hopper => vec![attention.prefill_hopper(rows, blocks as usize)?],
        })
    }

    /// Runs a kernel; of each request `[queries][heads][head_dim]`.
    ///
    /// # Errors
    /// If the device refuses or fails.
    pub fn run(&self, gpu: &mut Bench, kernel: Kernel) -> Result<Vec<Vec<u16>>, Problem> {
        let (attention, workspace, out, _) = self.place(gpu)?;
        gpu.run(&self.launches(kernel, attention, workspace)?)?;
        Ok(self.split(gpu.download(out)?))
    }

    /// Whether outputs are right.
    ///
    /// Each weight w is rounded to bf16, and they are divided by the sum of the rounded ones. So an output is off by the sum
    /// of w * rounding * (v - output), at most half an ulp of the values' mean distance from their mean, which is below what
    /// the largest is: 2, or 2.54 from bytes. Scores in f32 add less than a tenth; then the output is rounded.
    ///
    /// # Errors
    /// Names the first that is not.
    pub fn compare(&self, what: &str, out: &[Vec<u16>]) -> Result<(), Problem> {
        for (request, out) in out.iter().enumerate() {
            let right = self.right(request);
            let found: Vec<f32> = out.iter().copied().map(from_bf16).collect();
            let bound = |i: usize| 2.54 * HALF_ULP * 1.1 + right[i].abs() * HALF_ULP;
            near(&format!("{what}, request {request}"), &found, &right, bound)?;
        }
        Ok(())
    }
}

/// The kernels for attention over the paged cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// For many queries.
    Prefill,
    /// For few, and the one that joins its splits.
    Decode,
    /// For many, with Hopper's instructions.
    Hopper,
}

/// Two query heads to a kv head.
pub const NARROW: Heads = Heads { heads: 4, kv_heads: 2, head_dim: 64 };
/// Three: tiles of 16 and of 64 rows end inside of a token.
pub const WIDE: Heads = Heads { heads: 3, kv_heads: 1, head_dim: 128 };

/// Ragged lengths: a first token, a decoding step, pieces of prompts at and beside the edges of blocks, tiles and splits.
pub fn ragged() -> Vec<Request> {
    vec![
        Request::text(1, 1),
        Request::text(300, 1),
        Request::text(70, 70),
        Request::text(256, 3),
        Request::text(321, 40),
        Request::text(65, 2),
    ]
}

/// Trees behind texts: one with two branches, one whose nodes cross the edge of a split.
pub fn trees() -> Vec<Request> {
    let branches = [None, Some(0), Some(0), Some(1), Some(2), Some(2), None, Some(6)];
    vec![
        Request::tree(40, &branches),
        Request::text(90, 3),
        Request::tree(260, &branches),
        Request::tree(9, &[None]),
    ]
}

/// Every kind of request, of head and of number.
pub fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for (name, requests) in [("ragged", ragged()), ("trees", trees())] {
        for heads in [NARROW, WIDE] {
            let mut add = |numbers: &str, case: Case| {
                cases.push((format!("{name}, heads of {}, {numbers}", heads.head_dim), case));
            };
            add("bf16", Case::new(heads, &requests, false, 1));
            add("int8", Case::new(heads, &requests, true, 2));
            add("fp8", Case::fp8(heads, &requests, 3));
        }
    }
    cases
}

/// Whether both kernels are right, and give the same bits.
///
/// # Errors
/// Says what is not.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    for (name, case) in cases() {
        let prefill = case.run(gpu, Kernel::Prefill)?;
        case.compare(&format!("prefill, {name}"), &prefill)?;
        if case.run(gpu, Kernel::Decode)? != prefill {
            return Err(Problem::Wrong(format!("decode and prefill differ, {name}")));
        }
    }
    Ok(())
}

/// Whether the kernel with Hopper's instructions is right. Whether it gives the others' bits is another question:
/// [`hopper_gives_the_same_bits`].
///
/// # Errors
/// Says what is not.
pub(super) fn check_hopper(gpu: &mut Bench) -> Result<(), Problem> {
    for (name, case) in cases().into_iter().filter(|(_, case)| case.int8.is_none()) {
        let hopper = case.run(gpu, Kernel::Hopper)?;
        case.compare(&format!("Hopper's prefill, {name}"), &hopper)?;
    }
    Ok(())
}

/// Whether this device gives the same bits for a small case from the kernel with Hopper's instructions and from the other.
/// Both add the same products in the same order; whether `wgmma` rounds the sums as `mma` does, only a device can say.
///
/// # Errors
/// If the device refuses or fails.
pub fn hopper_gives_the_same_bits(gpu: &mut Bench, heads: Heads) -> Result<bool, Problem> {
    let branches = [None, Some(0), Some(0), Some(1)];
    let requests = [Request::text(150, 70), Request::text(300, 1), Request::tree(90, &branches)];
    let case = Case::new(heads, &requests, false, 4);
    Ok(case.run(gpu, Kernel::Hopper)? == case.run(gpu, Kernel::Prefill)?)
}

/// Tables, lengths and starts of requests.
///
/// # Errors
/// If the device has too little memory.
pub fn upload_batch(
    gpu: &mut Bench,
    requests: &[Request],
    tables: &[Vec<i32>],
) -> Result<Batch, Problem> {
    // What lies behind a request's blocks in its row of the table is no block.
    let table_width = tables.iter().map(Vec::len).max().unwrap_or(0) + 1;
    let padded: Vec<i32> = tables
        .iter()
        .flat_map(|table| {
            let unused = std::iter::repeat_n(i32::MAX, table_width - table.len());
            table.iter().copied().chain(unused)
        })
        .collect();
    let lengths: Vec<i32> = requests.iter().map(|r| r.keys as i32).collect();
    let mut starts = vec![0];
    for request in requests {
        starts.push(starts[starts.len() - 1] + request.queries as i32);
    }
    let ancestors: Vec<u64> =
        requests.iter().flat_map(|r| (0..r.queries).map(|query| r.ancestors(query))).collect();
    let has_trees = requests.iter().any(|r| r.parents.is_some());
    let ancestors = if has_trees { Some(gpu.upload(&ancestors)?) } else { None };
    Ok(Batch {
        tables: gpu.upload(&padded)?,
        lengths: gpu.upload(&lengths)?,
        query_starts: gpu.upload(&starts)?,
        ancestors,
        requests: requests.len(),
        table_width,
        most_queries: requests.iter().map(|r| r.queries).max().unwrap_or(0),
        most_keys: requests.iter().map(|r| r.keys).max().unwrap_or(0),
    })
}

/// The softmax of one query's scores, and the values weighed by it, in f64.
pub fn textbook<'a>(
    query: &[f32],
    keys_and_values: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    scale: f32,
) -> Vec<f64> {
    let (scores, values): (Vec<f64>, Vec<&[f32]>) = keys_and_values
        .map(|(key, value)| {
            let dot = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k));
            (dot.sum::<f64>() * f64::from(scale), value)
        })
        .unzip();
    let highest = scores.iter().copied().fold(f64::MIN, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut out = vec![0.0; values[0].len()];
    for (weight, value) in weights.iter().zip(values) {
        for (out, &v) in out.iter_mut().zip(value) {
            *out += weight / sum * f64::from(v);
        }
    }
    out
}
