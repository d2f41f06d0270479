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
    let decoded = |block| {
        let mut numbers = [0.0; NUMBERS];
        decode(block, &mut numbers);
        numbers
    };
    // Collected: memory that is filled with zeros first takes as long again.
    let blocks = bytes.as_chunks().0.par_iter().with_min_len(BLOCKS_AT_ONCE);
    blocks.map(decoded).collect::<Vec<_>>().into_flattened()
}

/// The f16 at byte `at`.
#[inline]
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 codes in 16 bytes: the first sixteen are the bytes' lower halves.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut codes = [0; 32];
    for (i, byte) in bytes[..16].iter().enumerate() {
        codes[i] = byte & 0xf;
        codes[i + 16] = byte >> 4;
    }
    codes
}

/// 32 codes of which four bits are in 16 bytes, and the fifth is one of 32 bits in four bytes.
#[inline(always)]
pub(super) fn five_bits(fifths: &[u8], bytes: &[u8]) -> [u8; 32] {
    let mut codes = nibbles(bytes);
    for (codes, byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(&fifths[..4]) {
        for (i, code) in codes.iter_mut().enumerate() {
            *code |= u8::from(byte & (1 << i) != 0) << 4;
        }
    }
    codes
}

/// scale, 16 bytes of halves
fn q4_0(block: &[u8; 18], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    *numbers = nibbles(&block[2..]).map(|code| (code as i32 - 8) as f32 * scale);
}

/// scale, smallest, 16 bytes of halves
fn q4_1(block: &[u8; 20], numbers: &mut [f32; 32]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    *numbers = nibbles(&block[4..]).map(|code| code as f32 * scale + smallest);
}

/// scale, 4 bytes of fifth bits, 16 bytes of halves
fn q5_0(block: &[u8; 22], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    let codes = five_bits(&block[2..6], &block[6..]);
    *numbers = codes.map(|code| (code as i32 - 16) as f32 * scale);
}

/// scale, smallest, 4 bytes of fifth bits, 16 bytes of halves
fn q5_1(block: &[u8; 24], numbers: &mut [f32; 32]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let codes = five_bits(&block[4..8], &block[8..]);
    *numbers = codes.map(|code| code as f32 * scale + smallest);
}

/// scale, 32 signed bytes
fn q8_0(block: &[u8; 34], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (number, &code) in numbers.iter_mut().zip(&block[2..]) {
        *number = code as i8 as f32 * scale;
    }
}
