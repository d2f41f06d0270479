//! Both digits in AMX's tiles.

use super::{BASE, BLOCK, DigitBlock, SCALES, TILE, panel_bytes, starts};
use crate::kernels::amx::{ROW, Tiles};
use crate::kernels::float_panels::OUTPUTS;
use crate::kernels::{Kernel, LINE, Lanes, Products, Simd, TILE_ROWS, prefetch_far};
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Panels side by side: a tile of digits that is loaded is multiplied by so many of weights.
const BESIDE: usize = 2;

/// Cache lines of a tile of weights.
const LINES: usize = TILE / LINE;

/// Shapes: four tiles of sums, two of digits, two of weights.
const fn shapes(rows: usize) -> [(usize, usize); 8] {
    let (x, weights) = ((rows, ROW), (OUTPUTS, ROW));
    [x, x, x, x, x, x, weights, weights]
}

/// Sums of one block of rows: `[high, low][panel][row][output]`. A row is a cache line, and not parts of two.
#[repr(align(64))]
struct Sums([[[[i32; OUTPUTS]; TILE_ROWS]; BESIDE]; 2]);

/// Panels against blocks of `R` rows, both in `each` parts of 64 inputs.
///
/// # Safety
/// Tiles are there. The panels are whole, and `products` has room for their outputs of all rows, which nobody else
/// reads or writes meanwhile.
pub(super) unsafe fn multiply<const R: usize>(
    simd: Simd,
    panels: &[u8],
    blocks: &[DigitBlock<R>],
    each: usize,
    products: Products,
) {
    let starts: Vec<_> = blocks.chunks(each).map(starts).collect();
    // SAFETY: the caller's condition.
    let tiles = unsafe { Tiles::new(const { shapes(R) }) };
    let panel_bytes = panel_bytes(each * BLOCK);
    let rows_of_blocks = blocks.len() / each;
    for (i, panels) in panels.chunks(BESIDE * panel_bytes).enumerate() {
        let outputs = i * BESIDE * OUTPUTS;
        for (j, blocks) in blocks.chunks(each).enumerate() {
            let rows = j * R;
            let part = Products {
                // SAFETY: so far the products reach.
                to: unsafe { products.to.from(rows, outputs) },
                rows: (products.rows - rows).min(R),
                outputs: (products.outputs - outputs).min(BESIDE * OUTPUTS),
            };
            // Memory is asked for the weights that come next, each block of rows for its share of a tile's lines.
            let ask = (j * LINES / rows_of_blocks, (j + 1) * LINES / rows_of_blocks);
            let mut sums = MaybeUninit::uninit();
            // SAFETY: passed on; there are as many panels as is said here.
            unsafe {
                match panels.len() / panel_bytes {
                    BESIDE => meet::<BESIDE, R>(&tiles, panels, blocks, ask, &mut sums),
                    _ => meet::<1, R>(&tiles, panels, blocks, ask, &mut sums),
                }
            }
            let (sums, starts, row_scales) = (sums.as_ptr(), &starts[j], &blocks[0].scales);
            // SAFETY: `meet` has written the sums of these panels and rows, and the caller vouches for `products`.
            unsafe {
                simd.run(Finish { sums, starts, row_scales, panels, panel_bytes, products: part })
            };
        }
    }
}

/// `P` panels against one block of rows. Of the sums, as many are written as there are panels and rows.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn meet<const P: usize, const R: usize>(
    tiles: &Tiles,
    panels: &[u8],
    blocks: &[DigitBlock<R>],
    ask: (usize, usize),
    sums: &mut MaybeUninit<Sums>,
) {
    let panel_bytes = panels.len() / P;
    let weights = |p: usize, k: usize| panels[p * panel_bytes + k * TILE..].as_ptr();
    let x = |digit: usize, k: usize| (&raw const blocks[k].digits[digit]).cast::<u8>();
    tiles.clear::<0>();
    tiles.clear::<1>();
    tiles.clear::<2>();
    tiles.clear::<3>();
    for k in 0..blocks.len() {
        for p in 0..P {
            for line in ask.0..ask.1 {
                prefetch_far(weights(p, k).wrapping_add(panels.len() + LINE * line));
            }
        }
        // ANCHOR: tiles
        // SAFETY: a tile of weights, and `R` rows of digits.
        unsafe {
            tiles.load::<4>(x(0, k), ROW);
            tiles.load::<6>(weights(0, k), ROW);
            tiles.add_bytes::<0, 4, 6>();
            tiles.load::<5>(x(1, k), ROW);
            tiles.add_bytes::<1, 5, 6>();
            if P == BESIDE {
                tiles.load::<7>(weights(1, k), ROW);
                tiles.add_bytes::<2, 4, 7>();
                tiles.add_bytes::<3, 5, 7>();
            }
        }
        // ANCHOR_END: tiles
    }
    let sums: *mut [[[i32; OUTPUTS]; TILE_ROWS]; BESIDE] = sums.as_mut_ptr().cast();
    let to = |digit: usize, p: usize| {
        // SAFETY: there are two digits, each of as many panels as are side by side.
        unsafe { sums.add(digit).cast::<[[i32; OUTPUTS]; TILE_ROWS]>().add(p).cast::<u8>() }
    };
    // SAFETY: sixteen rows have room in each.
    unsafe {
        tiles.store::<0>(to(0, 0), ROW);
        tiles.store::<1>(to(1, 0), ROW);
        if P == BESIDE {
            tiles.store::<2>(to(0, 1), ROW);
            tiles.store::<3>(to(1, 1), ROW);
        }
    }
}

/// Makes outputs of sums.
struct Finish<'a, const R: usize> {
    sums: *const Sums,
    starts: &'a [[i32; R]; 2],
    row_scales: &'a [f32; R],
    panels: &'a [u8],
    panel_bytes: usize,
    products: Products,
}

impl<const R: usize> Kernel for Finish<'_, R> {
    const SUMS: usize = R;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let Products { to, rows, outputs } = self.products;
        for (p, panel) in self.panels.chunks_exact(self.panel_bytes).enumerate() {
            let scales = panel[panel.len() - SCALES..].as_chunks().0;
            let scales: [f32; OUTPUTS] = std::array::from_fn(|i| f32::from_le_bytes(scales[i]));
            let outputs = (outputs - p * OUTPUTS).min(OUTPUTS);
            for r in 0..rows {
                let mut out = [0.0; OUTPUTS];
                for i in 0..OUTPUTS {
                    // SAFETY: `meet` wrote the sums of all rows of this panel.
                    let [high, low] =
                        unsafe { [(*self.sums).0[0][p][r][i], (*self.sums).0[1][p][r][i]] };
                    let high = high.wrapping_add(self.starts[0][r]) as f32;
                    let low = low.wrapping_add(self.starts[1][r]) as f32;
                    out[i] = high.mul_add(BASE as f32, low) * (scales[i] * self.row_scales[r]);
                }
                // SAFETY: the products have room.
                unsafe {
                    let to = to.from(r, p * OUTPUTS).start;
                    match outputs {
                        OUTPUTS => to.cast::<[f32; OUTPUTS]>().write_unaligned(out),
                        _ => to.copy_from_nonoverlapping(out.as_ptr(), outputs),
                    }
                }
            }
        }
    }
}

/// `rounds` times four products of two whole tiles.
///
/// # Safety
/// Tiles are there.
pub(in crate::kernels) unsafe fn only_products(rounds: usize) {
    // SAFETY: the caller's condition, and whole tiles are there.
    unsafe {
        let tiles = Tiles::new(const { shapes(TILE_ROWS) });
        let ones = black_box([1_u8; TILE_ROWS * ROW]);
        tiles.load::<4>(ones.as_ptr(), ROW);
        tiles.load::<5>(ones.as_ptr(), ROW);
        tiles.load::<6>(ones.as_ptr(), ROW);
        tiles.load::<7>(ones.as_ptr(), ROW);
        for _ in 0..rounds {
            tiles.add_bytes::<0, 4, 6>();
            tiles.add_bytes::<1, 5, 6>();
            tiles.add_bytes::<2, 4, 7>();
            tiles.add_bytes::<3, 5, 7>();
        }
    }
}
