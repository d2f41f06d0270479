//! Weights that are small integers, sixteen outputs by 32 inputs to a tile.
//!
//! For each group of 32 inputs an output's weights share a scale, and so do a row's activations. Their
//! products are integers and are added exactly. Then the group's sum is a float, times both scales, and
//! groups are added in ascending order by one multiply-add each: `y = sum · (d · s) + y`.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

#[cfg(target_arch = "x86_64")]
mod amx;

use super::activations::{GROUP, Group, STEP};
use super::{
    Kernel, LINE, Lanes, MANY, PanelsAt, Products, RowsAt, Simd, Stretch, prefetch_distance,
    prefetch_far,
};
use std::marker::PhantomData;

/// Outputs in a tile.
const OUTPUTS: usize = 16;

/// How sixteen outputs by 32 inputs are stored.
///
/// # Safety
/// [`Tile::dots`] reads at most [`Tile::BYTES`] bytes, and its scales lie within them.
pub(crate) unsafe trait Tile {
    /// Bytes of a tile.
    const BYTES: usize;
    /// Where its sixteen scales begin, of 16 bits each.
    const SCALES: usize;
    /// Where its sixteen smallest weights begin, of 16 bits each, if codes count from those.
    const SMALLEST: Option<usize> = None;

    /// Most rows to a block, where panels are near and there are 32 registers.
    const ROWS_NEAR: usize = MANY;
    /// The same where there are sixteen registers of eight floats.
    const ROWS_FEW: usize = 6;

    /// Most rows that are done with a tile long before memory has sent the next.
    const ROWS_WAIT: usize = 0;

    /// How much more than the weight's code [`Tile::dots`] multiplies by, with instructions that are [`Lanes::BIASED`] or not.
    fn bias(biased: bool) -> i32;

    /// For each of `P` tiles, each row's start and sum of `weight code · activation code`, for each output.
    ///
    /// # Safety
    /// A tile's bytes lie at each of `tiles`, and the instructions of `V` are there.
    unsafe fn dots<V: Lanes, const P: usize, const R: usize>(
        tiles: [*const u8; P],
        x: &Group<R>,
    ) -> [[V::Ints; R]; P];

    /// A tile's weights as AMX wants them.
    #[cfg(target_arch = "x86_64")]
    fn take_apart(tile: &[u8], weights: &mut amx::Weights);
}

/// Codes from -128 to 127, each stored as a byte 128 more: `[8 steps][16 outputs][4 inputs]`.
pub(crate) struct Bytes;

// SAFETY: eight times 64 bytes are read, and the scales follow.
unsafe impl Tile for Bytes {
    const BYTES: usize = GROUP * OUTPUTS + 2 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS;
    /// Two panels beside six rows ask for fewer loads than one beside twelve. Codes that have to be taken apart first
    /// should meet as many rows as they can.
    const ROWS_NEAR: usize = 6;
    /// Weights, and their sizes besides, leave room for no more.
    const ROWS_FEW: usize = 4;
    const ROWS_WAIT: usize = 2;

    #[inline(always)]
    fn bias(biased: bool) -> i32 {
        if biased { 128 } else { 0 }
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const P: usize, const R: usize>(
        tiles: [*const u8; P],
        x: &Group<R>,
    ) -> [[V::Ints; R]; P] {
        // SAFETY: the caller vouches for the tiles and the instructions.
        unsafe {
            let mut sums = [[V::splat_int(0); R]; P];
            for r in 0..R {
                for p in 0..P {
                    sums[p][r] = V::splat_int(x.starts[r]);
                }
            }
            for step in 0..GROUP / STEP {
                let at = step * OUTPUTS * STEP;
                let mut weights = [V::bytes(tiles[0].add(at)); P];
                for p in 1..P {
                    weights[p] = V::bytes(tiles[p].add(at));
                }
                for r in 0..R {
                    for p in 0..P {
                        sums[p][r] = V::dot_bytes(sums[p][r], weights[p], x.codes[r][step]);
                    }
                }
            }
            sums
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn take_apart(tile: &[u8], weights: &mut amx::Weights) {
        for (code, weight) in tile.iter().zip(&mut weights.0) {
            *weight = code.wrapping_sub(Self::bias(true) as u8) as i8;
        }
    }
}

/// Codes from 0 to 15, two in a byte: `[4][16 outputs][4 inputs]`, where register `i` has step `i` in
/// the lower halves of its bytes and step `i + 4` in the upper. What is stored is 8 more than the code
/// means.
pub(crate) struct Nibbles;

/// As [`Nibbles`], counted from a smallest weight instead.
pub(crate) struct NibblesAbove;

#[inline(always)]
unsafe fn nibble_dots<V: Lanes, const P: usize, const R: usize>(
    tiles: [*const u8; P],
    x: &Group<R>,
) -> [[V::Ints; R]; P] {
    const HALF: usize = GROUP / STEP / 2;
    // SAFETY: the caller vouches for the tiles and the instructions.
    unsafe {
        let mut sums = [[V::begin_nibbles(0); R]; P];
        for r in 0..R {
            for p in 0..P {
                sums[p][r] = V::begin_nibbles(x.starts[r]);
            }
        }
        // With sixteen registers, two for each sum, one step's weights at a time is all there is room for. A compiler that knows
        // how many steps there are takes all their weights apart first, and sends the sums to the stack and back.
        let steps = if V::REGISTERS == 2 { std::hint::black_box(HALF) } else { HALF };
        for step in 0..steps {
            let at = step * OUTPUTS * STEP;
            let mut weights = [V::nibbles(tiles[0].add(at)); P];
            for p in 1..P {
                weights[p] = V::nibbles(tiles[p].add(at));
            }
            for r in 0..R {
                for p in 0..P {
                    sums[p][r] = V::dot_nibbles(sums[p][r], weights[p].0, x.codes[r][step]);
                }
                for p in 0..P {
                    sums[p][r] = V::dot_nibbles(sums[p][r], weights[p].1, x.codes[r][step + HALF]);
                }
            }
        }
        let mut dots = [[V::splat_int(0); R]; P];
        for p in 0..P {
            for r in 0..R {
                dots[p][r] = V::end_nibbles(sums[p][r], x.starts[r]);
            }
        }
        dots
    }
}

/// A tile's weights, of which what is stored is `bias` more than meant.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn take_nibbles_apart(tile: &[u8], bias: i32, weights: &mut amx::Weights) {
    let (lower, upper) = weights.0.split_at_mut(GROUP * OUTPUTS / 2);
    for ((both, lower), upper) in tile.iter().zip(lower).zip(upper) {
        *lower = (both & 15).wrapping_sub(bias as u8) as i8;
        *upper = (both >> 4).wrapping_sub(bias as u8) as i8;
    }
}

// SAFETY: four times 64 bytes are read, and the scales follow.
unsafe impl Tile for Nibbles {
    const BYTES: usize = GROUP * OUTPUTS / 2 + 2 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS / 2;

    #[inline(always)]
    fn bias(_biased: bool) -> i32 {
        8
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const P: usize, const R: usize>(
        tiles: [*const u8; P],
        x: &Group<R>,
    ) -> [[V::Ints; R]; P] {
        // SAFETY: passed on.
        unsafe { nibble_dots::<V, P, R>(tiles, x) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn take_apart(tile: &[u8], weights: &mut amx::Weights) {
        take_nibbles_apart(tile, Self::bias(true), weights);
    }
}

// SAFETY: as above, and the smallest weights follow the scales.
unsafe impl Tile for NibblesAbove {
    const BYTES: usize = GROUP * OUTPUTS / 2 + 4 * OUTPUTS;
    const SCALES: usize = GROUP * OUTPUTS / 2;
    const SMALLEST: Option<usize> = Some(GROUP * OUTPUTS / 2 + 2 * OUTPUTS);

    #[inline(always)]
    fn bias(_biased: bool) -> i32 {
        0
    }

    #[inline(always)]
    unsafe fn dots<V: Lanes, const P: usize, const R: usize>(
        tiles: [*const u8; P],
        x: &Group<R>,
    ) -> [[V::Ints; R]; P] {
        // SAFETY: passed on.
        unsafe { nibble_dots::<V, P, R>(tiles, x) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn take_apart(tile: &[u8], weights: &mut amx::Weights) {
        take_nibbles_apart(tile, Self::bias(true), weights);
    }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `P` at a time, `groups.len()` tiles long. Memory
/// is asked for what will be read `soon` meanwhile.
///
/// # Panics
/// If `panels` is not a number of times `P` panels of `groups.len()` tiles.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<T: Tile, const P: usize, const R: usize>(
    simd: Simd,
    (panels, soon): (PanelsAt, Stretch),
    groups: &[Group<R>],
    to: RowsAt,
) {
    let (PanelsAt { bytes, near, .. }, beside) = (panels, P * groups.len() * T::BYTES);
    assert!(bytes.len().is_multiple_of(beside), "a tile for each group");
    let (count, panels) = (bytes.len() / beside, bytes.as_ptr());
    // SAFETY: the panels are as long as was checked, and the caller vouches for `to`.
    unsafe {
        simd.run(Multiply::<T, P, R> { panels, near, soon, count, groups, to, tile: PhantomData })
    };
}

/// The same in AMX's tiles, of all blocks of `R` rows, each row `each` groups long; false if there are no tiles, or rows do not
/// fill them: of twelve or less, dot products are as fast. `more` says what will be read soon, a stretch at a time.
///
/// # Panics
/// If `panels` is not a number of panels of `each` tiles.
///
/// # Safety
/// All of `products` has room, which nobody else reads or writes meanwhile, and there are so many panels and rows.
pub(crate) unsafe fn multiply_in_tiles<T: Tile, const R: usize>(
    simd: Simd,
    (panels, more): (&[u8], fn() -> Stretch),
    blocks: &[Group<R>],
    each: usize,
    products: Products,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if const { R == super::TILE_ROWS } && simd.has_tiles() {
        assert!(panels.len().is_multiple_of(each * T::BYTES), "a tile for each group");
        // SAFETY: tiles are there, the length was checked, and the caller vouches for `products`.
        unsafe { amx::multiply::<T, R>(simd, (panels, more), blocks, each, products) };
        return true;
    }
    let _ = (simd, panels, more, blocks, each, products);
    false
}

struct Multiply<'a, T, const P: usize, const R: usize> {
    panels: *const u8,
    near: bool,
    soon: Stretch,
    /// So many times `P` panels.
    count: usize,
    groups: &'a [Group<R>],
    to: RowsAt,
    tile: PhantomData<T>,
}

impl<T: Tile, const P: usize, const R: usize> Kernel for Multiply<'_, T, P, R> {
    const SUMS: usize = P * R;

    #[inline(always)]
    unsafe fn run<V: Lanes>(mut self) {
        let (panel_bytes, distance) =
            (self.groups.len() * T::BYTES, prefetch_distance(R <= T::ROWS_WAIT));
        for group in 0..self.count {
            let panels = self.panels.wrapping_add(group * P * panel_bytes);
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                // ANCHOR: groups
                let mut sums = [[V::splat(0.0); R]; P];
                for (i, x) in self.groups.iter().enumerate() {
                    let mut tiles = [panels; P];
                    for p in 0..P {
                        tiles[p] = panels.add(p * panel_bytes + i * T::BYTES);
                    }
                    if !self.near {
                        for p in 0..P {
                            for offset in 0..T::BYTES.div_ceil(LINE) {
                                prefetch_far(tiles[p].wrapping_add(distance + LINE * offset));
                            }
                        }
                    }
                    self.soon.ask();
                    let dots = T::dots::<V, P, R>(tiles, x);
                    for p in 0..P {
                        let scales = V::from_f16(tiles[p].add(T::SCALES).cast());
                        for r in 0..R {
                            let both = scales.times(V::splat(x.scales[r]));
                            sums[p][r] = sums[p][r].plus_product(V::from_ints(dots[p][r]), both);
                        }
                        if let Some(at) = T::SMALLEST {
                            let smallest = V::from_f16(tiles[p].add(at).cast());
                            for r in 0..R {
                                sums[p][r] =
                                    sums[p][r].plus_product(smallest, V::splat(x.totals[r]));
                            }
                        }
                    }
                }
                // ANCHOR_END: groups
                for p in 0..P {
                    for r in 0..R {
                        sums[p][r].store(self.to.row(r).add((group * P + p) * OUTPUTS));
                    }
                }
            }
        }
    }
}
