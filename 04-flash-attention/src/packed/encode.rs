//! From 32 floats to small integers, or small floats, with a scale, and back. Integers have the bytes of ggml's
//! blocks, but for INT8.

use crate::kernels::activations::{GROUP, largest_bits};
use crate::kernels::lanes::ROUNDING;
use gqa_mla::quantized::{from_e4m3, to_e4m3};
use half::f16;

/// Largest E4M3 number.
const LARGEST_E4M3: f32 = 448.0;

// ANCHOR: fp8
/// `scale, 32 E4M3 codes`: the largest weight in size is 448 scales.
pub(super) fn fp8(weights: &[f32; GROUP]) -> [u8; 34] {
    let scale = nearest(largest_size(weights) / LARGEST_E4M3);
    let mut block = [0; 34];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    let scale = scale.to_f32();
    if scale != 0.0 {
        for (byte, &weight) in block[2..].iter_mut().zip(weights) {
            *byte = to_e4m3(weight / scale);
        }
    }
    block
}
// ANCHOR_END: fp8

/// The weights of a block.
pub(super) fn from_fp8(block: &[u8; 34]) -> [f32; GROUP] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| from_e4m3(block[2 + i]) * scale)
}

// ANCHOR: q8_0
/// `scale, 32 codes from -127 to 127`: the largest weight in size is 127 scales.
pub(super) fn q8_0(weights: &[f32; GROUP]) -> [u8; 34] {
    let scale = nearest(largest_size(weights) / 127.0);
    let mut block = [0; 34];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    let scale = scale.to_f32();
    for (byte, &weight) in block[2..].iter_mut().zip(weights) {
        *byte = steps(weight, scale, -127.0, 127.0) as u8;
    }
    block
}
// ANCHOR_END: q8_0

/// Bytes of the scale that a row of INT8 begins with.
pub(super) const INT8_SCALE: usize = size_of::<f32>();

/// `scale, codes from -127 to 127`: the largest weight of the row in size is 127 scales.
pub(super) fn int8(row: &[f32], to: &mut [u8]) {
    let scale = largest_size(row) / 127.0;
    let (head, codes) = to.split_at_mut(INT8_SCALE);
    head.copy_from_slice(&scale.to_le_bytes());
    for (byte, &weight) in codes.iter_mut().zip(row) {
        *byte = steps(weight, scale, -127.0, 127.0) as u8;
    }
}

/// The scale of a row of INT8.
pub(super) fn int8_scale(row: &[u8]) -> f32 {
    f32::from_le_bytes(*row.first_chunk().expect("a row begins with its scale"))
}

/// The weights of a row of INT8.
pub(super) fn from_int8(row: &[u8], to: &mut [f32]) {
    let scale = int8_scale(row);
    for (to, &code) in to.iter_mut().zip(&row[INT8_SCALE..]) {
        *to = f32::from(code as i8) * scale;
    }
}

/// A row in [`q8_0`]'s blocks that all have the scale of the row's largest weight.
pub(super) fn encode_with_one_scale(row: &[f32], to: &mut [u8]) {
    let scale = nearest(largest_size(row) / 127.0);
    let by = scale.to_f32();
    for (block, weights) in to.as_chunks_mut::<34>().0.iter_mut().zip(row.chunks(GROUP)) {
        *block = [0; 34];
        block[..2].copy_from_slice(&scale.to_le_bytes());
        for (byte, &weight) in block[2..].iter_mut().zip(weights) {
            *byte = steps(weight, by, -127.0, 127.0) as u8;
        }
    }
}

/// The weights of a block.
pub(super) fn from_q8_0(block: &[u8; 34]) -> [f32; GROUP] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| f32::from(block[2 + i] as i8) * scale)
}

/// `scale, 32 codes from -8 to 7`, eight more than that in four bits: the largest weight in size is
/// eight scales below zero, so the scale may be negative.
pub(super) fn q4_0(weights: &[f32; GROUP]) -> [u8; 18] {
    let scale = nearest(largest(weights) / -8.0);
    let mut block = [0; 18];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    let scale = scale.to_f32();
    let codes = weights.map(|weight| (steps(weight, scale, -8.0, 7.0) + 8) as u8);
    block[2..].copy_from_slice(&halves(&codes));
    block
}

/// The weights of a block.
pub(super) fn from_q4_0(block: &[u8; 18]) -> [f32; GROUP] {
    let scale = half_at(block, 0);
    std::array::from_fn(|i| (f32::from(nibble(&block[2..], i)) - 8.0) * scale)
}

/// `scale, smallest, 32 codes from 0 to 15` in four bits: fifteen steps from the smallest weight to the
/// largest.
pub(super) fn q4_1(weights: &[f32; GROUP]) -> [u8; 20] {
    let low = weights.iter().fold(f32::INFINITY, |low, &w| low.min(w));
    let high = weights.iter().fold(f32::NEG_INFINITY, |high, &w| high.max(w));
    let (scale, smallest) = (nearest((high - low) / 15.0), nearest(low));
    let mut block = [0; 20];
    block[..2].copy_from_slice(&scale.to_le_bytes());
    block[2..4].copy_from_slice(&smallest.to_le_bytes());
    let (scale, smallest) = (scale.to_f32(), smallest.to_f32());
    let codes = weights.map(|weight| steps(weight - smallest, scale, 0.0, 15.0) as u8);
    block[4..].copy_from_slice(&halves(&codes));
    block
}

/// The weights of a block: a product, then a sum, each rounded, as every reader of such files has it.
pub(super) fn from_q4_1(block: &[u8; 20]) -> [f32; GROUP] {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    std::array::from_fn(|i| f32::from(nibble(&block[4..], i)) * scale + smallest)
}

/// The size of the number that is largest in size; none of them is a NaN.
fn largest_size(weights: &[f32]) -> f32 {
    f32::from_bits(largest_bits(weights))
}

/// The number that is largest in size, the first of several; positive if all are zero.
fn largest(weights: &[f32; GROUP]) -> f32 {
    let size = largest_size(weights);
    if size == 0.0 {
        return size;
    }
    weights.iter().copied().find(|weight| weight.abs() == size).unwrap_or(size)
}

/// The nearest half-precision number; the largest there is if it is larger than that.
fn nearest(x: f32) -> f16 {
    f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
}

/// How many scales a weight is, within bounds. The scale is the one that is stored, not the one that
/// was wanted: its rounding is then made up for.
#[inline(always)]
fn steps(weight: f32, scale: f32, low: f32, high: f32) -> i8 {
    // No weight has any steps of a scale of zero, nor of an infinite one, which can be divided by.
    let scale = if scale == 0.0 { f32::INFINITY } else { scale };
    ((weight / scale).clamp(low, high) + ROUNDING).to_bits() as i8
}

/// Codes `i` and `i + 16` in one byte.
fn halves(codes: &[u8; GROUP]) -> [u8; GROUP / 2] {
    std::array::from_fn(|i| codes[i] | codes[i + GROUP / 2] << 4)
}

fn nibble(bytes: &[u8], i: usize) -> u8 {
    (bytes[i % 16] >> (4 * (i / 16))) & 15
}

pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
