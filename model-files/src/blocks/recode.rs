//! Blocks whose codes another type of block, one that kernels multiply, holds as well.
//!
//! By way of f32 a matrix would be rounded to new codes. Here each keeps the codes that it has.

use super::dequantise::{BLOCKS_AT_ONCE, five_bits, half_at};
use super::iq4::{self, listed};
use super::k_quants::{half_bytes, scale_and_smallest};
use super::{BlockType, RawTensor};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

impl BlockType {
    /// The type that [`RawTensor::recoded`] makes of this one; none if it makes nothing of it.
    pub fn recoded(self) -> Option<BlockType> {
        match self {
            BlockType::Q5_0 | BlockType::Iq4Nl | BlockType::Iq4Xs => Some(BlockType::Q8_0),
            BlockType::Q4K => Some(BlockType::Q4_1),
            _ => None,
        }
    }
}

impl RawTensor<'_> {
    /// The same codes in the type that [`BlockType::recoded`] gives: Q5_0 and IQ4_NL as Q8_0, number for number; IQ4_XS as Q8_0,
    /// with scales rounded to f16; and Q4_K as Q4_1, with the products of scales rounded to f16, so that a number is off by 2^-11
    /// of each of its products at most (below 2^-14, where f16 has fewer digits, by 2^-25 for each step of a code). None for
    /// other types, and if a product is too large for f16.
    pub fn recoded(&self) -> Option<RawTensor<'static>> {
        let kind = self.kind.recoded()?;
        let bytes = match self.kind {
            BlockType::Q5_0 => each(&self.bytes, q8_0),
            BlockType::Q4K => each(&self.bytes, q4_1),
            BlockType::Iq4Nl => each(&self.bytes, q8_0_of_list),
            BlockType::Iq4Xs => each(&self.bytes, q8_0_of_lists),
            _ => None,
        }?;
        Some(RawTensor { kind, shape: self.shape.clone(), bytes: bytes.into() })
    }
}

/// Every block of `BYTES` bytes as one of `TO` bytes; none if one cannot be.
fn each<const BYTES: usize, const TO: usize>(
    bytes: &[u8],
    recode: impl Fn(&[u8; BYTES], &mut [u8; TO]) -> Option<()> + Sync,
) -> Option<Vec<u8>> {
    let blocks = bytes.as_chunks::<BYTES>().0;
    let mut recoded = vec![0; blocks.len() * TO];
    let to = recoded.as_chunks_mut::<TO>().0;
    let all = blocks.par_iter().zip(to).with_min_len(BLOCKS_AT_ONCE);
    all.map(|(block, to)| recode(block, to)).collect::<Option<()>>()?;
    Some(recoded)
}

/// Q5_0 as Q8_0: always, as every code of five bits is one of eight.
fn q8_0(block: &[u8; 22], to: &mut [u8; 34]) -> Option<()> {
    to[..2].copy_from_slice(&block[..2]);
    let codes = five_bits(&block[2..6], &block[6..]);
    to[2..].copy_from_slice(&codes.map(|code| code.wrapping_sub(16)));
    Some(())
}

/// IQ4_NL as Q8_0, as what is listed are bytes.
fn q8_0_of_list(block: &[u8; 18], to: &mut [u8; 34]) -> Option<()> {
    put_listed([block[0], block[1]], &block[2..], to);
    Some(())
}

/// IQ4_XS as eight blocks of Q8_0.
fn q8_0_of_lists(block: &[u8; 136], to: &mut [u8; 8 * 34]) -> Option<()> {
    for (group, to) in to.as_chunks_mut::<34>().0.iter_mut().enumerate() {
        let scale = f16::from_f32(iq4::scale(block, group));
        if !scale.is_finite() {
            return None;
        }
        put_listed(scale.to_le_bytes(), &block[8 + 16 * group..], to);
    }
    Some(())
}

/// A block of Q8_0 with this scale, of 32 codes that are places in IQ4's list.
fn put_listed(scale: [u8; 2], codes: &[u8], to: &mut [u8; 34]) {
    to[..2].copy_from_slice(&scale);
    to[2..].copy_from_slice(&listed(codes).map(|number| number as u8));
}

/// Q4_K as eight blocks of Q4_1.
fn q4_1(block: &[u8; 144], to: &mut [u8; 8 * 20]) -> Option<()> {
    let (scale, smallest) = (half_at(block, 0), half_at(block, 2));
    let products: [[f32; 2]; 8] = std::array::from_fn(|group| {
        let (by, less) = scale_and_smallest(&block[4..16], group);
        [scale * by, -(smallest * less)]
    });
    // All at once: there are instructions for eight.
    let mut rounded = [f16::ZERO; 16];
    rounded.convert_from_f32_slice(products.as_flattened());
    if !rounded.iter().all(|it| it.is_finite()) {
        return None;
    }
    let blocks = to.as_chunks_mut::<20>().0.iter_mut().zip(rounded.as_chunks::<2>().0);
    for (group, (to, both)) in blocks.enumerate() {
        to[..2].copy_from_slice(&both[0].to_le_bytes());
        to[2..4].copy_from_slice(&both[1].to_le_bytes());
        let codes = half_bytes(&block[16..], group);
        for (i, halves) in to[4..].iter_mut().enumerate() {
            *halves = codes[i] | codes[i + 16] << 4;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::dequantise;

    /// Bytes that follow no pattern.
    fn bytes(count: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    fn tensor(kind: BlockType, scales: &[f32]) -> RawTensor<'static> {
        let mut bytes = bytes(1_000 * kind.block_bytes());
        for (block, number) in bytes.chunks_exact_mut(kind.block_bytes()).zip(1..) {
            for (at, scale) in scales.iter().enumerate() {
                let scale = f16::from_f32(scale * (1.0 + number as f32 / 700.0));
                block[2 * at..2 * at + 2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        let shape = vec![1_000, kind.block_numbers()];
        RawTensor { kind, shape, bytes: bytes.into() }
    }

    fn numbers(tensor: &RawTensor) -> Vec<f32> {
        dequantise(tensor.kind, &tensor.bytes)
    }

    #[test]
    fn five_bits_and_what_is_listed_are_eight_number_for_number() {
        for kind in [BlockType::Q5_0, BlockType::Iq4Nl] {
            let few = tensor(kind, &[0.003]);
            let eight = few.recoded().expect("every code is a byte");
            assert_eq!((eight.kind, &eight.shape), (BlockType::Q8_0, &few.shape));
            assert!(numbers(&eight) == numbers(&few), "{kind}");
        }
    }

    #[test]
    fn what_is_listed_for_256_is_eight_bits_but_for_rounded_scales() {
        let few = tensor(BlockType::Iq4Xs, &[0.003]);
        let eight = few.recoded().expect("scales are no larger than f16 has");
        assert_eq!((eight.kind, &eight.shape), (BlockType::Q8_0, &few.shape));
        for (few, eight) in numbers(&few).into_iter().zip(numbers(&eight)) {
            assert!((few - eight).abs() <= few.abs() * 2f32.powi(-11), "{few} and {eight}");
        }
        assert!(tensor(BlockType::Iq4Xs, &[60_000.0]).recoded().is_none());
    }

    #[test]
    fn four_bits_of_256_are_four_of_32_but_for_rounded_products() {
        let large = tensor(BlockType::Q4K, &[0.0002, 0.0015]);
        let small = large.recoded().expect("products are no larger than f16 has");
        assert_eq!((small.kind, &small.shape), (BlockType::Q4_1, &large.shape));
        assert!(Some(small.kind) == large.kind.recoded());
        let mut furthest = 0.0f32;
        for (block, (large, small)) in large.bytes.as_chunks::<144>().0.iter().zip(
            numbers(&large).as_chunks::<256>().0.iter().zip(numbers(&small).as_chunks::<256>().0),
        ) {
            for i in 0..256 {
                let (by, less) = scale_and_smallest(&block[4..16], i / 32);
                let code = half_bytes(&block[16..], i / 32)[i % 32] as f32;
                let (by, less) = (half_at(block, 0) * by * code, half_at(block, 2) * less);
                // Half a step of f16 for each product, and the roundings of f32.
                let most = (by + less) * 2f32.powi(-11) + code * 2f32.powi(-25) + 1e-7;
                let off = (large[i] - small[i]).abs();
                assert!(off <= most, "{} and {}", large[i], small[i]);
                furthest = furthest.max(off / most);
            }
        }
        assert!(furthest > 0.5, "the bound is near what is reached: {furthest}");
    }

    #[test]
    fn products_that_f16_has_not_are_left_to_others() {
        for scales in [[60_000.0, 0.1], [0.1, 60_000.0], [f32::NAN, 0.1]] {
            assert!(tensor(BlockType::Q4K, &scales).recoded().is_none(), "{scales:?}");
        }
        assert!(tensor(BlockType::Q6K, &[]).recoded().is_none());
    }
}
