//! Packed weights: the same bits on every instruction set, at any number of threads and rows, and the
//! same numbers as the weights that were packed.

mod bits;
mod file;
mod formats;
mod models;

use flash_attention::kernels::Simd;
use flash_attention::packed::{Format, Memory, PackedLinear};
use flash_attention::threads::Pool;
use naive_decode::Linear;
use ndarray::Array2;

/// Numbers from -1 to 1.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn rows(rows: usize, width: usize, seed: u32) -> Array2<f32> {
    Array2::from_shape_vec((rows, width), numbers(rows * width, seed)).unwrap()
}

fn packed(
    format: Format,
    weights: &[f32],
    [outputs, inputs]: [usize; 2],
    simd: Simd,
    threads: usize,
) -> PackedLinear {
    let (pool, memory) = (Pool::new(threads), Memory::new(threads));
    PackedLinear::from_floats(format, weights, outputs, inputs, simd, &pool, &memory).unwrap()
}

/// The weights that a packed matrix stands for, row-major.
fn unpacked(linear: &PackedLinear) -> Vec<f32> {
    let mut weights = vec![0.0; linear.outputs() * linear.inputs()];
    for (output, row) in weights.chunks_exact_mut(linear.inputs()).enumerate() {
        linear.row(output, row);
    }
    weights
}
