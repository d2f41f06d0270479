//! Norms, SwiGLU, embedding, argmax, RoPE with the cache's writes.

use crate::gpu::Gpu;
use crate::numbers::{HALF_ULP, Random, assert_near, from_bf16, to_bf16};
use cuda_kernels::cache::{BLOCK_TOKENS, Cache, CacheScales, Code, RopeCache};
use cuda_kernels::rows::{AddRmsNorm, Argmax, Embedding, RmsNorm, SwiGlu};

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

#[test]
fn rms_norm_is_the_norm_of_each_row() {
    for (rows, width) in [(1, 1), (3, 100), (2, 256), (2, 1000)] {
        let (mut gpu, mut random) = (Gpu::new(), Random(width as u64));
        let (x, weight) = (random.bf16s(rows * width, 3.0), random.bf16s(width, 2.0));
        let out = gpu.alloc::<u16>(rows * width);
        let launch = RmsNorm {
            out: out.address(),
            x: gpu.upload_bf16(&x),
            weight: gpu.upload_bf16(&weight),
            rows,
            width,
            epsilon: EPSILON,
        };
        let counts = gpu.run(&launch.launch().unwrap());
        let right: Vec<f64> = x.chunks(width).flat_map(|row| rms_norm(row, &weight)).collect();
        assert_near("rms_norm", &gpu.download_bf16(out), &right, rounded_once(&right));
        assert_eq!(counts.bank_conflicts(), 0);
    }
}

#[test]
fn add_rms_norm_stores_the_sum_and_norms_what_it_stored() {
    let (rows, width) = (3, 300);
    let (mut gpu, mut random) = (Gpu::new(), Random(1));
    let [residual, x] = [3.0, 1.0].map(|most| random.bf16s(rows * width, most));
    let weight = random.bf16s(width, 2.0);
    let out = gpu.alloc::<u16>(rows * width);
    let bits: Vec<u16> = residual.iter().copied().map(to_bf16).collect();
    let stored = gpu.alloc::<u16>(bits.len());
    gpu.write(stored, &bits);
    let launch = AddRmsNorm {
        out: out.address(),
        residual: stored.address(),
        x: gpu.upload_bf16(&x),
        weight: gpu.upload_bf16(&weight),
        rows,
        width,
        epsilon: EPSILON,
    };
    gpu.run(&launch.launch().unwrap());
    let sum: Vec<f32> = residual.iter().zip(&x).map(|(a, b)| from_bf16(to_bf16(a + b))).collect();
    assert_eq!(gpu.download_bf16(stored), sum);
    let right: Vec<f64> = sum.chunks(width).flat_map(|row| rms_norm(row, &weight)).collect();
    assert_near("add_rms_norm", &gpu.download_bf16(out), &right, rounded_once(&right));
}

#[test]
fn a_row_has_the_same_norm_alone_and_among_others() {
    let (rows, width) = (5, 333);
    let mut random = Random(2);
    let (x, weight) = (random.bf16s(rows * width, 3.0), random.bf16s(width, 2.0));
    let norm_of = |x: &[f32]| {
        let mut gpu = Gpu::new();
        let out = gpu.alloc::<u16>(x.len());
        let launch = RmsNorm {
            out: out.address(),
            x: gpu.upload_bf16(x),
            weight: gpu.upload_bf16(&weight),
            rows: x.len() / width,
            width,
            epsilon: EPSILON,
        };
        gpu.run(&launch.launch().unwrap());
        gpu.download(out)
    };
    let alone: Vec<u16> = x.chunks(width).flat_map(norm_of).collect();
    assert_eq!(alone, norm_of(&x));
}

#[test]
fn swiglu_gates() {
    let (rows, width) = (3, 257);
    let (mut gpu, mut random) = (Gpu::new(), Random(3));
    let mut x = random.bf16s(rows * 2 * width, 6.0);
    (x[0], x[1]) = (-200.0, 200.0); // the exponential is infinite, or nothing
    let out = gpu.alloc::<u16>(rows * width);
    let launch = SwiGlu { out: out.address(), x: gpu.upload_bf16(&x), rows, width };
    let counts = gpu.run(&launch.launch().unwrap());
    let right: Vec<f64> = x
        .chunks(2 * width)
        .flat_map(|row| {
            let (gate, up) = row.split_at(width);
            let silu = |x: f64| x / (1.0 + (-x).exp());
            gate.iter().zip(up).map(move |(&g, &u)| silu(f64::from(g)) * f64::from(u))
        })
        .collect();
    let found = gpu.download_bf16(out);
    assert_near("swiglu", &found, &right, rounded_once(&right));
    assert_eq!(found[0], 0.0);
    // Two bytes are read twice and written once for each element, and neighbours lie next to each other.
    assert_eq!(counts.global_load_bytes, (rows * width * 4) as u64);
}

#[test]
fn embedding_copies_rows_and_refuses_what_is_no_token() {
    let (vocabulary, width) = (7, 300);
    let (mut gpu, mut random) = (Gpu::new(), Random(4));
    let table = random.bf16s(vocabulary * width, 1.0);
    let tokens = [6u32, 0, 7, 3, u32::MAX];
    let out = gpu.alloc::<u16>(tokens.len() * width);
    let launch = Embedding {
        out: out.address(),
        table: gpu.upload_bf16(&table),
        tokens: gpu.upload(&tokens),
        rows: tokens.len(),
        vocabulary,
        width,
    };
    gpu.run(&launch.launch().unwrap());
    for (row, token) in gpu.download_bf16(out).chunks(width).zip(tokens) {
        match table.chunks(width).nth(token as usize) {
            Some(right) => assert_eq!(row, right),
            None => assert!(row.iter().all(|x| x.is_nan()), "token {token}"),
        }
    }
}

#[test]
fn argmax_takes_the_first_of_the_largest_and_refuses_what_is_no_score() {
    let vocabulary = 1000;
    let (mut gpu, mut random) = (Gpu::new(), Random(5));
    let mut rows = vec![random.bf16s(vocabulary, 4.0); 6];
    for place in [999, 40, 41, 700] {
        rows[1][place] = 9.0; // several of them, in other warps and strides
    }
    rows[2][500] = f32::NAN;
    rows[3][0] = f32::INFINITY;
    rows[4] = vec![f32::NEG_INFINITY; vocabulary];
    rows[5] = vec![f32::NEG_INFINITY; vocabulary];
    rows[5][999] = -1e38;
    let tokens = gpu.alloc::<u32>(rows.len());
    let launch = Argmax {
        tokens: tokens.address(),
        scores: gpu.upload(&rows.concat()),
        rows: rows.len(),
        vocabulary,
    };
    gpu.run(&launch.launch().unwrap());
    let most = rows[0].iter().copied().fold(f32::MIN, f32::max);
    let first = rows[0].iter().position(|&x| x == most).unwrap() as u32;
    let refused = u32::MAX;
    assert_eq!(gpu.download(tokens), [first, 40, refused, refused, refused, 999]);
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
    fn cache(&self, pool: u64, bytes: usize, scales: Option<u64>) -> Cache {
        let head_stride = BLOCK_TOKENS * self.head_dim;
        let scales = scales.map(|scales| CacheScales {
            code: Code::Int8,
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
    fn run(&self, gpu: &mut Gpu, cache: Cache) -> Vec<f32> {
        let queries = gpu.alloc::<u16>(Self::ROWS * Self::HEADS * self.head_dim);
        let launch = RopeCache {
            queries: queries.address(),
            cache,
            qkv: gpu.upload_bf16(&self.qkv),
            turns: gpu.upload(&self.turns),
            positions: gpu.upload(&Self::POSITIONS),
            slots: gpu.upload(&Self::SLOTS),
            rows: Self::ROWS,
            heads: Self::HEADS,
            kv_heads: Self::KV_HEADS,
            head_dim: self.head_dim,
        };
        gpu.run(&launch.launch().unwrap());
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

#[test]
fn rope_turns_queries_and_keys_and_puts_keys_and_values_where_the_slots_say() {
    for head_dim in [64, 128] {
        let (mut gpu, rope) = (Gpu::new(), Rope::new(head_dim));
        let pool = gpu.alloc::<u16>(rope.pool_len());
        gpu.write(pool, &vec![0x7fc0; rope.pool_len()]);
        let queries = rope.run(&mut gpu, rope.cache(pool.address(), 2, None));
        // A turn's two products are rounded in f32; what they nearly cancel to is small beside them.
        let assert_turned = |found: &[f32], row, head| {
            let right = rope.right(row, head);
            assert_near("rope_cache", found, &right, |i| right[i].abs() * HALF_ULP * 1.01 + 1e-6);
        };
        for (i, query) in queries.chunks(head_dim).enumerate() {
            assert_turned(query, i / Rope::HEADS, i % Rope::HEADS);
        }
        let pool = gpu.download_bf16(pool);
        for (row, head, token) in Rope::written() {
            assert_turned(&pool[token * head_dim..][..head_dim], row, head);
        }
        let untouched = pool.iter().filter(|x| x.is_nan()).count();
        let written = Rope::written().count() * head_dim;
        assert_eq!(untouched, pool.len() - written, "nothing else is written");
    }
}

#[test]
fn rope_writes_keys_and_values_in_bytes() {
    for head_dim in [64, 128] {
        let (mut gpu, rope) = (Gpu::new(), Rope::new(head_dim));
        let pool = gpu.alloc::<i8>(rope.pool_len());
        let scales = gpu.alloc::<f32>(rope.pool_len() / head_dim);
        gpu.write(scales, &vec![f32::NAN; rope.pool_len() / head_dim]);
        rope.run(&mut gpu, rope.cache(pool.address(), 1, Some(scales.address())));
        let (pool, scales) = (gpu.download(pool), gpu.download(scales));
        for (row, head, token) in Rope::written() {
            let right = rope.right(row, head);
            let largest = right.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let found: Vec<f32> = pool[token * head_dim..][..head_dim]
                .iter()
                .map(|&code| f32::from(code) * scales[token])
                .collect();
            // Half of a code, and f32's own roundings.
            assert_near("rope_cache_int8", &found, &right, |_| largest / 127.0 * 0.501);
        }
        let written = scales.iter().filter(|scale| !scale.is_nan()).count();
        assert_eq!(written, Rope::written().count(), "nothing else is written");
    }
}
