//! Requests whose keys and values lie in a paged cache, and what attention should give.

use crate::gpu::Gpu;
use crate::numbers::{Random, from_bf16, from_e4m3, to_bf16};
use cuda_kernels::Launch;
use cuda_kernels::attention::{Batch, PagedAttention, Workspace, splits};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache, CacheScales, Code};
use ptx_interpreter::{Buffer, Counts};

/// One request: so many keys, the last few of which have their queries in the batch.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) keys: usize,
    pub(crate) queries: usize,
    /// For each query the one before it in the tree; none for a chain of text.
    pub(crate) parents: Option<Vec<Option<usize>>>,
}

impl Request {
    pub(crate) fn text(keys: usize, queries: usize) -> Self {
        Request { keys, queries, parents: None }
    }

    pub(crate) fn tree(keys: usize, parents: &[Option<usize>]) -> Self {
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

    pub(crate) fn sees(&self, query: usize, key: usize) -> bool {
        let before = self.keys - self.queries;
        match &self.parents {
            None => key <= before + query,
            Some(_) => key < before || self.ancestors(query) >> (key - before) & 1 == 1,
        }
    }
}

/// Sizes of heads.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

/// Requests with their queries, and the pool in which their keys and values lie.
pub(crate) struct Case {
    pub(crate) heads: Heads,
    pub(crate) requests: Vec<Request>,
    /// Of each request, `[queries][heads][head_dim]`.
    pub(crate) queries: Vec<Vec<f32>>,
    /// Of each request, its blocks.
    tables: Vec<Vec<i32>>,
    /// `[blocks][keys, values][kv_heads][BLOCK_TOKENS][head_dim]`; NaN where no request has anything.
    pool: Vec<f32>,
    /// The bytes and scales that the pool's numbers come from, if they do.
    int8: Option<(Vec<i8>, Vec<f32>)>,
    /// What the bytes are.
    code: Code,
}

/// What a run of the kernels gave: of each request `[queries][heads][head_dim]`, and what was counted.
pub(crate) struct Ran {
    pub(crate) out: Vec<Vec<u16>>,
    pub(crate) counts: Counts,
}

impl Case {
    pub(crate) fn new(heads: Heads, requests: &[Request], int8: bool, seed: u64) -> Self {
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
    pub(crate) fn fp8(heads: Heads, requests: &[Request], seed: u64) -> Self {
        let mut case = Case { code: Code::Fp8, ..Case::new(heads, requests, true, seed) };
        let Some((codes, scales)) = &mut case.int8 else { unreachable!("made with bytes") };
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
    pub(crate) fn only(&self, which: &[usize]) -> Self {
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
    pub(crate) fn piece(&self, request: usize, from: usize, to: usize) -> Self {
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
    pub(crate) fn right(&self, request: usize) -> Vec<f64> {
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
    pub(crate) fn upload(
        &self,
        gpu: &mut Gpu,
    ) -> (PagedAttention, Workspace, Buffer<u16>, Buffer<f32>) {
        let Heads { heads, kv_heads, head_dim } = self.heads;
        let rows: usize = self.requests.iter().map(|r| r.queries).sum();
        let out = gpu.alloc::<u16>(rows * heads * head_dim);
        // A row is poisoned until it is written.
        gpu.write(out, &vec![0x7fc0; rows * heads * head_dim]);
        let batch = upload_batch(gpu, &self.requests, &self.tables);
        let splits = splits(batch.most_keys);
        let parts = gpu.alloc::<f32>(rows * heads * splits * head_dim);
        let workspace = Workspace {
            parts: parts.address(),
            states: gpu.alloc::<f32>(rows * heads * splits * 2).address(),
        };
        let head_stride = BLOCK_TOKENS * head_dim;
        let (pool, bytes) = match &self.int8 {
            None => (gpu.upload_bf16(&self.pool), 2),
            Some((codes, _)) => (gpu.upload(codes), 1),
        };
        let scales = self.int8.as_ref().map(|(_, scales)| {
            let scales = gpu.upload(scales);
            CacheScales {
                code: self.code,
                keys: scales,
                values: scales + (kv_heads * BLOCK_TOKENS * 4) as u64,
                block_stride: (2 * kv_heads * BLOCK_TOKENS) as i64,
                head_stride: BLOCK_TOKENS as i64,
            }
        });
        let cache = Cache {
            keys: pool,
            values: pool + (kv_heads * head_stride * bytes) as u64,
            block_stride: (2 * kv_heads * head_stride) as i64,
            head_stride: head_stride as i64,
            scales,
        };
        let queries = gpu.upload_bf16(&self.queries.concat());
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
        (attention, workspace, out, parts)
    }

    fn ran(&self, gpu: &Gpu, out: Buffer<u16>, counts: Counts) -> Ran {
        let mut all = gpu.download(out);
        let rows = self.requests.iter().map(|r| r.queries * self.heads.heads * self.heads.head_dim);
        let out = rows
            .map(|len| {
                let rest = all.split_off(len);
                std::mem::replace(&mut all, rest)
            })
            .collect();
        Ran { out, counts }
    }

    pub(crate) fn prefill(&self) -> Ran {
        let mut gpu = Gpu::new();
        let (attention, _, out, _) = self.upload(&mut gpu);
        let counts = gpu.run(&attention.prefill().unwrap());
        self.ran(&gpu, out, counts)
    }

    /// By the kernel for Hopper.
    pub(crate) fn prefill_hopper(&self) -> Ran {
        let mut gpu = Gpu::new();
        let (launch, out) = self.launch_hopper(&mut gpu);
        let counts = gpu.run(&launch);
        self.ran(&gpu, out, counts)
    }

    /// The launch of the kernel for Hopper, and where it writes.
    pub(crate) fn launch_hopper(&self, gpu: &mut Gpu) -> (Launch, Buffer<u16>) {
        let (attention, _, out, _) = self.upload(gpu);
        let rows = self.requests.iter().map(|r| r.queries).sum();
        let blocks = self.pool.len() as i64 / attention.cache.block_stride;
        (attention.prefill_hopper(rows, blocks as usize).unwrap(), out)
    }

    /// The counts are those of the first of the two kernels.
    pub(crate) fn decode(&self) -> Ran {
        let mut gpu = Gpu::new();
        let (attention, workspace, out, _) = self.upload(&mut gpu);
        let [decode, join]: [Launch; 2] = attention.decode(workspace).unwrap();
        let counts = gpu.run(&decode);
        gpu.run(&join);
        self.ran(&gpu, out, counts)
    }
}

/// Tables, lengths and starts of requests.
pub(crate) fn upload_batch(gpu: &mut Gpu, requests: &[Request], tables: &[Vec<i32>]) -> Batch {
    // What lies behind a request's blocks in its row of the table is no block.
    let table_width = tables.iter().map(Vec::len).max().unwrap() + 1;
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
    Batch {
        tables: gpu.upload(&padded),
        lengths: gpu.upload(&lengths),
        query_starts: gpu.upload(&starts),
        ancestors: has_trees.then(|| gpu.upload(&ancestors)),
        requests: requests.len(),
        table_width,
        most_queries: requests.iter().map(|r| r.queries).max().unwrap(),
        most_keys: requests.iter().map(|r| r.keys).max().unwrap(),
    }
}

/// The softmax of one query's scores, and the values weighed by it, in f64.
pub(crate) fn textbook<'a>(
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
