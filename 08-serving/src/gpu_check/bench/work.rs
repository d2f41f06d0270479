//! A shape's arrays on a device, and the launches of each kernel that is for it.

use super::Shape;
use cuda_kernels::attention::{
    Batch, MLA_KEY, MLA_VALUE, MlaAttention, PagedAttention, Workspace, splits,
};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache};
use cuda_kernels::check::numbers::{Random, to_bf16};
use cuda_kernels::check::{Bench, Problem};
use cuda_kernels::gemm::{self, Gemm};
use cuda_kernels::steps::HopperAttention;
use cuda_kernels::{Address, Launch, Rows};

/// Something to time.
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) what: What,
}

pub(super) enum What {
    /// The same over one copy of what is read after the other.
    Launches {
        launches: Vec<Launch>,
        copies: usize,
    },
    Copy(Rows),
}

fn work(name: &'static str, copies: usize, launches: Vec<Launch>) -> Work {
    Work { name, what: What::Launches { launches, copies } }
}

/// Puts a shape's arrays on a device; the kernels that are for it.
pub(super) fn works(gpu: &mut Bench, shape: Shape, copies: usize) -> Result<Vec<Work>, Problem> {
    let is_hopper = gpu.device.is_hopper();
    match shape {
        Shape::Copy { bytes } => {
            let (from, to) = (gpu.alloc::<u8>(bytes)?.address(), gpu.alloc::<u8>(bytes)?.address());
            let what = What::Copy(Rows { from, to, count: 1, bytes, stride: bytes });
            Ok(vec![Work { name: "copy", what }])
        }
        Shape::Gemm { rows, outputs, inputs } => {
            let x = random(gpu, rows * inputs)?;
            let out = gpu.alloc::<u16>(rows * outputs)?.address();
            let is_prefill = rows > 64;
            let parts = if is_prefill { 0 } else { gemm::parts(rows, outputs, inputs) };
            let parts = gpu.alloc::<f32>(parts)?.address();
            let (mut launches, mut hoppers) = (Vec::new(), Vec::new());
            for _ in 0..copies {
                let weights = gemm::Weights::Bf16(random(gpu, outputs * inputs)?);
                let product = Gemm { out, x, weights, rows, outputs, inputs };
                match is_prefill {
                    true => launches.push(product.prefill()?),
                    false => launches.extend(product.decode(parts)?),
                }
                if is_prefill && is_hopper {
                    hoppers.push(product.prefill_hopper()?);
                }
            }
            let name = if is_prefill { "gemm_prefill" } else { "gemm_decode" };
            let mut works = vec![work(name, copies, launches)];
            if !hoppers.is_empty() {
                works.push(work("gemm_prefill_hopper", copies, hoppers));
            }
            Ok(works)
        }
        Shape::Prefill { tokens, heads, kv_heads, head_dim, is_causal } => {
            let queries = random(gpu, tokens * heads * head_dim)?;
            let out = gpu.alloc::<u16>(tokens * heads * head_dim)?.address();
            let scale = 1.0 / (head_dim as f32).sqrt();
            let mut works = Vec::new();
            if is_hopper {
                let [keys, values] = [0; 2].map(|_| random(gpu, tokens * kv_heads * head_dim));
                let (keys, values) = (keys?, values?);
                let attention = HopperAttention {
                    out,
                    queries,
                    keys,
                    values,
                    tokens,
                    heads,
                    kv_heads,
                    head_dim,
                    is_causal,
                    scale,
                };
                works.push(work("attention_06_hopper", 1, vec![attention.launch()?]));
            }
            if is_causal {
                let (cache, batch) = paged(gpu, 1, tokens, tokens, kv_heads, head_dim)?;
                let attention =
                    PagedAttention { out, queries, cache, batch, heads, kv_heads, head_dim, scale };
                works.push(work("paged_prefill", 1, vec![attention.prefill()?]));
                if is_hopper {
                    let blocks = tokens.div_ceil(BLOCK_TOKENS);
                    let launch = attention.prefill_hopper(tokens, blocks)?;
                    works.push(work("paged_prefill_hopper", 1, vec![launch]));
                }
            }
            Ok(works)
        }
        Shape::Decode { batch: requests, keys, heads, kv_heads, head_dim } => {
            let queries = random(gpu, requests * heads * head_dim)?;
            let out = gpu.alloc::<u16>(requests * heads * head_dim)?.address();
            let scale = 1.0 / (head_dim as f32).sqrt();
            let workspace = workspace(gpu, requests * heads * splits(keys), head_dim)?;
            let mut launches = Vec::new();
            for _ in 0..copies {
                let (cache, batch) = paged(gpu, requests, keys, 1, kv_heads, head_dim)?;
                let attention =
                    PagedAttention { out, queries, cache, batch, heads, kv_heads, head_dim, scale };
                launches.extend(attention.decode(workspace)?);
            }
            Ok(vec![work("paged_decode", copies, launches)])
        }
        Shape::Mla { batch: requests, keys, heads } => {
            let blocks = requests * keys.div_ceil(BLOCK_TOKENS);
            let mut attention = MlaAttention {
                out: gpu.alloc::<u16>(requests * heads * MLA_VALUE)?.address(),
                queries: random(gpu, requests * heads * MLA_KEY)?,
                latents: 0,
                block_stride: (BLOCK_TOKENS * MLA_KEY) as i64,
                batch: batch(gpu, requests, keys, 1)?,
                heads,
                scale: 1.0 / (192f32).sqrt(),
            };
            let workspace = workspace(gpu, requests * heads * splits(keys), MLA_VALUE)?;
            let mut launches = Vec::new();
            for _ in 0..copies {
                attention.latents = random(gpu, blocks * BLOCK_TOKENS * MLA_KEY)?;
                launches.extend(attention.decode(workspace)?);
            }
            Ok(vec![work("mla_decode", copies, launches)])
        }
    }
}

/// Numbers in (-1, 1) in bf16. So many need not all be drawn: a piece of them is repeated.
fn random(gpu: &mut Bench, len: usize) -> Result<Address, Problem> {
    let piece: Vec<u16> =
        Random(len as u64).bf16s(len.min(1 << 20), 1.0).into_iter().map(to_bf16).collect();
    let all: Vec<u16> = piece.iter().copied().cycle().take(len).collect();
    gpu.upload(&all)
}

/// Requests of so many keys, the last of which have queries. Their blocks lie in the pool in no order.
fn batch(gpu: &mut Bench, requests: usize, keys: usize, queries: usize) -> Result<Batch, Problem> {
    let width = keys.div_ceil(BLOCK_TOKENS);
    let mut tables: Vec<i32> = (0..(requests * width) as i32).collect();
    let mut dice = Random(9);
    for i in (1..tables.len()).rev() {
        tables.swap(i, dice.below(i + 1));
    }
    let starts: Vec<i32> = (0..=requests).map(|request| (request * queries) as i32).collect();
    Ok(Batch {
        tables: gpu.upload(&tables)?,
        lengths: gpu.upload(&vec![keys as i32; requests])?,
        query_starts: gpu.upload(&starts)?,
        ancestors: None,
        requests,
        table_width: width,
        most_queries: queries,
        most_keys: keys,
    })
}

/// The same with keys and values of one layer.
fn paged(
    gpu: &mut Bench,
    requests: usize,
    keys: usize,
    queries: usize,
    kv_heads: usize,
    head_dim: usize,
) -> Result<(Cache, Batch), Problem> {
    let (half, blocks) =
        (kv_heads * BLOCK_TOKENS * head_dim, requests * keys.div_ceil(BLOCK_TOKENS));
    let pool = random(gpu, blocks * 2 * half)?;
    let cache = Cache {
        keys: pool,
        values: pool + (half * 2) as u64,
        block_stride: (2 * half) as i64,
        head_stride: (BLOCK_TOKENS * head_dim) as i64,
        scales: None,
    };
    Ok((cache, batch(gpu, requests, keys, queries)?))
}

fn workspace(gpu: &mut Bench, states: usize, width: usize) -> Result<Workspace, Problem> {
    let parts = gpu.alloc::<f32>(states * width)?.address();
    Ok(Workspace { parts, states: gpu.alloc::<f32>(states * 2)?.address() })
}
