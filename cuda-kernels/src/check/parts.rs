//! Kernels that add a product's splits themselves, against the two kernels that they stand for, bit for bit.

use super::numbers::{Random, from_bf16, to_bf16};
use super::{Bench, Problem, same};
use crate::cache::{BLOCK_TOKENS, Cache, RopeCache};
use crate::gemm::{Gemm, Product, SPLIT, Shares, Weights};
use crate::rows::AddRmsNorm;

/// `[splits][rows * width]`. Of each element, one split is so large that what was added before is lost in it, and a later one
/// takes it away again: another order loses others.
fn parts(splits: usize, count: usize) -> Vec<f32> {
    let mut random = Random((splits * count) as u64);
    let mut parts = random.bf16s(splits * count, 300.0);
    for i in 0..if splits > 2 { count } else { 0 } {
        let first = random.below(splits - 1);
        let then = first + 1 + random.below(splits - 1 - first);
        (parts[first * count + i], parts[then * count + i]) = (1e9, -1e9);
    }
    // Splits of -0 alone make +0, as sums begin with that.
    parts.iter_mut().step_by(count).for_each(|part| *part = -0.0);
    parts
}

/// The same product twice: in parts, and added and rounded. And its numbers.
fn both_ways(
    gpu: &mut Bench,
    (rows, width): (usize, usize),
    splits: usize,
) -> Result<([Product; 2], Vec<f32>), Problem> {
    let count = rows * width;
    let apart = parts(splits, count);
    let sum = |i| apart[i..].iter().step_by(count).fold(0.0f32, |sum, part| sum + part);
    let right: Vec<u16> = (0..count).map(|i| to_bf16(sum(i))).collect();
    let parts = gpu.upload(&apart)?;
    let whole = gpu.alloc::<u16>(count)?;
    if splits == 1 {
        gpu.write(whole, &right)?;
    } else {
        // Only what adds is launched.
        let product = Gemm {
            out: whole.address(),
            x: 0,
            weights: Weights::Bf16(0),
            rows,
            outputs: width,
            inputs: splits * SPLIT,
        };
        let adding = product.decode_by(Shares::Splits, parts)?;
        same("add_splits", &gpu.written(whole, &adding[1..])?, &right)?;
    }
    let numbers = right.into_iter().map(from_bf16).collect();
    Ok(([Product::Parts { parts, splits }, Product::Whole(whole.address())], numbers))
}

/// Rows, splits and width: turns of splits that are short, whole and several; rows as wide as one turn of the threads that add
/// and of those that norm, and wider.
const NORMS: [(usize, usize, usize); 9] = [
    (1, 1, 8),
    (3, 2, 72),
    (64, 3, 136),
    (3, 7, 1000),
    (1, 8, 2048),
    (3, 9, 2056),
    (2, 16, 4096),
    (1, 17, 4104),
    (3, 33, 264),
];

fn add_rms_norm(gpu: &mut Bench) -> Result<(), Problem> {
    for (rows, splits, width) in NORMS {
        let mut random = Random(width as u64);
        let weight = gpu.upload_bf16(&random.bf16s(width, 2.0))?;
        let before: Vec<u16> = random.bf16s(rows * width, 3.0).into_iter().map(to_bf16).collect();
        let run = |gpu: &mut Bench, x| {
            let [out, residual] = [gpu.alloc::<u16>(before.len())?, gpu.alloc(before.len())?];
            gpu.write(residual, &before)?;
            let launch = AddRmsNorm {
                out: out.address(),
                residual: residual.address(),
                x,
                weight,
                rows,
                width,
                epsilon: 1e-5,
            };
            gpu.run([&launch.launch()?])?;
            Ok::<_, Problem>((gpu.download(residual)?, gpu.download(out)?))
        };
        let ([apart, whole], _) = both_ways(gpu, (rows, width), splits)?;
        let (found, right) = (run(gpu, apart)?, run(gpu, whole)?);
        let what = format!("{rows} x {width} of {splits} splits");
        same(&format!("the residual stream, {what}"), &found.0, &right.0)?;
        same(&format!("add_rms_norm_parts, {what}"), &found.1, &right.1)?;
    }
    Ok(())
}

/// Rows, splits and elements of a head.
const ROPES: [(usize, usize, usize); 6] =
    [(1, 1, 64), (3, 2, 128), (64, 3, 64), (3, 8, 64), (1, 9, 128), (3, 33, 64)];

fn rope_cache(gpu: &mut Bench) -> Result<(), Problem> {
    let (heads, kv_heads) = (3, 2);
    for (rows, splits, head_dim) in ROPES {
        let head_stride = BLOCK_TOKENS * head_dim;
        let width = (heads + 2 * kv_heads) * head_dim;
        let ([apart, whole], numbers) = both_ways(gpu, (rows, width), splits)?;
        // Turns that leave next to nothing of the first head's pairs: how its products were rounded shows in what is left. The
        // last row has the first position.
        let (half, mut turns) = (head_dim / 2, Vec::new());
        for row in numbers.chunks(width).rev() {
            for (&a, &b) in row[..half].iter().zip(&row[half..]) {
                let (sine, cosine) = (f64::from(a).atan2(b.into()) + 1e-4).sin_cos();
                turns.extend([cosine as f32, sine as f32]);
            }
        }
        let turns = gpu.upload(&turns)?;
        let positions = gpu.upload(&(0..rows as i32).rev().collect::<Vec<_>>())?;
        // Each row has a place of its own; the last of several is padding.
        let slot = |row: usize| if row > 0 && row + 1 == rows { -1 } else { row as i64 };
        let slots = gpu.upload(&(0..rows).map(slot).collect::<Vec<_>>())?;
        let run = |gpu: &mut Bench, qkv| {
            let queries = gpu.alloc::<u16>(rows * heads * head_dim)?;
            let blocks = rows.div_ceil(BLOCK_TOKENS);
            let pool = gpu.alloc::<u16>(blocks * 2 * kv_heads * head_stride)?;
            gpu.write(pool, &vec![0; pool.len()])?;
            let cache = Cache {
                keys: pool.address(),
                values: pool.address() + (kv_heads * head_stride * 2) as u64,
                block_stride: (2 * kv_heads * head_stride) as i64,
                head_stride: head_stride as i64,
                scales: None,
            };
            let launch = RopeCache {
                queries: queries.address(),
                cache,
                qkv,
                turns,
                positions,
                slots,
                rows,
                heads,
                kv_heads,
                head_dim,
            };
            gpu.run([&launch.launch()?])?;
            Ok::<_, Problem>((gpu.download(queries)?, gpu.download(pool)?))
        };
        let (found, right) = (run(gpu, apart)?, run(gpu, whole)?);
        let what = format!("{rows} rows, heads of {head_dim}, {splits} splits");
        same(&format!("rope_cache_parts, queries, {what}"), &found.0, &right.0)?;
        same(&format!("rope_cache_parts, the cache, {what}"), &found.1, &right.1)?;
    }
    Ok(())
}

/// Norms and RoPE of products whose splits are still apart.
///
/// # Errors
/// Names what is wrong.
pub(super) fn check(gpu: &mut Bench) -> Result<(), Problem> {
    add_rms_norm(gpu)?;
    rope_cache(gpu)
}
