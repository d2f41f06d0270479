//! Rows to panels of sixteen outputs, and back.

use super::encode::INT8_SCALE;
use super::format::Format;
use crate::kernels::activations::{GROUP, STEP};
use crate::kernels::digits;
use crate::kernels::float_panels::{Brain, Eighth, Float};
use crate::kernels::integer_tiles::{Bytes, Nibbles, NibblesAbove, Tile};
use naive_decode::numerics::LANES;

impl Format {
    /// Bytes of sixteen outputs of so many inputs.
    pub(super) fn panel_bytes(self, inputs: usize) -> usize {
        match self {
            Format::F32 | Format::F16 => LANES * self.row_bytes(inputs),
            Format::Bf16 | Format::Bf16Fast => Brain::panel_bytes(inputs),
            Format::Fp8 => Eighth::panel_bytes(inputs),
            Format::Int8 => digits::panel_bytes(inputs),
            Format::Q8_0 => inputs.div_ceil(GROUP) * Bytes::BYTES,
            Format::Q4_0 => inputs.div_ceil(GROUP) * Nibbles::BYTES,
            Format::Q4_1 => inputs.div_ceil(GROUP) * NibblesAbove::BYTES,
        }
    }

    /// Puts sixteen outputs that weigh nothing where a ragged matrix has none.
    pub(super) fn clear(self, panel: &mut [u8]) {
        panel.fill(0);
        if self == Format::Q8_0 {
            // Bytes are 128 more than the weight.
            for tile in panel.as_chunks_mut::<{ Bytes::BYTES }>().0 {
                tile[..Bytes::SCALES].fill(128);
            }
        }
    }

    /// Puts a row into lane `lane` of a panel.
    ///
    /// # Panics
    /// If there is no such lane.
    pub(super) fn put(self, row: &[u8], lane: usize, panel: &mut [u8]) {
        assert!(lane < LANES, "lane {lane} of {LANES}");
        match self {
            Format::F32 => spread::<4>(row, lane, panel),
            Format::F16 => spread::<2>(row, lane, panel),
            Format::Bf16 | Format::Bf16Fast => spread::<4>(row, lane, panel),
            Format::Fp8 => tiles::<{ Eighth::TILE }, 34>(row, panel, |tile, block| {
                spread::<2>(&block[2..], lane, &mut tile[..Eighth::SCALES]);
                tile[Eighth::SCALES + 2 * lane..][..2].copy_from_slice(&block[..2]);
            }),
            Format::Int8 => {
                let (scale, codes) = row.split_at(INT8_SCALE);
                for (input, code) in codes.iter().enumerate() {
                    panel[digits::byte_at(input, lane)] = code ^ 128;
                }
                let scales = &mut panel[digits::scales_at(codes.len())..];
                scales[INT8_SCALE * lane..][..INT8_SCALE].copy_from_slice(scale);
            }
            Format::Q8_0 => tiles::<{ Bytes::BYTES }, 34>(row, panel, |tile, block| {
                let codes: &[u8; GROUP] = block[2..].first_chunk().expect("a code for each input");
                spread::<STEP>(&codes.map(|code| code ^ 128), lane, &mut tile[..Bytes::SCALES]);
                tile[Bytes::SCALES + 2 * lane..][..2].copy_from_slice(&block[..2]);
            }),
            Format::Q4_0 => tiles::<{ Nibbles::BYTES }, 18>(row, panel, |tile, block| {
                spread::<STEP>(&block[2..], lane, &mut tile[..Nibbles::SCALES]);
                tile[Nibbles::SCALES + 2 * lane..][..2].copy_from_slice(&block[..2]);
            }),
            Format::Q4_1 => tiles::<{ NibblesAbove::BYTES }, 20>(row, panel, |tile, block| {
                spread::<STEP>(&block[4..], lane, &mut tile[..NibblesAbove::SCALES]);
                tile[NibblesAbove::SCALES + 2 * lane..][..2].copy_from_slice(&block[..2]);
                tile[SMALLEST + 2 * lane..][..2].copy_from_slice(&block[2..4]);
            }),
        }
    }

    /// Takes a row out of lane `lane` of a panel, as it was put there.
    pub(super) fn take(self, panel: &[u8], lane: usize, row: &mut [u8]) {
        match self {
            Format::F32 => gather::<4>(panel, lane, row),
            Format::F16 => gather::<2>(panel, lane, row),
            Format::Bf16 | Format::Bf16Fast => gather::<4>(panel, lane, row),
            Format::Fp8 => tiles_back::<{ Eighth::TILE }, 34>(panel, row, |tile, block| {
                gather::<2>(&tile[..Eighth::SCALES], lane, &mut block[2..]);
                block[..2].copy_from_slice(&tile[Eighth::SCALES + 2 * lane..][..2]);
            }),
            Format::Int8 => {
                let (scale, codes) = row.split_at_mut(INT8_SCALE);
                for (input, code) in codes.iter_mut().enumerate() {
                    *code = panel[digits::byte_at(input, lane)] ^ 128;
                }
                let scales = &panel[digits::scales_at(codes.len())..];
                scale.copy_from_slice(&scales[INT8_SCALE * lane..][..INT8_SCALE]);
            }
            Format::Q8_0 => tiles_back::<{ Bytes::BYTES }, 34>(panel, row, |tile, block| {
                gather::<STEP>(&tile[..Bytes::SCALES], lane, &mut block[2..]);
                block[2..].iter_mut().for_each(|code| *code ^= 128);
                block[..2].copy_from_slice(&tile[Bytes::SCALES + 2 * lane..][..2]);
            }),
            Format::Q4_0 => tiles_back::<{ Nibbles::BYTES }, 18>(panel, row, |tile, block| {
                gather::<STEP>(&tile[..Nibbles::SCALES], lane, &mut block[2..]);
                block[..2].copy_from_slice(&tile[Nibbles::SCALES + 2 * lane..][..2]);
            }),
            Format::Q4_1 => tiles_back::<{ NibblesAbove::BYTES }, 20>(panel, row, |tile, block| {
                gather::<STEP>(&tile[..NibblesAbove::SCALES], lane, &mut block[4..]);
                block[..2].copy_from_slice(&tile[NibblesAbove::SCALES + 2 * lane..][..2]);
                block[2..4].copy_from_slice(&tile[SMALLEST + 2 * lane..][..2]);
            }),
        }
    }
}

/// Where a [`NibblesAbove`] tile has its smallest weights.
const SMALLEST: usize = match NibblesAbove::SMALLEST {
    Some(at) => at,
    None => panic!("that is what the tile is for"),
};

/// Puts `N` bytes at a time where the panel, or the tile, has those of sixteen outputs. Bytes of two halves are put as they
/// are: bytes `4i .. 4i + 4` of a block have step `i` below and step `i + 4` above, as a tile wants them.
fn spread<const N: usize>(row: &[u8], lane: usize, panel: &mut [u8]) {
    let (numbers, rest) = row.as_chunks::<N>();
    let (whole, last) = panel.split_at_mut(numbers.len() * LANES * N);
    for (lanes, number) in whole.as_chunks_mut::<N>().0.chunks_exact_mut(LANES).zip(numbers) {
        lanes[lane] = *number;
    }
    // Of an odd number of inputs, the last pair is half.
    if !rest.is_empty() {
        last[lane * N..][..rest.len()].copy_from_slice(rest);
    }
}

fn gather<const N: usize>(panel: &[u8], lane: usize, row: &mut [u8]) {
    let (numbers, rest) = row.as_chunks_mut::<N>();
    let (whole, last) = panel.split_at(numbers.len() * LANES * N);
    for (number, lanes) in numbers.iter_mut().zip(whole.as_chunks::<N>().0.chunks_exact(LANES)) {
        *number = lanes[lane];
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&last[lane * N..][..rest.len()]);
    }
}

fn tiles<const TILE: usize, const BLOCK: usize>(
    row: &[u8],
    panel: &mut [u8],
    put: impl Fn(&mut [u8; TILE], &[u8; BLOCK]),
) {
    let tiles = panel.as_chunks_mut().0;
    tiles.iter_mut().zip(row.as_chunks().0).for_each(|(tile, block)| put(tile, block));
}

fn tiles_back<const TILE: usize, const BLOCK: usize>(
    panel: &[u8],
    row: &mut [u8],
    take: impl Fn(&[u8; TILE], &mut [u8; BLOCK]),
) {
    let blocks = row.as_chunks_mut().0;
    panel.as_chunks().0.iter().zip(blocks).for_each(|(tile, block)| take(tile, block));
}
