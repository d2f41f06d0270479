//! Norms, SwiGLU, embedding, argmax, RoPE with the cache's writes.

use super::numbers::{HALF_ULP, Random, from_bf16, from_e4m3, near, to_bf16};
use super::{Bench, Problem, same};
use crate::cache::{BLOCK_TOKENS, Cache, CacheScales, Code, RopeCache};
use crate::gemm::Product;
use crate::rows::{AddRmsNorm, Argmax, Embedding, RmsNorm, SwiGlu};

const EPSILON: f32 = 1e-5;

fn rms_norm(x: &[f32], weight: &[f32]) -> Vec<f64> {
    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
    let scale = 1.0 / (squares / x.len() as f64 + f64::from(EPSILON)).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| f64::from(x) * scale * f64::from(w)).collect()
}

/// Rounded once to bf16; the rest is f32's, a thousandth of that.
fn rounded_once(right: &[f64]) -> impl Fn(usize) -> f64 {
    |i| right[i].abs() * HALF_ULP * 1.01 + 1e-30
}

/// Rows of several widths.
fn rms_norm_of_rows(gpu: &mut Bench) -> Result<(), Problem> {
    for (rows, width) in [(1, 1), (3, 100), (2, 256), (2, 1000)] {
        let mut random = Random(width as u64);
        let (x, weight) = (random.bf16s(rows * width, 3.0), random.bf16s(width, 2.0));
        let out = gpu.alloc::<u16>(rows * width)?;
        let launch = RmsNorm {
            out: out.address(),
            x: gpu.upload_bf16(&x)?,
            weight: gpu.upload_bf16(&weight)?,
            rows,
            width,
            epsilon: EPSILON,
        };
        gpu.run([&launch.launch()?])?;
        let right: Vec<f64> = x.chunks(width).flat_map(|row| rms_norm(row, &weight)).collect();
        near("rms_norm", &gpu.download_bf16(out)?, &right, rounded_once(&right))?;
    }
    Ok(())
}

/// The sum is stored, and what was stored is normed.
fn add_rms_norm(gpu: &mut Bench) -> Result<(), Problem> {
    let (rows, width) = (3, 300);
    let mut random = Random(1);
    let [residual, x] = [3.0, 1.0].map(|most| random.bf16s(rows * width, most));
    let weight = random.bf16s(width, 2.0);
    let out = gpu.alloc::<u16>(rows * width)?;
    let bits: Vec<u16> = residual.iter().copied().map(to_bf16).collect();
    let stored = gpu.alloc::<u16>(bits.len())?;
    gpu.write(stored, &bits)?;
    let launch = AddRmsNorm {
        out: out.address(),
        residual: stored.address(),
        x: Product::Whole(gpu.upload_bf16(&x)?),
        weight: gpu.upload_bf16(&weight)?,
        rows,
        width,
        epsilon: EPSILON,
    };
    gpu.run([&launch.launch()?])?;
    let sum: Vec<f32> = residual.iter().zip(&x).map(|(a, b)| from_bf16(to_bf16(a + b))).collect();
    same("the residual stream", &gpu.download_bf16(stored)?, &sum)?;
    let right: Vec<f64> = sum.chunks(width).flat_map(|row| rms_norm(row, &weight)).collect();
    near("add_rms_norm", &gpu.download_bf16(out)?, &right, rounded_once(&right))
}

/// A row has the same bits alone and among others.
fn norm_alone(gpu: &mut Bench) -> Result<(), Problem> {
    let (rows, width) = (5, 333);
    let mut random = Random(2);
    let (x, weight) = (random.bf16s(rows * width, 3.0), random.bf16s(width, 2.0));
    let mut norm_of = |x: &[f32]| -> Result<Vec<u16>, Problem> {
        let out = gpu.alloc::<u16>(x.len())?;
        let launch = RmsNorm {
            out: out.address(),
            x: gpu.upload_bf16(x)?,
            weight: gpu.upload_bf16(&weight)?,
            rows: x.len() / width,
            width,
            epsilon: EPSILON,
        };
        gpu.run([&launch.launch()?])?;
        gpu.download(out)
    };
    let mut alone = Vec::new();
    for row in x.chunks(width) {
        alone.extend(norm_of(row)?);
    }
    same("rms_norm, rows alone and together", &norm_of(&x)?, &alone)
}

/// SwiGLU, also where an exponential is infinite.
fn swiglu(gpu: &mut Bench) -> Result<(), Problem> {
    let (rows, width) = (3, 257);
    let mut random = Random(3);
    let mut x = random.bf16s(rows * 2 * width, 6.0);
    (x[0], x[1]) = (-200.0, 200.0); // the exponential is infinite, or nothing
    let out = gpu.alloc::<u16>(rows * width)?;
    let launch = SwiGlu { out: out.address(), x: gpu.upload_bf16(&x)?, rows, width };
    gpu.run([&launch.launch()?])?;
    let right: Vec<f64> = x
        .chunks(2 * width)
        .flat_map(|row| {
            let (gate, up) = row.split_at(width);
            let silu = |x: f64| x / (1.0 + (-x).exp());
            gate.iter().zip(up).map(move |(&g, &u)| silu(f64::from(g)) * f64::from(u))
        })
        .collect();
    let found = gpu.download_bf16(out)?;
    near("swiglu", &found, &right, rounded_once(&right))?;
    same("what an exponential that is infinite lets through", &found[..1], &[0.0])
}

/// Rows that tokens name, and NaN for what is no token.
fn embedding(gpu: &mut Bench) -> Result<(), Problem> {
    let (vocabulary, width) = (7, 300);
    let mut random = Random(4);
    let table = random.bf16s(vocabulary * width, 1.0);
    let tokens = [6u32, 0, 7, 3, u32::MAX];
    let out = gpu.alloc::<u16>(tokens.len() * width)?;
    // Numbers, so that the NaN of what is no token is the kernel's.
    gpu.write(out, &vec![0; tokens.len() * width])?;
    let launch = Embedding {
        out: out.address(),
        table: gpu.upload_bf16(&table)?,
        tokens: gpu.upload(&tokens)?,
        rows: tokens.len(),
        vocabulary,
        width,
    };
    gpu.run([&launch.launch()?])?;
    for (row, token) in gpu.download_bf16(out)?.chunks(width).zip(tokens) {
        match table.chunks(width).nth(token as usize) {
            Some(right) => same("embedding", row, right)?,
            None if row.iter().all(|x| x.is_nan()) => {}
            None => return Err(Problem::Wrong(format!("embedding: token {token} has a row"))),
        }
    }
    Ok(())
}

/// The first of the largest scores; what is no score is refused. The second vocabulary has three blocks to a row.
fn argmax(gpu: &mut Bench) -> Result<(), Problem> {
    argmax_of(gpu, 1000, [40, 41, 700, 999])?;
    argmax_of(gpu, 10_000, [4095, 4096, 8191, 8192])
}

fn argmax_of(gpu: &mut Bench, vocabulary: usize, places: [usize; 4]) -> Result<(), Problem> {
    let mut random = Random(5);
    let mut rows = vec![random.bf16s(vocabulary, 4.0); 8];
    let last = vocabulary - 1;
    for place in places {
        rows[1][place] = 9.0; // several of them, in other warps, strides and blocks
    }
    rows[2][500] = f32::NAN;
    rows[3][0] = f32::INFINITY;
    rows[4] = vec![f32::NEG_INFINITY; vocabulary];
    rows[5] = vec![f32::NEG_INFINITY; vocabulary];
    rows[5][last] = -1e38;
    rows[6] = vec![-1.0; vocabulary];
    rows[6][places[1]] = -0.0; // as large as 0, and before it
    rows[6][places[2]] = 0.0;
    rows[7][last] = -f32::NAN;
    let found = gpu.alloc::<u64>(rows.len())?;
    gpu.write(found, &vec![0; rows.len()])?;
    let launch = Argmax {
        found: found.address(),
        scores: gpu.upload(&rows.concat())?,
        rows: rows.len(),
        vocabulary,
    };
    gpu.run([&launch.launch()?])?;
    let most = rows[0].iter().copied().fold(f32::MIN, f32::max);
    let first = rows[0].iter().position(|&x| x == most).unwrap_or(0);
    let right = [Some(first), Some(places[0]), None, None, None, Some(last), Some(places[1]), None];
    let token = |found| Argmax::token(found).map(|token| token as usize);
    let found: Vec<Option<usize>> = gpu.download(found)?.into_iter().map(token).collect();
    same(&format!("argmax of {vocabulary}"), &found, &right)
}

/// Everything that works through rows.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    rms_norm_of_rows(gpu)?;
    norm_alone(gpu)?;
    add_rms_norm(gpu)?;
    swiglu(gpu)?;
    embedding(gpu)?;
    argmax(gpu)
}

/// RoPE with the cache's writes.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check_rope(gpu: &mut Bench) -> Result<(), Problem> {
    rope_cache(gpu)?;
    rope_cache_int8(gpu)?;
    rope_cache_fp8(gpu)?;
    rope_cache_of_nan(gpu)
}

/// Rows of queries, keys and values, and where they are to go.
struct Rope {
    head_dim: usize,
    qkv: Vec<f32>,
    /// Pairs of cosine and sine, `[positions][head_dim / 2]`.
    turns: Vec<f32>,
}

impl Rope {
    const ROWS: usize = 4;
    const HEADS: usize = 4;
    const KV_HEADS: usize = 2;
    const BLOCKS: usize = 3;
    const POSITIONS: [i32; 4] = [0, 5, 17, 2];
    /// The third row is padding.
    const SLOTS: [i64; 4] = [1, 47, -1, 16];

    fn new(head_dim: usize) -> Self {
        let heads = Self::ROWS * (Self::HEADS + 2 * Self::KV_HEADS);
        let half = head_dim / 2;
        let turn = |i: usize| {
            let angle = (i / half) as f64 / 10_000f64.powf((i % half) as f64 / half as f64);
            [angle.cos() as f32, angle.sin() as f32]
        };
        let qkv = Random(head_dim as u64).bf16s(heads * head_dim, 2.0);
        Rope { head_dim, qkv, turns: (0..18 * half).flat_map(turn).collect() }
    }

    /// Blocks as a pool has them: a layer's keys, then its values.
    fn cache(&self, pool: u64, bytes: usize, scales: Option<(u64, Code)>) -> Cache {
        let head_stride = BLOCK_TOKENS * self.head_dim;
        let scales = scales.map(|(scales, code)| CacheScales {
            code,
            keys: scales,
            values: scales + (Self::KV_HEADS * BLOCK_TOKENS * 4) as u64,
            block_stride: (2 * Self::KV_HEADS * BLOCK_TOKENS) as i64,
            head_stride: BLOCK_TOKENS as i64,
        });
        Cache {
            keys: pool,
            values: pool + (Self::KV_HEADS * head_stride * bytes) as u64,
            block_stride: (2 * Self::KV_HEADS * head_stride) as i64,
            head_stride: head_stride as i64,
            scales,
        }
    }

    /// Elements of the pool.
    fn pool_len(&self) -> usize {
        Self::BLOCKS * 2 * Self::KV_HEADS * BLOCK_TOKENS * self.head_dim
    }

    /// Runs the kernel; the queries it wrote.
    fn run(&self, gpu: &mut Bench, cache: Cache) -> Result<Vec<f32>, Problem> {
        let queries = gpu.alloc::<u16>(Self::ROWS * Self::HEADS * self.head_dim)?;
        let launch = RopeCache {
            queries: queries.address(),
            cache,
            qkv: Product::Whole(gpu.upload_bf16(&self.qkv)?),
            turns: gpu.upload(&self.turns)?,
            positions: gpu.upload(&Self::POSITIONS)?,
            slots: gpu.upload(&Self::SLOTS)?,
            rows: Self::ROWS,
            heads: Self::HEADS,
            kv_heads: Self::KV_HEADS,
            head_dim: self.head_dim,
        };
        gpu.run([&launch.launch()?])?;
        gpu.download_bf16(queries)
    }

    /// What a row's head should be.
    fn right(&self, row: usize, head: usize) -> Vec<f64> {
        let (all, half) = (Self::HEADS + 2 * Self::KV_HEADS, self.head_dim / 2);
        let from = &self.qkv[(row * all + head) * self.head_dim..][..self.head_dim];
        let turned = |i: usize| {
            let turn = &self.turns[(Self::POSITIONS[row] as usize * half + i % half) * 2..][..2];
            let (cosine, sine) = (f64::from(turn[0]), f64::from(turn[1]));
            let (low, high) = (f64::from(from[i % half]), f64::from(from[i % half + half]));
            match (head >= Self::HEADS + Self::KV_HEADS, i < half) {
                (true, _) => f64::from(from[i]),
                (_, true) => low * cosine - high * sine,
                (_, false) => high * cosine + low * sine,
            }
        };
        (0..self.head_dim).map(turned).collect()
    }

    /// Keys and values that are written: row, head, and which token of which head of the pool that is.
    fn written() -> impl Iterator<Item = (usize, usize, usize)> {
        let rows = (0..Self::ROWS).filter(|&row| Self::SLOTS[row] >= 0);
        rows.flat_map(|row| {
            (0..2 * Self::KV_HEADS).map(move |head| {
                let slot = Self::SLOTS[row] as usize;
                let place = (slot / BLOCK_TOKENS * 2 * Self::KV_HEADS + head) * BLOCK_TOKENS;
                (row, Self::HEADS + head, place + slot % BLOCK_TOKENS)
            })
        })
    }
}

/// Queries and keys are turned; keys and values are where the slots say, and nowhere else.
fn rope_cache(gpu: &mut Bench) -> Result<(), Problem> {
    for head_dim in [64, 128] {
        let rope = Rope::new(head_dim);
        let pool = gpu.alloc::<u16>(rope.pool_len())?;
        let queries = rope.run(gpu, rope.cache(pool.address(), 2, None))?;
        // A turn's two products are rounded in f32; what they nearly cancel to is small beside them.
        let compare = |found: &[f32], row, head| {
            let right = rope.right(row, head);
            near("rope_cache", found, &right, |i| right[i].abs() * HALF_ULP * 1.01 + 1e-6)
        };
        for (i, query) in queries.chunks(head_dim).enumerate() {
            compare(query, i / Rope::HEADS, i % Rope::HEADS)?;
        }
        let pool = gpu.download_bf16(pool)?;
        for (row, head, token) in Rope::written() {
            compare(&pool[token * head_dim..][..head_dim], row, head)?;
        }
        let untouched = pool.iter().filter(|x| x.is_nan()).count();
        let written = Rope::written().count() * head_dim;
        same("places that are not written", &[untouched], &[pool.len() - written])?;
    }
    Ok(())
}

/// The same in bytes. Half of a code, and f32's own roundings.
fn rope_cache_int8(gpu: &mut Bench) -> Result<(), Problem> {
    let value = |code: u8| f32::from(code.cast_signed());
    rope_cache_in("rope_cache_int8", Code::Int8, value, gpu, |right, _, _| {
        right.iter().fold(0.0f64, |most, x| most.max(x.abs())) / 127.0 * 0.501
    })
}

/// The same in FP8. Four bits of significand, or half of the smallest step; and f32's own roundings.
fn rope_cache_fp8(gpu: &mut Bench) -> Result<(), Problem> {
    rope_cache_in("rope_cache_fp8", Code::Fp8, from_e4m3, gpu, |right, scale, i| {
        (right[i].abs() / 16.0).max(scale * 2f64.powi(-10)) * 1.0001 + 1e-6
    })
}

/// No code of INT8 says that a number is none: its head's scale does.
fn rope_cache_of_nan(gpu: &mut Bench) -> Result<(), Problem> {
    let mut rope = Rope::new(64);
    let odd = [(0, Rope::HEADS), (3, Rope::HEADS + Rope::KV_HEADS + 1)];
    for (i, (row, head)) in odd.into_iter().enumerate() {
        let all = Rope::HEADS + 2 * Rope::KV_HEADS;
        rope.qkv[(row * all + head) * 64 + 40 * i + 3] = f32::NAN;
    }
    let pool = gpu.alloc::<u8>(rope.pool_len())?;
    let scales = gpu.alloc::<f32>(rope.pool_len() / 64)?;
    gpu.write(scales, &vec![0.0; rope.pool_len() / 64])?;
    rope.run(gpu, rope.cache(pool.address(), 1, Some((scales.address(), Code::Int8))))?;
    let scales = gpu.download(scales)?;
    for (row, head, token) in Rope::written() {
        let what = format!("rope_cache_int8, whether the scale of row {row}, head {head} is none");
        same(&what, &[scales[token].is_nan()], &[odd.contains(&(row, head))])?;
    }
    Ok(())
}

/// Codes of one byte with a scale for each token and head. `bound` has what is right, the scale, and which element.
fn rope_cache_in(
    kernel: &str,
    code: Code,
    value: impl Fn(u8) -> f32,
    gpu: &mut Bench,
    bound: impl Fn(&[f64], f64, usize) -> f64,
) -> Result<(), Problem> {
    for head_dim in [64, 128] {
        let rope = Rope::new(head_dim);
        let pool = gpu.alloc::<u8>(rope.pool_len())?;
        let scales = gpu.alloc::<f32>(rope.pool_len() / head_dim)?;
        rope.run(gpu, rope.cache(pool.address(), 1, Some((scales.address(), code))))?;
        let (pool, scales) = (gpu.download(pool)?, gpu.download(scales)?);
        for (row, head, token) in Rope::written() {
            let right = rope.right(row, head);
            let codes = &pool[token * head_dim..][..head_dim];
            let found: Vec<f32> = codes.iter().map(|&code| value(code) * scales[token]).collect();
            near(kernel, &found, &right, |i| bound(&right, f64::from(scales[token]), i))?;
        }
        let written = scales.iter().filter(|scale| !scale.is_nan()).count();
        same("scales that are written", &[written], &[Rope::written().count()])?;
    }
    Ok(())
}
