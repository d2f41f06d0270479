//! The same in AMX's tiles: sixteen rows of activations meet a group's weights in one instruction.
//!
//! A group's sums leave the tiles through memory, where they become floats, are scaled and added, as everywhere. That takes
//! longer than the products do, so those of the next two groups are under way meanwhile. They leave their tiles after that: an
//! instruction that stores a tile keeps other instructions waiting until its products are there.

use super::{OUTPUTS, Tile};
use crate::kernels::activations::{GROUP, Group};
use crate::kernels::amx::{ROW, Tiles};
use crate::kernels::{Kernel, Lanes, Products, Simd, Stretch, TILE_ROWS};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, swap};

/// A group's weights of sixteen outputs as tiles of AMX want them: `[8 steps][16 outputs][4 inputs]`, each as it is meant. So
/// sums begin at zero, and there is no start to be added to each.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Weights(pub(super) [i8; GROUP * OUTPUTS]);

/// A group's sums: `[row][output]`. A row is a cache line, and not parts of two.
#[repr(align(64))]
struct Sums([[i32; OUTPUTS]; TILE_ROWS]);

/// Room for the sums of two groups.
type TwoSums = [MaybeUninit<Sums>; 2];

/// Shapes: two tiles of sums, two of activations, two of weights. The others are not used.
const fn shapes(rows: usize) -> [(usize, usize); 8] {
    let (sums, x, weights) = ((rows, ROW), (rows, GROUP), (GROUP * OUTPUTS / ROW, ROW));
    [sums, sums, (0, 0), (0, 0), x, x, weights, weights]
}

thread_local! {
    /// Room for the weights of one panel, kept from one matrix to the next.
    static ROOM: Cell<Vec<Weights>> = const { Cell::new(Vec::new()) };
}

/// Panels against blocks of `R` rows, both in `each` groups. Memory is asked for what will be read soon meanwhile, which `more`
/// says, a stretch at a time.
///
/// # Safety
/// Tiles are there. The panels are whole, and `products` has room for their outputs of all rows, which nobody else
/// reads or writes meanwhile.
pub(super) unsafe fn multiply<T: Tile, const R: usize>(
    simd: Simd,
    (panels, more): (&[u8], fn() -> Stretch),
    blocks: &[Group<R>],
    each: usize,
    products: Products,
) {
    let mut soon = Stretch::NOTHING;
    let mut room = ROOM.take();
    room.resize(each, Weights([0; GROUP * OUTPUTS]));
    // SAFETY: the caller's condition.
    let tiles = unsafe { Tiles::new(const { shapes(R) }) };
    for (p, panel) in panels.chunks_exact(each * T::BYTES).enumerate() {
        let (weights, tile) = (&mut room[..], PhantomData::<T>);
        // SAFETY: it has slices alone.
        unsafe { simd.run(TakeApart { panel, weights, tile }) };
        // The first rows to meet a panel ask memory for the next.
        let mut next = Stretch::from(panel.as_ptr_range().end, panel.len());
        for (b, groups) in blocks.chunks_exact(each).enumerate() {
            if !soon.ask() {
                soon = more();
            }
            let (tiles, weights, ask) = (&tiles, &room[..], [&mut next, &mut soon]);
            let products = Products {
                // SAFETY: so far the products reach.
                to: unsafe { products.to.from(b * R, p * OUTPUTS) },
                rows: (products.rows - b * R).min(R),
                outputs: (products.outputs - p * OUTPUTS).min(OUTPUTS),
            };
            // SAFETY: passed on, for these rows and outputs.
            unsafe { simd.run(Meet { tiles, panel, weights, groups, ask, products, tile }) };
        }
    }
    drop(tiles);
    ROOM.set(room);
}

/// Takes a panel's weights out of its tiles.
struct TakeApart<'a, T> {
    panel: &'a [u8],
    weights: &'a mut [Weights],
    tile: PhantomData<T>,
}

impl<T: Tile> Kernel for TakeApart<'_, T> {
    /// As many as [`Meet`] has: nobody else wants these weights.
    const SUMS: usize = TILE_ROWS;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        for (tile, weights) in self.panel.chunks_exact(T::BYTES).zip(self.weights) {
            T::take_apart(tile, weights);
        }
    }
}

/// A panel against one block of rows, of as many groups.
struct Meet<'a, T, const R: usize> {
    tiles: &'a Tiles,
    panel: &'a [u8],
    weights: &'a [Weights],
    groups: &'a [Group<R>],
    /// What memory is asked for meanwhile, one after the other.
    ask: [&'a mut Stretch; 2],
    products: Products,
    tile: PhantomData<T>,
}

impl<T: Tile, const R: usize> Kernel for Meet<'_, T, R> {
    /// Only registers of sixteen floats have room for so many, and only where those are is AMX.
    const SUMS: usize = R;

    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let Meet { tiles, panel, weights, groups, ask: [next, soon], products, .. } = self;
        let mut sums: [TwoSums; 2] = [const { [const { MaybeUninit::uninit() }; 2] }; 2];
        let [mut these, mut those] = sums.each_mut();
        let tile = |g: usize| panel[g * T::BYTES..].as_ptr();
        // SAFETY: AVX-512 is there; each group has weights and a tile, and the caller vouches for the products.
        unsafe {
            let mut y = [_mm512_setzero_ps(); R];
            // ANCHOR: turns
            multiply_two(tiles, weights, groups);
            write_two(tiles, groups.len(), these);
            for g in (0..groups.len()).step_by(2) {
                let more = groups.len().saturating_sub(g + 2);
                if more > 0 {
                    multiply_two(tiles, &weights[g + 2..], &groups[g + 2..]);
                }
                add_scaled::<T, R>(tile(g), &groups[g], these[0].assume_init_ref(), &mut y);
                if let Some(x) = groups.get(g + 1) {
                    add_scaled::<T, R>(tile(g + 1), x, these[1].assume_init_ref(), &mut y);
                }
                if more > 0 {
                    write_two(tiles, more, those);
                }
                for _ in 0..2 {
                    let _ = next.ask() || soon.ask();
                }
                swap(&mut these, &mut those);
            }
            // ANCHOR_END: turns
            let Products { to, rows, outputs } = products;
            let there = (u32::MAX >> (32 - outputs)) as __mmask16;
            for (r, y) in y.into_iter().enumerate().take(rows) {
                _mm512_mask_storeu_ps(to.row(r), there, y);
            }
        }
    }
}

/// Multiplies the first two groups, or the only one, in tiles of their own.
///
/// # Safety
/// There are as many groups of weights.
#[inline(always)]
unsafe fn multiply_two<const R: usize>(tiles: &Tiles, weights: &[Weights], groups: &[Group<R>]) {
    let x = |g: usize| groups[g].codes.as_ptr().cast();
    let weights = |g: usize| weights[g].0.as_ptr().cast();
    // SAFETY: a group's activations and weights have the tiles' shapes.
    unsafe {
        tiles.load::<4>(x(0), GROUP);
        tiles.load::<6>(weights(0), ROW);
        tiles.clear::<0>();
        tiles.add_signed_bytes::<0, 4, 6>();
        if groups.len() > 1 {
            tiles.load::<5>(x(1), GROUP);
            tiles.load::<7>(weights(1), ROW);
            tiles.clear::<1>();
            tiles.add_signed_bytes::<1, 5, 7>();
        }
    }
}

/// Writes the sums of two groups, or of the only one.
#[inline(always)]
fn write_two(tiles: &Tiles, groups: usize, sums: &mut TwoSums) {
    // SAFETY: sums have room for sixteen rows.
    unsafe {
        tiles.store::<0>(sums[0].as_mut_ptr().cast(), ROW);
        if groups > 1 {
            tiles.store::<1>(sums[1].as_mut_ptr().cast(), ROW);
        }
    }
}

/// Adds a group's sums, times their scales, to the outputs of `R` rows.
///
/// # Safety
/// A tile lies there, and AVX-512 is there.
#[inline(always)]
unsafe fn add_scaled<T: Tile, const R: usize>(
    tile: *const u8,
    x: &Group<R>,
    sums: &Sums,
    y: &mut [__m512; R],
) {
    // SAFETY: the caller's conditions.
    unsafe {
        let scales = from_f16(tile.add(T::SCALES));
        for r in 0..R {
            let both = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[r]));
            let sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums.0[r].as_ptr().cast()));
            y[r] = _mm512_fmadd_ps(sum, both, y[r]);
        }
        if let Some(at) = T::SMALLEST {
            let smallest = from_f16(tile.add(at));
            for r in 0..R {
                y[r] = _mm512_fmadd_ps(smallest, _mm512_set1_ps(x.totals[r]), y[r]);
            }
        }
    }
}

/// Sixteen floats of 16 bits.
///
/// # Safety
/// They lie there, and AVX-512 is there.
#[inline(always)]
unsafe fn from_f16(at: *const u8) -> __m512 {
    // SAFETY: the caller's conditions.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}
