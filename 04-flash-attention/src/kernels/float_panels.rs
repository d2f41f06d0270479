//! Weights that are floats: `[k][16 outputs]`, of BF16 and FP8 `[k / 2][16 outputs][2]`, and each output one chain of
//! multiply-adds in ascending `k`, the same chain as rung 01's whatever the weights' width.

#![expect(clippy::needless_range_loop, reason = "registers are counted, not walked through")]

use super::activations::GROUP;
use super::{
    Kernel, LINE, Lanes, PREFETCH, PREFETCH_FAR, PanelsAt, RowsAt, Simd, prefetch, prefetch_far,
};
use std::marker::PhantomData;

/// Outputs in a panel.
pub(super) const OUTPUTS: usize = 16;

/// A width of float. A panel is tiles of 32 inputs, the last perhaps of fewer.
///
/// # Safety
/// Of a panel, [`Float::load`] and [`Float::load_pair`] read no more than the weights of the pair of inputs that begins at
/// `at`, and [`Float::scales`] no more than the tile.
pub(crate) unsafe trait Float {
    /// Bytes of one weight.
    const BYTES: usize;
    /// Bytes of a tile.
    const TILE: usize = GROUP * OUTPUTS * Self::BYTES;
    /// Most panels side by side for one row where they come from memory, which sends one stretch faster than two. But one
    /// panel is one chain of multiply-adds: of narrow weights it takes fewer bytes in a second than a core could read.
    const BESIDE: usize = if Self::BYTES > 1 { 1 } else { 4 };
    /// How far ahead of their multiplication weights are asked for.
    const AHEAD: usize = if Self::BYTES > 1 { PREFETCH } else { PREFETCH_FAR };
    /// What a tile's weights are multiplied by, for each output.
    type Scales<V: Lanes>: Copy;

    /// Bytes of a panel.
    fn panel_bytes(inputs: usize) -> usize {
        inputs * OUTPUTS * Self::BYTES
    }

    /// A tile's scales.
    ///
    /// # Safety
    /// It lies at `tile`, and the instructions of `V` are there.
    unsafe fn scales<V: Lanes>(tile: *const u8) -> Self::Scales<V>;

    /// Sixteen weights of one input, the last of an odd number.
    ///
    /// # Safety
    /// It is the first of a pair, whose weights lie at `at`, and the instructions of `V` are there.
    unsafe fn load<V: Lanes>(at: *const u8, scales: Self::Scales<V>) -> V;

    /// Sixteen weights of each input of a pair.
    ///
    /// # Safety
    /// They lie at `at`, and the instructions of `V` are there.
    #[inline(always)]
    unsafe fn load_pair<V: Lanes>(at: *const u8, scales: Self::Scales<V>) -> [V; 2] {
        // SAFETY: passed on.
        unsafe { [Self::load(at, scales), Self::load(at.add(OUTPUTS * Self::BYTES), scales)] }
    }
}

/// 32 bits.
pub(crate) struct Single;
/// 16 bits with the exponent of f32.
pub(crate) struct Brain;
/// 16 bits of IEEE 754.
pub(crate) struct Half;
/// 8 bits, E4M3, and in each tile a scale of 16 bits for every output. A weight has four bits of significand and
/// a scale eleven, so their product is exact: what is multiplied is the number that is stored.
pub(crate) struct Eighth;

impl Eighth {
    /// Where a tile's scales begin.
    pub(crate) const SCALES: usize = GROUP * OUTPUTS;
    /// Scales are smaller: times [`Eighth::UP`] they are floats of 32 bits, too.
    pub(crate) const SCALES_END: f32 = 256.0;
    /// How many times as large a weight is as the float of 32 bits that it is widened to.
    const UP: f32 = f32::from_bits((120 + 127) << 23);
}
const _: () = assert!(Eighth::SCALES_END.next_down() * Eighth::UP < f32::INFINITY);

// SAFETY: sixteen times four bytes.
unsafe impl Float for Single {
    const BYTES: usize = 4;
    type Scales<V: Lanes> = ();

    unsafe fn scales<V: Lanes>(_tile: *const u8) {}

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8, (): ()) -> V {
        // SAFETY: passed on.
        unsafe { V::from_f32(at.cast()) }
    }
}

impl Brain {
    /// Inputs that the fast mode takes together. A panel is filled up with zeros to a number of such blocks.
    pub(crate) const BLOCK: usize = 32;
}

// SAFETY: sixteen times four bytes, which a panel has of the last pair even if it is half.
unsafe impl Float for Brain {
    const BYTES: usize = 2;
    type Scales<V: Lanes> = ();

    fn panel_bytes(inputs: usize) -> usize {
        inputs.next_multiple_of(Self::BLOCK) * OUTPUTS * Self::BYTES
    }

    unsafe fn scales<V: Lanes>(_tile: *const u8) {}

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8, (): ()) -> V {
        // SAFETY: passed on.
        unsafe { Self::load_pair::<V>(at, ())[0] }
    }

    /// A register of pairs is two of floats by one operation each, where sixteen weights in a row are spread first.
    #[inline(always)]
    unsafe fn load_pair<V: Lanes>(at: *const u8, (): ()) -> [V; 2] {
        // SAFETY: passed on.
        unsafe { V::from_bf16_pairs(at.cast()) }
    }
}

// SAFETY: sixteen times two bytes.
unsafe impl Float for Half {
    const BYTES: usize = 2;
    type Scales<V: Lanes> = ();

    unsafe fn scales<V: Lanes>(_tile: *const u8) {}

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8, (): ()) -> V {
        // SAFETY: passed on.
        unsafe { V::from_f16(at.cast()) }
    }
}

// SAFETY: sixteen times two bytes, which a tile has of the last pair even if it is half, as tiles are always whole; and
// sixteen scales of two bytes each after 32 times sixteen.
unsafe impl Float for Eighth {
    const BYTES: usize = 1;
    const TILE: usize = Self::SCALES + 2 * OUTPUTS;
    type Scales<V: Lanes> = V;

    fn panel_bytes(inputs: usize) -> usize {
        inputs.div_ceil(GROUP) * Self::TILE
    }

    #[inline(always)]
    unsafe fn scales<V: Lanes>(tile: *const u8) -> V {
        // SAFETY: the caller vouches for the tile and the instructions.
        unsafe { V::from_f16(tile.add(Self::SCALES).cast()).times(V::splat(Self::UP)) }
    }

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8, scales: V) -> V {
        // SAFETY: passed on.
        unsafe { Self::load_pair(at, scales)[0] }
    }

    #[inline(always)]
    unsafe fn load_pair<V: Lanes>(at: *const u8, scales: V) -> [V; 2] {
        // SAFETY: passed on.
        unsafe {
            let [first, second] = V::from_e4m3_pairs(at.cast());
            [first.times(scales), second.times(scales)]
        }
    }
}

/// Sixteen outputs of each of `R` rows from each of some neighbouring panels, `P` at a time. `columns` is the rows'
/// activations, `[k][R]`.
///
/// One row and one panel would be one chain of sums, each waiting for the last. Rows side by side, or
/// panels side by side, fill those waits.
///
/// # Panics
/// If `panels` is not a number of times `P` panels of as many inputs as there are columns.
///
/// # Safety
/// `to` has room for sixteen floats a panel of each row, which nobody else reads or writes meanwhile.
pub(crate) unsafe fn multiply<F: Float, const P: usize, const R: usize>(
    simd: Simd,
    panels: PanelsAt,
    columns: &[[f32; R]],
    to: RowsAt,
) {
    let (bytes, beside) = (panels.bytes, P * F::panel_bytes(columns.len()));
    assert!(bytes.len().is_multiple_of(beside), "a weight for each input");
    let (count, panels) = (bytes.len() / beside, bytes.as_ptr());
    // SAFETY: the panels are as long as was checked, and the caller vouches for `to`.
    unsafe { simd.run(Multiply::<F, P, R> { panels, count, columns, to, float: PhantomData }) };
}

struct Multiply<'a, F, const P: usize, const R: usize> {
    panels: *const u8,
    /// So many times `P` panels.
    count: usize,
    columns: &'a [[f32; R]],
    to: RowsAt,
    float: PhantomData<F>,
}

impl<F: Float, const P: usize, const R: usize> Kernel for Multiply<'_, F, P, R> {
    const SUMS: usize = P * R;
    const OF_BYTES: bool = false;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let panel_bytes = F::panel_bytes(self.columns.len());
        let pair_bytes = 2 * OUTPUTS * F::BYTES;
        for group in 0..self.count {
            let panels = self.panels.wrapping_add(group * P * panel_bytes);
            // SAFETY: `multiply` checked the panels' length, its caller vouches for `to`, and the caller
            // here for the instructions.
            unsafe {
                // ANCHOR: chains
                let mut sums = [[V::splat(0.0); R]; P];
                for (tile, columns) in self.columns.chunks(GROUP).enumerate() {
                    let first = panels.wrapping_add(tile * F::TILE);
                    let (mut tiles, mut scales) = ([first; P], [F::scales::<V>(first); P]);
                    for p in 1..P {
                        tiles[p] = first.wrapping_add(p * panel_bytes);
                        scales[p] = F::scales::<V>(tiles[p]);
                    }
                    // What comes after a panel's end lies after those that are met beside it.
                    let ends = (tile * F::TILE + F::AHEAD) / panel_bytes;
                    let ahead = F::AHEAD + ends * (P - 1) * panel_bytes;
                    // Where a pair is less than a cache line, a whole tile is asked for; wider ones pair by pair.
                    if pair_bytes < LINE {
                        for tile in tiles {
                            ask_for::<F>(tile.wrapping_add(ahead), F::TILE);
                        }
                    }
                    let (pairs, last) = columns.as_chunks::<2>();
                    for (i, [first, second]) in pairs.iter().enumerate() {
                        let mut weights = [[V::splat(0.0); P]; 2];
                        for p in 0..P {
                            let at = tiles[p].add(i * pair_bytes);
                            if pair_bytes >= LINE {
                                ask_for::<F>(at.wrapping_add(ahead), pair_bytes);
                            }
                            [weights[0][p], weights[1][p]] = F::load_pair::<V>(at, scales[p]);
                        }
                        add_products(&mut sums, weights[0], first);
                        add_products(&mut sums, weights[1], second);
                    }
                    for x in last {
                        let mut weights = [V::splat(0.0); P];
                        for p in 0..P {
                            let at = tiles[p].add(pairs.len() * pair_bytes);
                            weights[p] = F::load::<V>(at, scales[p]);
                        }
                        add_products(&mut sums, weights, x);
                    }
                }
                for p in 0..P {
                    for r in 0..R {
                        sums[p][r].store(self.to.row(r).add((group * P + p) * OUTPUTS));
                    }
                }
                // ANCHOR_END: chains
            }
        }
    }
}

/// Adds each panel's sixteen weights of one input, times its activation in each row.
///
/// # Safety
/// The instructions of `V` are there.
#[inline(always)]
unsafe fn add_products<V: Lanes, const P: usize, const R: usize>(
    sums: &mut [[V; R]; P],
    weights: [V; P],
    x: &[f32; R],
) {
    for r in 0..R {
        // SAFETY: passed on.
        let x = unsafe { V::splat(x[r]) };
        for p in 0..P {
            // SAFETY: passed on.
            sums[p][r] = unsafe { sums[p][r].plus_product(x, weights[p]) };
        }
    }
}

/// Asks for some bytes from `at` on: of narrow weights, which take longer to widen than to send, into the second cache.
#[inline(always)]
fn ask_for<F: Float>(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        let line = at.wrapping_add(line);
        if F::BYTES > 1 { prefetch(line) } else { prefetch_far(line) }
    }
}
