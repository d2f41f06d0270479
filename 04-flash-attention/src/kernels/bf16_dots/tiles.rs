//! The fast mode of BF16 in AMX's tiles.

use super::{BLOCK_BYTES, PairBlock};
use crate::kernels::amx::{ROW, Tiles};
use crate::kernels::float_panels::OUTPUTS;
use crate::kernels::{LINE, PREFETCH, Products, TILE_ROWS, prefetch};
use std::hint::black_box;
use std::mem::MaybeUninit;

/// Panels side by side, and blocks of rows: a tile that is loaded is multiplied by this many.
const BESIDE: usize = 2;

/// Shapes: four tiles of sums, two of activations, two of weights.
const fn shapes(rows: usize) -> [(usize, usize); 8] {
    let (x, weights) = ((rows, ROW), (OUTPUTS, ROW));
    [x, x, x, x, x, x, weights, weights]
}

/// Panels against blocks of `R` rows, both in `each` parts of 32 inputs.
///
/// # Safety
/// Tiles are there. The panels are whole, and `products` has room for their outputs of all rows, which nobody else
/// reads or writes meanwhile.
pub(super) unsafe fn multiply<const R: usize>(
    panels: &[u8],
    blocks: &[PairBlock<R>],
    each: usize,
    products: Products,
) {
    // SAFETY: the caller's condition.
    let tiles = unsafe { Tiles::new(const { shapes(R) }) };
    for (i, panels) in panels.chunks(BESIDE * each * BLOCK_BYTES).enumerate() {
        let outputs = i * BESIDE * OUTPUTS;
        for (j, blocks) in blocks.chunks(BESIDE * each).enumerate() {
            let rows = j * BESIDE * R;
            let part = Products {
                // SAFETY: so far the products reach.
                to: unsafe { products.to.from(rows, outputs) },
                rows: products.rows - rows,
                outputs: products.outputs - outputs,
            };
            // The first rows to meet weights ask memory for the next.
            let ask = j == 0;
            // SAFETY: passed on; there are as many panels and blocks as is said here.
            unsafe {
                match (panels.len() / BLOCK_BYTES / each, blocks.len() / each) {
                    (2, 2) => meet::<2, 2, R>(&tiles, panels, blocks, each, part, ask),
                    (2, _) => meet::<2, 1, R>(&tiles, panels, blocks, each, part, ask),
                    (_, 2) => meet::<1, 2, R>(&tiles, panels, blocks, each, part, ask),
                    _ => meet::<1, 1, R>(&tiles, panels, blocks, each, part, ask),
                }
            }
        }
    }
}

/// `P` panels against `B` blocks of rows.
///
/// # Safety
/// As [`multiply`].
unsafe fn meet<const P: usize, const B: usize, const R: usize>(
    tiles: &Tiles,
    panels: &[u8],
    blocks: &[PairBlock<R>],
    each: usize,
    products: Products,
    ask: bool,
) {
    let weights = |p: usize, k: usize| panels[(p * each + k) * BLOCK_BYTES..].as_ptr();
    let x = |b: usize, k: usize| blocks[b * each + k].pairs.as_ptr().cast::<u8>();
    tiles.clear::<0>();
    tiles.clear::<1>();
    tiles.clear::<2>();
    tiles.clear::<3>();
    for k in 0..each {
        if ask {
            for at in (0..P).map(|p| weights(p, k)) {
                for line in 0..BLOCK_BYTES / LINE {
                    prefetch(at.wrapping_add(PREFETCH + LINE * line));
                }
            }
        }
        // ANCHOR: tiles
        // SAFETY: a block of weights, and `R` rows of activations.
        unsafe {
            tiles.load::<4>(x(0, k), ROW);
            tiles.load::<6>(weights(0, k), ROW);
            tiles.add_bf16::<0, 4, 6>();
            if P == 2 {
                tiles.load::<7>(weights(1, k), ROW);
                tiles.add_bf16::<1, 4, 7>();
            }
            if B == 2 {
                tiles.load::<5>(x(1, k), ROW);
                tiles.add_bf16::<2, 5, 6>();
            }
            if P == 2 && B == 2 {
                tiles.add_bf16::<3, 5, 7>();
            }
        }
        // ANCHOR_END: tiles
    }
    let Products { to, rows, outputs } = products;
    if rows >= B * R && outputs >= P * OUTPUTS {
        let stride = to.stride * size_of::<f32>();
        // SAFETY: the products have room.
        unsafe { store::<P, B>(tiles, |b, p| to.from(b * R, p * OUTPUTS).start.cast(), stride) };
        return;
    }
    // What has no room goes to a place of its own first.
    let mut whole = MaybeUninit::<[[[f32; OUTPUTS]; TILE_ROWS]; BESIDE * BESIDE]>::uninit();
    let whole: *mut [[f32; OUTPUTS]; TILE_ROWS] = whole.as_mut_ptr().cast();
    // SAFETY: there are four tiles of sixteen rows, and no more than the products have are copied.
    unsafe {
        store::<P, B>(tiles, |b, p| whole.add(b * P + p).cast(), ROW);
        for (b, p) in (0..B).flat_map(|b| (0..P).map(move |p| (b, p))) {
            let (rows, outputs) = (rows - b * R, outputs - p * OUTPUTS);
            for r in 0..rows.min(R) {
                let sums = (&raw const (*whole.add(b * P + p))[r]).cast::<f32>();
                let to = to.from(b * R + r, p * OUTPUTS).start;
                to.copy_from_nonoverlapping(sums, outputs.min(OUTPUTS));
            }
        }
    }
}

/// Writes all sums, those of block `b` and panel `p` to `at(b, p)`.
///
/// # Safety
/// There is room for rows that lie `stride` bytes apart.
#[inline(always)]
unsafe fn store<const P: usize, const B: usize>(
    tiles: &Tiles,
    mut at: impl FnMut(usize, usize) -> *mut u8,
    stride: usize,
) {
    // SAFETY: passed on.
    unsafe {
        tiles.store::<0>(at(0, 0), stride);
        if P == 2 {
            tiles.store::<1>(at(0, 1), stride);
        }
        if B == 2 {
            tiles.store::<2>(at(1, 0), stride);
        }
        if P == 2 && B == 2 {
            tiles.store::<3>(at(1, 1), stride);
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
        let ones = black_box([0x3c_u8; TILE_ROWS * ROW]);
        tiles.load::<4>(ones.as_ptr(), ROW);
        tiles.load::<5>(ones.as_ptr(), ROW);
        tiles.load::<6>(ones.as_ptr(), ROW);
        tiles.load::<7>(ones.as_ptr(), ROW);
        for _ in 0..rounds {
            tiles.add_bf16::<0, 4, 6>();
            tiles.add_bf16::<1, 4, 7>();
            tiles.add_bf16::<2, 5, 6>();
            tiles.add_bf16::<3, 5, 7>();
        }
    }
}
