//! What the tests of each codec share.

use gqa_mla::quantized::{Codec, random};

/// What a tile of rows comes back as, `[tokens][D]`, in the basis of the codes.
pub(crate) fn back(codec: &dyn Codec, rows: &[f32]) -> Vec<f32> {
    let dim = rows.len() / codec.tokens();
    let mut tile = vec![0xa5; codec.bytes()];
    codec.encode(rows, &mut tile);
    let token = |token| {
        let mut numbers = vec![0.0; dim];
        let factor = codec.numbers(&tile, token, &mut numbers);
        numbers.into_iter().map(move |x| x * factor).collect::<Vec<_>>()
    };
    (0..codec.tokens()).flat_map(token).collect()
}

pub(crate) fn normal(seed: u64, count: usize) -> Vec<f32> {
    random::normal(seed, count).into_iter().map(|x| x as f32).collect()
}

pub(crate) fn length(x: &[f32]) -> f32 {
    x.iter().map(|x| x * x).sum::<f32>().sqrt()
}

/// A half-precision scale is rounded up by one part in 2048 at most, or by one of its smallest steps.
pub(crate) fn step(range: f32, steps: f32) -> f32 {
    range / steps * (1.0 + 1.0 / 1024.0) + 6e-8
}
