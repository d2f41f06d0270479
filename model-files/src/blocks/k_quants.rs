//! ggml's K-quants: blocks of 256 whose sub-blocks have small integer scales of their own.
//!
//! In every one of them, codes lie in eight runs of 32 numbers. A run has its bits in 32 bytes that lie side by side, at the same
//! place of every byte; which bytes and which place follows from the run's number. A code of 3, 5 or 6 bits has its upper bits in
//! another stretch, which is laid out in the same way. So each function below puts codes together run by run, and then makes
//! numbers of them sub-block by sub-block, each with its own scale. All of these are loops that do the same to every number, and
//! the compiler has them do it to sixteen at once.

use super::dequantise::half_at;

/// Numbers whose bits lie at the same place of as many bytes.
const RUN: usize = 32;

/// 16 scales with 16 smallest values (4 bits each), 64 bytes of codes, scale of scales, scale of
/// smallest values.
pub(super) fn q2_k(block: &[u8; 84], numbers: &mut [f32; 256]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (scale, smallest) = (half_at(block, 80), half_at(block, 82));
    let codes = runs(|run| two_bits(codes, run));
    for ((numbers, codes), &both) in sub_blocks::<16>(numbers, &codes).zip(scales) {
        let (by, less) = (scale * (both & 0xf) as f32, smallest * (both >> 4) as f32);
        above_smallest(numbers, codes, by, less);
    }
}

/// 32 bytes of third bits, 64 bytes of lower bits, 16 scales of 6 bits in 12 bytes, scale of
/// scales.
pub(super) fn q3_k(block: &[u8; 110], numbers: &mut [f32; 256]) {
    let (thirds, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let scale = half_at(block, 108);
    let codes = runs(|run| below_and_above(two_bits(codes, run), bits::<1>(thirds, run), 2));
    for ((numbers, codes), group) in sub_blocks::<16>(numbers, &codes).zip(0..) {
        let low = (scales[group % 8] >> (4 * (group / 8))) & 0xf;
        let high = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
        about_zero(numbers, codes, 4, scale * ((low | high << 4) as f32 - 32.0));
    }
}

/// Scale of scales, scale of smallest values, 8 of each in 12 bytes, 128 bytes of halves.
pub(super) fn q4_k(block: &[u8; 144], numbers: &mut [f32; 256]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let (packed, codes) = (&block[4..16], &block[16..]);
    let codes = runs(|run| half_bytes(codes, run));
    for ((numbers, codes), group) in sub_blocks::<32>(numbers, &codes).zip(0..) {
        let (by, less) = scale_and_smallest(packed, group);
        above_smallest(numbers, codes, scale * by, smallest * less);
    }
}

/// As [`q4_k`], with 32 bytes of fifth bits before the halves.
pub(super) fn q5_k(block: &[u8; 176], numbers: &mut [f32; 256]) {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let (packed, fifths, codes) = (&block[4..16], &block[16..48], &block[48..]);
    let codes = runs(|run| below_and_above(half_bytes(codes, run), bits::<1>(fifths, run), 4));
    for ((numbers, codes), group) in sub_blocks::<32>(numbers, &codes).zip(0..) {
        let (by, less) = scale_and_smallest(packed, group);
        above_smallest(numbers, codes, scale * by, smallest * less);
    }
}

/// 128 bytes of lower halves, 64 bytes of upper pairs of bits, 16 signed scales, scale of scales. A byte of lower halves has
/// those of two runs that are not neighbours: of 128 numbers, the first 32 and the third, or the second and the fourth.
pub(super) fn q6_k(block: &[u8; 210], numbers: &mut [f32; 256]) {
    let (lows, highs, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    let codes = runs(|run| {
        let (half, quarter) = (run / 4, run % 4);
        let low = &lows[64 * half + 32 * (quarter % 2)..];
        below_and_above(bits::<4>(low, quarter / 2), two_bits(highs, run), 4)
    });
    for ((numbers, codes), &by) in sub_blocks::<16>(numbers, &codes).zip(scales) {
        about_zero(numbers, codes, 32, scale * by as i8 as f32);
    }
}

/// The codes of a block, of which `codes` gives a run's.
#[inline(always)]
fn runs(codes: impl Fn(usize) -> [u8; RUN]) -> [[u8; RUN]; 8] {
    std::array::from_fn(codes)
}

/// `COUNT` bits of each of the first 32 bytes, the `place`th so many.
#[inline(always)]
fn bits<const COUNT: usize>(bytes: &[u8], place: usize) -> [u8; RUN] {
    let bytes: &[u8; RUN] = bytes.first_chunk().expect("a run has a byte for each number");
    bytes.map(|byte| (byte >> (COUNT * place)) & ((1 << COUNT) - 1))
}

/// A run of 256 codes with two bits each: four runs to every 32 bytes, one to every pair of bits.
#[inline(always)]
fn two_bits(codes: &[u8], run: usize) -> [u8; RUN] {
    bits::<2>(&codes[run / 4 * RUN..], run % 4)
}

/// A run of 256 codes with four bits each: two runs to every 32 bytes, lower halves first.
#[inline(always)]
pub(super) fn half_bytes(codes: &[u8], run: usize) -> [u8; RUN] {
    bits::<4>(&codes[run / 2 * RUN..], run % 2)
}

/// Codes of `below` bits that lie in one place, and of further bits that lie in another.
#[inline(always)]
fn below_and_above(lower: [u8; RUN], upper: [u8; RUN], below: usize) -> [u8; RUN] {
    std::array::from_fn(|i| lower[i] | upper[i] << below)
}

/// Sub-blocks of `N` numbers, and their codes.
#[inline(always)]
fn sub_blocks<'a, const N: usize>(
    numbers: &'a mut [f32; 256],
    codes: &'a [[u8; RUN]; 8],
) -> impl Iterator<Item = (&'a mut [f32; N], &'a [u8; N])> {
    numbers.as_chunks_mut().0.iter_mut().zip(codes.as_flattened().as_chunks().0)
}

/// Numbers of a sub-block whose scale is `by` and whose smallest value is `-less`.
#[inline(always)]
fn above_smallest<const N: usize>(numbers: &mut [f32; N], codes: &[u8; N], by: f32, less: f32) {
    for (number, &code) in numbers.iter_mut().zip(codes) {
        *number = by * code as f32 - less;
    }
}

/// Numbers of a sub-block whose scale is `by` and whose code `zero` means zero.
#[inline(always)]
fn about_zero<const N: usize>(numbers: &mut [f32; N], codes: &[u8; N], zero: i32, by: f32) {
    for (number, &code) in numbers.iter_mut().zip(codes) {
        *number = by * (code as i32 - zero) as f32;
    }
}

/// The 6-bit scale and smallest value of sub-block `group`. The first four of each lie in the lower
/// bits of a byte; what those bytes have left holds the upper bits of the other four.
#[inline]
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
