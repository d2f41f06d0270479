//! Everything but attention.

use super::{bf16s, first, number};
use crate::Launch;
use crate::cache::{BLOCK_TOKENS, Cache, RopeCache};
use crate::gemm::{Gemm, Product, Weights, splits};
use crate::rows::{AddRmsNorm, Argmax, Embedding, RmsNorm, SwiGlu};
use crate::sampling::Sample;
use ptx_interpreter::Device;

const WIDTH: usize = 600;
const VOCABULARY: usize = 1_000;

pub(super) fn embedding(device: &mut Device) -> Launch {
    let embedding = Embedding {
        out: device.alloc::<u16>(64).address(),
        table: bf16s(device, 8 * 64),
        tokens: device.upload(&[5u32]).address(),
        rows: 1,
        vocabulary: 8,
        width: 64,
    };
    embedding.launch().expect("a shape that fits")
}

pub(super) fn rms_norm(device: &mut Device) -> Launch {
    let norm = RmsNorm {
        out: device.alloc::<u16>(WIDTH).address(),
        x: bf16s(device, WIDTH),
        weight: bf16s(device, WIDTH),
        rows: 1,
        width: WIDTH,
        epsilon: 1e-5,
    };
    norm.launch().expect("a shape that fits")
}

pub(super) fn add_rms_norm(device: &mut Device) -> Launch {
    let norm = AddRmsNorm {
        out: device.alloc::<u16>(WIDTH).address(),
        residual: bf16s(device, WIDTH),
        x: Product::Whole(bf16s(device, WIDTH)),
        weight: bf16s(device, WIDTH),
        rows: 1,
        width: WIDTH,
        epsilon: 1e-5,
    };
    norm.launch().expect("a shape that fits")
}

pub(super) fn swiglu(device: &mut Device) -> Launch {
    let gate = SwiGlu {
        out: device.alloc::<u16>(256).address(),
        x: bf16s(device, 512),
        rows: 1,
        width: 256,
    };
    gate.launch().expect("a shape that fits")
}

pub(super) fn rope_cache(device: &mut Device) -> Launch {
    let head_dim = 64;
    let turns: Vec<f32> = (0..4 * head_dim).map(|i| if i % 2 == 0 { 0.8 } else { 0.6 }).collect();
    let keys = device.alloc::<u16>(BLOCK_TOKENS * head_dim).address();
    let values = device.alloc::<u16>(BLOCK_TOKENS * head_dim).address();
    let stride = (BLOCK_TOKENS * head_dim) as i64;
    let cache = Cache { keys, values, block_stride: stride, head_stride: stride, scales: None };
    let rope = RopeCache {
        queries: device.alloc::<u16>(head_dim).address(),
        cache,
        qkv: Product::Whole(bf16s(device, 3 * head_dim)),
        turns: device.upload(&turns).address(),
        positions: device.upload(&[3i32]).address(),
        slots: device.upload(&[7i64]).address(),
        rows: 1,
        heads: 1,
        kv_heads: 1,
        head_dim,
    };
    rope.launch().expect("a shape that fits")
}

/// Which of the kernels for matrices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Prefill,
    Hopper,
    Decode,
    Add,
}

pub(super) fn gemm(device: &mut Device, rows: usize, outputs: usize, way: Way) -> Launch {
    let inputs = if way == Way::Prefill { 256 } else { 512 };
    let gemm = Gemm {
        out: device.alloc::<u16>(rows * outputs).address(),
        x: bf16s(device, rows * inputs),
        weights: Weights::Bf16(bf16s(device, outputs * inputs)),
        rows,
        outputs,
        inputs,
    };
    match way {
        Way::Prefill => return gemm.prefill().expect("a shape that fits"),
        Way::Hopper => return gemm.prefill_hopper().expect("a shape that fits"),
        Way::Decode | Way::Add => {}
    }
    let parts = device.alloc::<f32>(splits(inputs) * rows * outputs).address();
    let mut launches = gemm.decode(parts).expect("a shape that fits");
    let add = launches.pop().expect("the kernel that adds");
    let decode = launches.pop().expect("the one before it");
    if way == Way::Decode {
        return decode;
    }
    first(device, &decode);
    add
}

fn scores(device: &mut Device) -> u64 {
    let scores: Vec<f32> = (0..VOCABULARY).map(number).collect();
    device.upload(&scores).address()
}

pub(super) fn argmax(device: &mut Device) -> Launch {
    let found = device.upload(&[0u64]).address();
    let argmax = Argmax { found, scores: scores(device), rows: 1, vocabulary: VOCABULARY };
    argmax.launch().expect("a shape that fits")
}

pub(super) fn sample(device: &mut Device) -> Launch {
    let sample = Sample {
        tokens: device.alloc::<u32>(1).address(),
        scores: scores(device),
        temperatures: device.upload(&[0.8f32]).address(),
        top_ks: device.upload(&[50u32]).address(),
        top_ps: device.upload(&[0.9f32]).address(),
        draws: device.upload(&[0x9e37_79b9_7f4a_7c15u64]).address(),
        rows: 1,
        vocabulary: VOCABULARY,
    };
    sample.launch().expect("a shape that fits")
}
