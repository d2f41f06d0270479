//! Blocks back to f32, with the roundings that ggml's own definitions have: a product, then a sum,
//! never fused. Another order would give other bits than every other reader of the same file.

use super::{BlockType, iq4, k_quants};
use half::{bf16, f16};
use rayon::prelude::*;

/// Blocks that one thread takes at a time: enough that handing them out costs nothing.
pub(super) const BLOCKS_AT_ONCE: usize = 256;

/// The numbers that `bytes` stand for, in order.
///
/// # Panics
/// If the bytes are not a whole number of blocks.
pub fn dequantise(kind: BlockType, bytes: &[u8]) -> Vec<f32> {
    assert_eq!(bytes.len() % kind.block_bytes(), 0, "{kind} takes whole blocks");
    match kind {
        BlockType::F32 => {
            each(bytes, |b: &[u8; 4], y: &mut [f32; 1]| y[0] = f32::from_le_bytes(*b))
        }
        BlockType::F16 => each(bytes, |b: &[u8; 2], y: &mut [f32; 1]| y[0] = half_at(b, 0)),
        BlockType::BF16 => each(bytes, |b: &[u8; 2], y: &mut [f32; 1]| {
            y[0] = bf16::from_le_bytes(*b).to_f32();
        }),
        BlockType::Q4_0 => each(bytes, q4_0),
        BlockType::Q4_1 => each(bytes, q4_1),
        BlockType::Q5_0 => each(bytes, q5_0),
        BlockType::Q5_1 => each(bytes, q5_1),
        BlockType::Q8_0 => each(bytes, q8_0),
        BlockType::Q2K => each(bytes, k_quants::q2_k),
        BlockType::Q3K => each(bytes, k_quants::q3_k),
        BlockType::Q4K => each(bytes, k_quants::q4_k),
        BlockType::Q5K => each(bytes, k_quants::q5_k),
        BlockType::Q6K => each(bytes, k_quants::q6_k),
        BlockType::Iq4Nl => each(bytes, iq4::iq4_nl),
        BlockType::Iq4Xs => each(bytes, iq4::iq4_xs),
    }
}

/// Applies `decode` to every block of `BYTES` bytes, which becomes `NUMBERS` numbers.
fn each<const BYTES: usize, const NUMBERS: usize>(
    bytes: &[u8],
    decode: impl Fn(&[u8; BYTES], &mut [f32; NUMBERS]) + Sync,
) -> Vec<f32> {
    let blocks = bytes.as_chunks::<BYTES>().0;
    let mut numbers = vec![0.0; blocks.len() * NUMBERS];
    let rows = numbers.as_chunks_mut::<NUMBERS>().0;
    blocks
        .par_iter()
        .zip(rows)
        .with_min_len(BLOCKS_AT_ONCE)
        .for_each(|(block, numbers)| decode(block, numbers));
    numbers
}

/// The f16 at byte `at`.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Number `i` of 32 in 16 bytes: the first sixteen are the bytes' lower halves.
pub(super) fn nibble(bytes: &[u8], i: usize) -> u8 {
    (bytes[i % 16] >> (4 * (i / 16))) & 0xf
}

/// The fifth bit of number `i`, in its place; the bits of all 32 lie in four bytes.
pub(super) fn fifth_bit(bytes: &[u8], i: usize) -> u8 {
    ((bytes[i / 8] >> (i % 8)) & 1) << 4
}

/// scale, 16 bytes of halves
fn q4_0(block: &[u8; 18], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = (nibble(&block[2..], i) as i32 - 8) as f32 * scale;
    }
}

/// scale, smallest, 16 bytes of halves
fn q4_1(block: &[u8; 20], numbers: &mut [f32; 32]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = nibble(&block[4..], i) as f32 * scale + smallest;
    }
}

/// scale, 4 bytes of fifth bits, 16 bytes of halves
fn q5_0(block: &[u8; 22], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (i, number) in numbers.iter_mut().enumerate() {
        let code = nibble(&block[6..], i) | fifth_bit(&block[2..], i);
        *number = (code as i32 - 16) as f32 * scale;
    }
}

/// scale, smallest, 4 bytes of fifth bits, 16 bytes of halves
fn q5_1(block: &[u8; 24], numbers: &mut [f32; 32]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    for (i, number) in numbers.iter_mut().enumerate() {
        let code = nibble(&block[8..], i) | fifth_bit(&block[4..], i);
        *number = code as f32 * scale + smallest;
    }
}

/// scale, 32 signed bytes
fn q8_0(block: &[u8; 34], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (number, &code) in numbers.iter_mut().zip(&block[2..]) {
        *number = code as i8 as f32 * scale;
    }
}
