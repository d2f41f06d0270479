//! The fast mode of BF16: weights `[k / 2][16 outputs][2]`, activations rounded to BF16, and products added in blocks of
//! 32 inputs.
//!
//! The order is that of AMX's `tdpbf16ps`. In a block, products of even inputs are one chain of multiply-adds from zero on,
//! those of odd inputs another; then both sums are added, and that is added to the output. Each step is rounded once, and
//! what is then smaller than 2^-126 is zero. A last block that is short is filled up with zeros.
//!
//! AVX-512's `vdpbf16ps` adds two products to a sum by the same steps, the second first, so it makes a chain of a block in
//! eight of them. Processors with neither take the steps one by one, which takes longer than the exact mode.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS and VDPBF16PS.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

#[cfg(target_arch = "x86_64")]
pub(super) mod native;
pub(crate) mod sums;
#[cfg(target_arch = "x86_64")]
pub(super) mod tiles;

use super::float_panels::{Brain, Float, OUTPUTS};
use super::{
    Kernel, LINE, Lanes, PREFETCH, PREFETCH_FAR, PanelsAt, Products, RowsAt, Simd, prefetch,
    prefetch_far,
};
use std::mem::MaybeUninit;
use sums::{Pair, PairKernel, Sums, round_row};

/// Inputs of a block.
pub(crate) const BLOCK: usize = Brain::BLOCK;

/// Pairs of a block.
const PAIRS: usize = BLOCK / 2;

/// Bytes of two inputs' weights.
const PAIR_BYTES: usize = 2 * OUTPUTS * Brain::BYTES;

/// Bytes of a block's weights.
const BLOCK_BYTES: usize = BLOCK * OUTPUTS * Brain::BYTES;

/// A block of `R` rows of activations, rounded.
///
/// For tiles the pairs are as they come. For dot products, which take both numbers of a pair into one sum, they are the
/// even inputs and the odd inputs of four in turns, and the number that is added first is the second.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct PairBlock<const R: usize> {
    pairs: [[Pair; PAIRS]; R],
}

/// Rounds `R` rows of `width` activations, which lie one after another in `x`, to blocks, from block `first` on.
///
/// # Panics
/// If `x` or `blocks` does not fit `width`.
pub(crate) fn round_to_pairs<const R: usize>(
    simd: Simd,
    x: &[f32],
    width: usize,
    first: usize,
    blocks: &mut [MaybeUninit<PairBlock<R>>],
) {
    assert_eq!(x.len(), R * width, "rows");
    assert!(first + blocks.len() <= width.div_ceil(BLOCK), "blocks of a row");
    // SAFETY: its fields are slices, and every access to them is checked.
    unsafe { simd.run(Round { x, width, first, crossed: !simd.has_tiles(), blocks }) };
}

struct Round<'a, const R: usize> {
    x: &'a [f32],
    width: usize,
    first: usize,
    crossed: bool,
    blocks: &'a mut [MaybeUninit<PairBlock<R>>],
}

impl<const R: usize> Kernel for Round<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        for (i, to) in (self.first..).zip(self.blocks) {
            let block = to.write(PairBlock { pairs: [[0; PAIRS]; R] });
            for (x, to) in self.x.chunks_exact(self.width).zip(&mut block.pairs) {
                let rest = &x[i * BLOCK..];
                let mut last = [0.0; BLOCK];
                let x = rest.first_chunk().unwrap_or_else(|| {
                    last[..rest.len()].copy_from_slice(rest);
                    &last
                });
                round_row(x, 1.0, self.crossed, to);
            }
        }
    }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `P` at a time. `blocks` is the rows'
/// activations as [`round_to_pairs`] has them for dot products.
///
/// # Panics
/// If `panels` is not a number of times `P` panels of as many blocks.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<const P: usize, const R: usize>(
    simd: Simd,
    panels: PanelsAt,
    blocks: &[PairBlock<R>],
    to: RowsAt,
) {
    let (PanelsAt { bytes, near, crossed }, beside) = (panels, P * blocks.len() * BLOCK_BYTES);
    assert!(bytes.len().is_multiple_of(beside), "a block of weights for each of activations");
    assert!(!simd.has_tiles(), "pairs for tiles");
    let (count, panels) = (bytes.len() / beside, bytes.as_ptr());
    // SAFETY: the panels are as long as was checked, and the caller vouches for `to`.
    unsafe { sums::run(simd, Multiply::<P, R> { panels, near, crossed, count, blocks, to }) };
}

/// The same in tiles, of all blocks of `R` rows, each row `each` blocks of inputs long; false if there are no tiles.
///
/// # Panics
/// If `panels` is not a number of panels of `each` blocks.
///
/// # Safety
/// All of `products` has room, which nobody else reads or writes meanwhile, and there are so many panels and rows.
pub(crate) unsafe fn multiply_in_tiles<const R: usize>(
    simd: Simd,
    panels: &[u8],
    blocks: &[PairBlock<R>],
    each: usize,
    products: Products,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if simd.has_tiles() {
        let panel_bytes = each * BLOCK_BYTES;
        assert!(panels.len().is_multiple_of(panel_bytes), "a block of weights for each");
        // SAFETY: tiles are there, the length was checked, and the caller vouches for `products`.
        unsafe { tiles::multiply(panels, blocks, each, products) };
        return true;
    }
    let _ = (simd, panels, blocks, each, products);
    false
}

/// Panels as the dot products of two want them: even and odd inputs crossed, as activations are.
///
/// # Panics
/// If these are not whole blocks.
pub(crate) fn cross_panels(simd: Simd, panels: &[u8], to: &mut Vec<u8>) {
    assert!(panels.len().is_multiple_of(BLOCK_BYTES), "whole blocks");
    to.resize(panels.len(), 0);
    // SAFETY: its fields are slices, cut into whole pieces.
    unsafe { simd.run(Cross { panels, to }) };
}

struct Cross<'a> {
    panels: &'a [u8],
    to: &'a mut [u8],
}

impl Kernel for Cross<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let fours = self.panels.as_chunks::<{ 2 * PAIR_BYTES }>().0;
        for (four, to) in fours.iter().zip(self.to.as_chunks_mut::<{ 2 * PAIR_BYTES }>().0) {
            prefetch_far(four.as_ptr().wrapping_add(PREFETCH_FAR));
            prefetch_far(four.as_ptr().wrapping_add(PREFETCH_FAR + LINE));
            // SAFETY: twice sixteen pairs are there, and room for as many; any bytes are pairs.
            unsafe {
                let [one, two] = four.as_ptr().cast::<[[Pair; OUTPUTS]; 2]>().read_unaligned();
                let mut crossed = [[0; OUTPUTS]; 2];
                for output in 0..OUTPUTS {
                    let pairs = sums::cross([one[output], two[output]]);
                    [crossed[0][output], crossed[1][output]] = pairs;
                }
                to.as_mut_ptr().cast::<[[Pair; OUTPUTS]; 2]>().write_unaligned(crossed);
            }
        }
    }
}

struct Multiply<'a, const P: usize, const R: usize> {
    panels: *const u8,
    near: bool,
    crossed: bool,
    /// So many times `P` panels.
    count: usize,
    blocks: &'a [PairBlock<R>],
    to: RowsAt,
}

impl<const P: usize, const R: usize> PairKernel for Multiply<'_, P, R> {
    const SUMS: usize = P * R;

    #[inline(always)]
    unsafe fn run<S: Sums>(&mut self) {
        let panel_bytes = self.blocks.len() * BLOCK_BYTES;
        for group in 0..self.count {
            let panels = self.panels.wrapping_add(group * P * panel_bytes);
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                // ANCHOR: blocks
                let mut sums = [[S::zero(); R]; P];
                for (i, x) in self.blocks.iter().enumerate() {
                    let (mut even, mut odd) = ([[S::zero(); R]; P], [[S::zero(); R]; P]);
                    for four in 0..PAIRS / 2 {
                        for p in 0..P {
                            let block = panels.add(p * panel_bytes + i * BLOCK_BYTES);
                            let at = block.add(four * BLOCK_BYTES / (PAIRS / 2));
                            if !self.near {
                                prefetch(at.wrapping_add(PREFETCH));
                                prefetch(at.wrapping_add(PREFETCH + LINE));
                            }
                            let [evens, odds] = match self.crossed {
                                true => [S::crossed(at), S::crossed(at.add(PAIR_BYTES))],
                                false => S::weights(at, at.add(PAIR_BYTES)),
                            };
                            for r in 0..R {
                                even[p][r] = even[p][r].plus_products(evens, x.pairs[r][2 * four]);
                                odd[p][r] = odd[p][r].plus_products(odds, x.pairs[r][2 * four + 1]);
                            }
                        }
                    }
                    for p in 0..P {
                        for r in 0..R {
                            sums[p][r] = sums[p][r].plus(even[p][r].plus(odd[p][r]));
                        }
                    }
                }
                // ANCHOR_END: blocks
                for p in 0..P {
                    for r in 0..R {
                        sums[p][r].store(self.to.row(r).add((group * P + p) * OUTPUTS));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::numerics::to_bf16;
    use std::ops::Range;

    fn check<const R: usize>(simd: Simd, width: usize, Range { start, end }: Range<usize>) {
        let x: Vec<f32> = (0..R * width).map(|i| 1.0 / (1 + i) as f32).collect();
        let mut blocks = vec![MaybeUninit::uninit(); end - start];
        round_to_pairs(simd, &x, width, start, &mut blocks);
        for (i, block) in (start..).zip(blocks) {
            // SAFETY: `round_to_pairs` fills all blocks.
            let block: PairBlock<R> = unsafe { block.assume_init() };
            for (r, pairs) in block.pairs.into_iter().enumerate() {
                let rounded = |k: usize| match i * BLOCK + k < width {
                    true => u32::from(to_bf16(x[r * width + i * BLOCK + k]).to_bits()),
                    false => 0,
                };
                for (j, pair) in pairs.into_iter().enumerate() {
                    let (first, second) = match (simd.has_tiles(), j % 2) {
                        (true, _) => (2 * j, 2 * j + 1),
                        (false, even_or_odd) => (2 * j + 2 - even_or_odd, 2 * j - even_or_odd),
                    };
                    let expected = rounded(first) | rounded(second) << 16;
                    assert_eq!(pair, expected, "{simd:?}: row {r} of {R}, pair {j}, block {i}");
                }
            }
        }
    }

    #[test]
    fn rows_become_blocks_wherever_one_begins() {
        for simd in Simd::available() {
            for (width, blocks) in [
                (1, 0..1),
                (2, 0..1),
                (75, 0..3),
                (75, 2..3),
                (600, 0..19),
                (601, 7..12),
                (8, 1..1),
            ] {
                check::<1>(simd, width, blocks.clone());
                check::<3>(simd, width, blocks.clone());
                check::<12>(simd, width, blocks);
            }
        }
    }

    #[test]
    #[should_panic = "blocks of a row"]
    fn blocks_past_a_row_are_refused() {
        let mut blocks = vec![MaybeUninit::<PairBlock<2>>::uninit(); 2];
        round_to_pairs(Simd::available()[0], &[0.0; 140], 70, 2, &mut blocks);
    }
}
