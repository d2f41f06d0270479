//! ggml's K-quants: blocks of 256 whose sub-blocks have small integer scales of their own.
//!
//! In every one of them, number `i` of the block finds its bits by `i` alone: which byte, how far
//! shifted, which scale. The functions below say just that.

use super::dequantise::half_at;

/// 16 scales with 16 smallest values (4 bits each), 64 bytes of codes, scale of scales, scale of
/// smallest values.
pub(super) fn q2_k(block: &[u8; 84], numbers: &mut [f32; 256]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (scale, smallest) = (half_at(block, 80), half_at(block, 82));
    for (i, number) in numbers.iter_mut().enumerate() {
        let both = scales[i / 16];
        let (by, less) = (scale * (both & 0xf) as f32, smallest * (both >> 4) as f32);
        *number = by * two_bits(codes, i) as f32 - less;
    }
}

/// 32 bytes of third bits, 64 bytes of lower bits, 16 scales of 6 bits in 12 bytes, scale of
/// scales.
pub(super) fn q3_k(block: &[u8; 110], numbers: &mut [f32; 256]) {
    let (thirds, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    for (i, number) in numbers.iter_mut().enumerate() {
        let group = i / 16;
        let low = (scales[group % 8] >> (4 * (group / 8))) & 0xf;
        let high = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
        let by = scale * ((low | high << 4) as f32 - 32.0);
        let third = (thirds[i % 32] >> (i / 32)) & 1;
        *number = by * ((two_bits(codes, i) | third << 2) as i32 - 4) as f32;
    }
}

/// Scale of scales, scale of smallest values, 8 of each in 12 bytes, 128 bytes of halves.
pub(super) fn q4_k(block: &[u8; 144], numbers: &mut [f32; 256]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let (packed, codes) = (&block[4..16], &block[16..]);
    for (i, number) in numbers.iter_mut().enumerate() {
        let (by, less) = scale_and_smallest(packed, i / 32);
        let (by, less) = (scale * by, smallest * less);
        *number = by * half_byte(codes, i) as f32 - less;
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the halves.
pub(super) fn q5_k(block: &[u8; 176], numbers: &mut [f32; 256]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let (packed, fifths, codes) = (&block[4..16], &block[16..48], &block[48..]);
    for (i, number) in numbers.iter_mut().enumerate() {
        let (by, less) = scale_and_smallest(packed, i / 32);
        let (by, less) = (scale * by, smallest * less);
        let fifth = (fifths[i % 32] >> (i / 32)) & 1;
        *number = by * (half_byte(codes, i) | fifth << 4) as f32 - less;
    }
}

/// 128 bytes of lower halves, 64 bytes of upper pairs of bits, 16 signed scales, scale of scales.
pub(super) fn q6_k(block: &[u8; 210], numbers: &mut [f32; 256]) {
    let (lows, highs, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (i, number) in numbers.iter_mut().enumerate() {
        let (half, quarter, place) = (i / 128, i % 128 / 32, i % 32);
        let low = (lows[64 * half + 32 * (quarter % 2) + place] >> (4 * (quarter / 2))) & 0xf;
        let high = (highs[32 * half + place] >> (2 * quarter)) & 3;
        let by = scale * scales[i / 16] as i8 as f32;
        *number = by * ((low | high << 4) as i32 - 32) as f32;
    }
}

/// Code `i` of 256 with two bits each: 128 to every 32 bytes, a quarter of them to every pair of
/// bits.
fn two_bits(codes: &[u8], i: usize) -> u8 {
    (codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3
}

/// Code `i` of 256 with four bits each: 64 to every 32 bytes, lower halves first.
pub(super) fn half_byte(codes: &[u8], i: usize) -> u8 {
    (codes[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2))) & 0xf
}

/// The 6-bit scale and smallest value of sub-block `group`. The first four of each lie in the lower
/// bits of a byte; what those bytes have left holds the upper bits of the other four.
pub(super) fn scale_and_smallest(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, smallest) = match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => {
            let lower = packed[group + 4];
            let scale = (lower & 0xf) | (packed[group - 4] >> 6) << 4;
            (scale, (lower >> 4) | (packed[group] >> 6) << 4)
        }
    };
    (scale as f32, smallest as f32)
}
