//! Queries, and the pool in which their keys and values lie.

use super::{Kernel, Request, textbook, upload_batch};
use crate::Launch;
use crate::attention::{PagedAttention, Workspace, splits};
use crate::cache::{BLOCK_TOKENS, Cache, CacheScales, Code};
use crate::check::numbers::{HALF_ULP, Random, from_bf16, from_e4m3, near, to_bf16};
use crate::check::{Bench, Buffer, Problem};

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
    /// The bytes that the pool's numbers come from, if they do.
    bytes: Option<Bytes>,
}

/// Keys and values as bytes.
#[derive(Clone)]
struct Bytes {
    code: Code,
    /// As the pool.
    codes: Vec<i8>,
    /// `[blocks][keys, values][kv_heads][BLOCK_TOKENS]`
    scales: Vec<f32>,
}

impl Case {
    /// Requests with keys and values from a seed, in bf16 or in signed bytes.
    pub fn new(heads: Heads, requests: &[Request], in_bytes: bool, seed: u64) -> Self {
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
        let bytes = in_bytes.then(|| {
            let codes: Vec<i8> = pool.iter().map(|x| (x * 63.0) as i8).collect();
            let scales: Vec<f32> =
                random.bf16s(rows, 0.01).iter().map(|s| s.abs() + 0.01).collect();
            for (i, number) in pool.iter_mut().enumerate() {
                *number = from_bf16(to_bf16(f32::from(codes[i]) * scales[i / heads.head_dim]));
            }
            Bytes { code: Code::Int8, codes, scales }
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
            bytes,
        };
        case.poison(row);
        case
    }

    /// Whether keys and values are as they are multiplied, in bf16.
    pub fn is_bf16(&self) -> bool {
        self.bytes.is_none()
    }

    /// With keys and values in FP8: every code, and scales so that no number is above 2.
    pub fn fp8(heads: Heads, requests: &[Request], seed: u64) -> Self {
        let mut case = Case::new(heads, requests, true, seed);
        let Some(Bytes { code, codes, scales }) = &mut case.bytes else { return case };
        *code = Code::Fp8;
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
                if let Some(bytes) = &mut self.bytes {
                    bytes.scales[i] = f32::NAN;
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
            bytes: self.bytes.clone(),
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
        let batch = upload_batch(gpu, &self.requests, &self.tables)?;
        let splits = splits(batch.most_keys);
        let parts = gpu.alloc::<f32>(rows * heads * splits * head_dim)?;
        let workspace = Workspace {
            parts: parts.address(),
            states: gpu.alloc::<f32>(rows * heads * splits * 2)?.address(),
        };
        let head_stride = BLOCK_TOKENS * head_dim;
        let (pool, element) = match &self.bytes {
            None => (gpu.upload_bf16(&self.pool)?, 2),
            Some(bytes) => (gpu.upload(&bytes.codes)?, 1),
        };
        let scales = match &self.bytes {
            None => None,
            Some(Bytes { code, scales, .. }) => {
                let keys = gpu.upload(scales)?;
                Some(CacheScales {
                    code: *code,
                    keys,
                    values: keys + (kv_heads * BLOCK_TOKENS * 4) as u64,
                    block_stride: (2 * kv_heads * BLOCK_TOKENS) as i64,
                    head_stride: BLOCK_TOKENS as i64,
                })
            }
        };
        let cache = Cache {
            keys: pool,
            values: pool + (kv_heads * head_stride * element) as u64,
            block_stride: (2 * kv_heads * head_stride) as i64,
            head_stride: head_stride as i64,
            scales,
        };
        let attention = PagedAttention {
            out: out.address(),
            queries: gpu.upload_bf16(&self.queries.concat())?,
            cache,
            batch,
            heads,
            kv_heads,
            head_dim,
            scale: self.scale(),
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
