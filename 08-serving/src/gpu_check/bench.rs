//! Kernels, timed.
//!
//! A sample is the time of one launch, or of one pair: so many are played that together they take a fiftieth of a second,
//! the device is waited for, and the time is divided. They are recorded once and played again, so that no launch is waited
//! for. What is read from memory in a model is read from memory here: weights, keys and values lie there so many times that
//! going through all of them in turn leaves nothing in the device's cache. Inputs are random, since a GPU is slower at some
//! numbers than at others (zeros take less power).

use anyhow::{Result, anyhow};
use cuda_kernels::attention::{
    Batch, MLA_KEY, MLA_VALUE, MlaAttention, PagedAttention, Workspace, splits,
};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache};
use cuda_kernels::check::numbers::Random;
use cuda_kernels::check::{Bench, Problem};
use cuda_kernels::gemm::{self, Gemm};
use cuda_kernels::steps::HopperAttention;
use cuda_kernels::{Address, DeviceResult, Gpu, Launch, Rows};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What a sample ought to take, so that the clock and the launches do not matter.
const SAMPLE: Duration = Duration::from_millis(20);

/// One kernel at one shape.
#[derive(Debug, Serialize)]
pub struct Timed {
    /// What was done.
    pub name: &'static str,
    /// The shape, as the peers have it too.
    pub shape: Shape,
    /// Operations of a launch, two to a multiplication with an addition; half of all scores where it is causal.
    pub flops: f64,
    /// Bytes that it must read and write.
    pub bytes: f64,
    /// Seconds, of each sample.
    pub seconds: Vec<f64>,
}

/// A shape of any of the benches.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shape {
    /// One sequence attends to itself.
    Prefill {
        /// Tokens of the sequence.
        tokens: usize,
        /// Query heads.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
        /// Whether a query sees only the keys up to its own.
        is_causal: bool,
    },
    /// One query of each of several sequences.
    Decode {
        /// Sequences.
        batch: usize,
        /// Keys of each.
        keys: usize,
        /// Query heads.
        heads: usize,
        /// Heads of keys and values.
        kv_heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// The same over latents.
    Mla {
        /// Sequences.
        batch: usize,
        /// Latents of each.
        keys: usize,
        /// Query heads.
        heads: usize,
    },
    /// A matrix product.
    Gemm {
        /// Rows of x.
        rows: usize,
        /// Columns of the product.
        outputs: usize,
        /// Columns of x.
        inputs: usize,
    },
    /// Bytes copied within the device's memory.
    Copy {
        /// How many.
        bytes: usize,
    },
}

/// What is timed, and how often.
#[derive(Debug, Clone, Serialize)]
pub struct Shapes {
    /// The shapes.
    pub shapes: Vec<Shape>,
    /// Samples of each.
    pub samples: usize,
    /// Bytes that are gone through before any is read again: several times what a cache holds. (The L2 of an H200 has 50 MB,
    /// of a B200 126 MB.)
    pub cold_bytes: usize,
}

impl Shapes {
    /// Sizes of heads and lengths that figures are published for, and shapes of models that are served. The batch of a
    /// prompt is 1: papers keep 16,384 tokens in all, so that 4,096 tokens come four times. Such a figure has four times as
    /// many blocks of threads, and is not to be read beside these. Without causality only step 6 is timed, on Hopper.
    pub fn for_a_gpu() -> Self {
        let mut shapes = vec![Shape::Copy { bytes: 1 << 30 }];
        for tokens in [4096, 8192, 16_384] {
            for (heads, head_dim) in [(32, 64), (16, 128)] {
                for is_causal in [false, true] {
                    let kv_heads = heads;
                    shapes.push(Shape::Prefill { tokens, heads, kv_heads, head_dim, is_causal });
                }
            }
        }
        for (batch, keys) in [(1, 16_384), (16, 4096), (64, 4096)] {
            for (heads, kv_heads, head_dim) in [(32, 8, 64), (32, 8, 128)] {
                shapes.push(Shape::Decode { batch, keys, heads, kv_heads, head_dim });
            }
        }
        for (batch, keys) in [(1, 16_384), (32, 4096)] {
            shapes.push(Shape::Mla { batch, keys, heads: 128 });
        }
        for rows in [1, 16, 64, 4096] {
            for (outputs, inputs) in [(4096, 4096), (14_336, 4096)] {
                shapes.push(Shape::Gemm { rows, outputs, inputs });
            }
        }
        Shapes { shapes, samples: 9, cold_bytes: 512 << 20 }
    }

    /// How many times what a shape reads from memory has to lie there. Prompts compute longer than they read.
    pub fn copies(&self, shape: Shape) -> usize {
        let bytes = match shape {
            Shape::Prefill { .. } | Shape::Copy { .. } => return 1,
            Shape::Decode { batch, keys, kv_heads, head_dim, .. } => {
                2 * 2 * batch * keys * kv_heads * head_dim
            }
            Shape::Mla { batch, keys, .. } => 2 * batch * keys * MLA_KEY,
            Shape::Gemm { outputs, inputs, .. } => 2 * outputs * inputs,
        };
        self.cold_bytes.div_ceil(bytes).max(1)
    }
}

/// Times all shapes with all kernels that are for them, each on a device of its own.
///
/// # Errors
/// If a device cannot be had, refuses or fails.
pub fn all<G: Gpu>(open: &mut dyn FnMut() -> Result<G>, shapes: &Shapes) -> Result<Vec<Timed>> {
    let mut all = Vec::new();
    for &shape in &shapes.shapes {
        let mut device = open()?;
        let mut gpu = Bench::new(&mut device);
        let copies = shapes.copies(shape);
        for work in works(&mut gpu, shape, copies)? {
            let (name, seconds) = (work.name, samples(&mut device, &work, shapes.samples)?);
            let timed = Timed { name, shape, flops: flops(shape), bytes: bytes(shape), seconds };
            println!("  {}", said(&timed));
            all.push(timed);
            // The borrow ends with each: the arrays stay where they are.
        }
    }
    Ok(all)
}

/// Something to time.
struct Work {
    name: &'static str,
    what: What,
}

enum What {
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

/// Operations, as papers count them.
fn flops(shape: Shape) -> f64 {
    let count = match shape {
        Shape::Prefill { tokens, heads, head_dim, is_causal, .. } => {
            4 * tokens * tokens * heads * head_dim / if is_causal { 2 } else { 1 }
        }
        Shape::Decode { batch, keys, heads, head_dim, .. } => 4 * batch * keys * heads * head_dim,
        Shape::Mla { batch, keys, heads } => 2 * batch * keys * heads * (MLA_KEY + MLA_VALUE),
        Shape::Gemm { rows, outputs, inputs } => 2 * rows * outputs * inputs,
        Shape::Copy { .. } => 0,
    };
    count as f64
}

/// Bytes that must be read and written, each once.
fn bytes(shape: Shape) -> f64 {
    let count = match shape {
        Shape::Prefill { tokens, heads, kv_heads, head_dim, .. } => {
            2 * tokens * head_dim * (2 * heads + 2 * kv_heads)
        }
        Shape::Decode { batch, keys, heads, kv_heads, head_dim } => {
            2 * batch * head_dim * (2 * keys * kv_heads + 2 * heads)
        }
        Shape::Mla { batch, keys, heads } => {
            2 * batch * (keys * MLA_KEY + heads * (MLA_KEY + MLA_VALUE))
        }
        Shape::Gemm { rows, outputs, inputs } => {
            2 * (rows * inputs + outputs * inputs + rows * outputs)
        }
        Shape::Copy { bytes } => 2 * bytes,
    };
    count as f64
}

/// A line about it, with the median.
fn said(timed: &Timed) -> String {
    let seconds = naive_decode::measurement::median(&timed.seconds);
    let mut said = format!("{} {:?}: {:.1} us", timed.name, timed.shape, seconds * 1e6);
    if timed.flops > 0.0 {
        said += &format!(", {:.1} TFLOP/s", timed.flops / seconds / 1e12);
    }
    said + &format!(", {:.0} GB/s", timed.bytes / seconds / 1e9)
}

/// Seconds of one go, so many times.
fn samples(device: &mut dyn Gpu, work: &Work, count: usize) -> Result<Vec<f64>> {
    let failed = |error| anyhow!("{}: {error}", work.name);
    type Go = Box<dyn Fn(&mut dyn Gpu) -> DeviceResult<()>>;
    let (go, goes): (Go, usize) = match &work.what {
        What::Launches { launches, copies } => {
            let recording = device.record(launches).map_err(failed)?;
            (Box::new(move |device| device.replay(recording)), *copies)
        }
        &What::Copy(rows) => (Box::new(move |device| device.copy(rows)), 1),
    };
    let mut play = |times: usize| -> Result<f64> {
        let began = Instant::now();
        for _ in 0..times {
            go(device).map_err(failed)?;
        }
        device.finish().map_err(failed)?;
        Ok(began.elapsed().as_secs_f64())
    };
    // The first is not as the others; the second says how many make a sample.
    play(1)?;
    let once = play(1)?;
    let times = ((SAMPLE.as_secs_f64() / once) as usize).clamp(1, 2000);
    play(times)?;
    (0..count).map(|_| Ok(play(times)? / (times * goes) as f64)).collect()
}

/// Puts a shape's arrays on a device; the kernels that are for it.
fn works(gpu: &mut Bench, shape: Shape, copies: usize) -> Result<Vec<Work>, Problem> {
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
            let splits = if is_prefill { 0 } else { gemm::splits(inputs) };
            let parts = gpu.alloc::<f32>(splits * rows * outputs)?.address();
            let mut launches = Vec::new();
            for _ in 0..copies {
                let weights = gemm::Weights::Bf16(random(gpu, outputs * inputs)?);
                let product = Gemm { out, x, weights, rows, outputs, inputs };
                match is_prefill {
                    true => launches.push(product.prefill()?),
                    false => launches.extend(product.decode(parts)?),
                }
            }
            let name = if is_prefill { "gemm_prefill" } else { "gemm_decode" };
            Ok(vec![work(name, copies, launches)])
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
    let piece: Vec<u16> = Random(len as u64)
        .bf16s(len.min(1 << 20), 1.0)
        .into_iter()
        .map(cuda_kernels::check::numbers::to_bf16)
        .collect();
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
