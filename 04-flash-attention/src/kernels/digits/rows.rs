//! Rows of numbers in two digits, and the codes that they meet: what attention over INT8 keys and values consists of.
//!
//! A row is what it is for INT8 weights: one scale, and steps of it that are `128 · high + low`. Sums of its products with codes
//! are whole numbers of 32 bits, both digits' together, too. Codes come in stretches that
//! lie anywhere, `[step][16 outputs][4 inputs]` of bytes that are 128 more than the code. Their scales are the caller's
//! business.

mod meeting;
mod products;

use super::super::activations::{STEP, largest_bits};
use super::super::float_panels::OUTPUTS;
use super::super::lanes::scale_and_inverse;
use super::super::{Kernel, Lanes, Simd};
use super::{BLOCK, Digits, MOST, STEPS, digits_of_some, start};
use bytemuck::{Pod, Zeroable};
pub(in super::super) use meeting::{DigitByDigit, Meeting};
use naive_decode::SPLIT;
use naive_decode::numerics::LANES;
use products::{Add, Handful, Meet};

/// Most rows of a handful: two sums for each.
pub(crate) const HANDFUL: usize = 4;

/// Most products of a row and codes: so many are a whole number of 32 bits.
pub(crate) const MOST_SUMMED: usize = i32::MAX as usize / (127 * MOST as usize);
const _: () = assert!(SPLIT <= MOST_SUMMED, "places of a split are added together");

/// Steps of a tile of values.
const TILE_STEPS: usize = OUTPUTS / STEP;

/// A whole number from -127 to 127, kept as 128 more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(u8);

// SAFETY: it is what a byte is, all of whose bits mean something.
unsafe impl Zeroable for Code {}
// SAFETY: as above.
unsafe impl Pod for Code {}

impl Code {
    pub(crate) fn new(code: i8) -> Self {
        Code(code as u8 ^ 128)
    }

    #[cfg(test)]
    pub(crate) fn value(self) -> i8 {
        (self.0 ^ 128) as i8
    }
}

/// Codes of sixteen outputs, `[inputs / 4][16 outputs][4]`.
type OutputTile<'a> = &'a [[Code; OUTPUTS]];

/// What a row's numbers have in common.
#[derive(Clone, Copy, Default)]
struct Row {
    /// What its sums of either digit begin with: it takes off what codes are kept too large by.
    starts: [i32; 2],
    scale: f32,
}

/// Rows in digits, handfuls of them side by side; room that is kept from one call to the next.
#[derive(Default)]
pub(crate) struct DigitRows {
    /// `[handfuls][blocks of 64 numbers][high, low][rows of the handful]`
    digits: Vec<[[i8; STEP]; STEPS]>,
    rows: Vec<Row>,
    /// Numbers of a row.
    width: usize,
}

impl DigitRows {
    pub(crate) fn clear(&mut self) {
        self.digits.clear();
        self.rows.clear();
    }

    /// Puts a handful of rows behind those that are there. One that is not finite gets a scale that is no number.
    ///
    /// # Panics
    /// If rows are not all of one width, a multiple of four and no more than [`MOST_SUMMED`].
    pub(crate) fn push<const R: usize>(&mut self, simd: Simd, rows: [&[f32]; R]) {
        let (width, first) = (rows[0].len(), self.digits.len());
        assert!(width.is_multiple_of(STEP) && width <= MOST_SUMMED, "a width of a row in digits");
        let is_first = self.rows.is_empty();
        assert!(rows.iter().all(|row| row.len() == width), "rows of one width");
        assert!(is_first || self.width == width, "rows of one width");
        self.width = width;
        self.digits.resize(first + width.div_ceil(BLOCK) * 2 * R, [[0; STEP]; STEPS]);
        let blocks = self.digits[first..].as_chunks_mut().0.as_chunks_mut().0;
        let mut own = [Row::default(); R];
        // SAFETY: its fields are slices, and every access to them is checked.
        unsafe { simd.run(Quantise::<R> { rows, blocks, own: &mut own }) };
        self.rows.extend(own);
    }

    /// The `R` rows from `first` on, which are a handful, for so many steps: those that all rows have.
    fn handful<const R: usize>(&self, first: usize, steps: usize) -> Handful<'_, R> {
        let rows = *self.rows[first..].first_chunk().expect("a handful of rows");
        let blocks = self.width.div_ceil(BLOCK);
        assert_eq!(blocks, steps.div_ceil(STEPS), "blocks of a row");
        let digits = &self.digits[first * blocks * 2..][..R * blocks * 2];
        Handful { blocks: digits.as_chunks().0.as_chunks().0, steps, rows }
    }

    /// Products of the handful of `R` rows from `first` on with tiles, each `[row / 4][16 outputs][4]`, times `by`, into
    /// `to [R][tiles]`. Where memory is to be asked for what comes next, that is in `after` once tiles are at an end.
    ///
    /// # Panics
    /// If there are no tiles, one is not as long as a row, or `to` is of another size.
    pub(crate) fn meet<const R: usize>(
        &self,
        simd: Simd,
        first: usize,
        (tiles, after): (&[OutputTile], Option<&[&[Code]]>),
        by: f32,
        to: &mut [[f32; OUTPUTS]],
    ) {
        let numbers = self.width;
        assert!(!tiles.is_empty(), "tiles");
        assert!(tiles.iter().all(|tile| tile.len() == numbers) && to.len() == R * tiles.len());
        let rows = self.handful::<R>(first, numbers / STEP);
        // SAFETY: every tile is as long as a row, and `to` has its outputs, as was checked.
        unsafe { simd.run(Meet { rows, tiles, after, by, to }) };
    }

    /// Sums over all tiles, each `[4 steps][width][4]`, of their products with the handful of `R` rows from `first` on, into
    /// `to [R][width]`. `asks` is whether memory is to be asked for what comes next.
    ///
    /// # Panics
    /// If a tile has not four steps, rows are longer than all tiles, or shorter, or `width` is not whole registers.
    pub(crate) fn add<const R: usize>(
        &self,
        simd: Simd,
        first: usize,
        tiles: &[&[Code]],
        (width, asks): (usize, bool),
        to: &mut [f32],
    ) {
        assert!(width.is_multiple_of(OUTPUTS) && to.len() == R * width, "whole registers");
        assert!(tiles.iter().all(|tile| tile.len() == OUTPUTS * width), "whole tiles");
        let rows = self.handful::<R>(first, tiles.len() * TILE_STEPS);
        // SAFETY: tiles are whole, of columns in whole registers, as was checked.
        unsafe { simd.run(Add { rows, tiles, width, asks, to }) };
    }
}

struct Quantise<'a, const R: usize> {
    rows: [&'a [f32]; R],
    blocks: &'a mut [Digits<R>],
    own: &'a mut [Row; R],
}

impl<const R: usize> Kernel for Quantise<'_, R> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let bias = V::Numbers::bias();
        for r in 0..R {
            let largest = f32::from_bits(largest_bits(self.rows[r]));
            let (scale, inverse) = scale_and_inverse(largest, MOST);
            let mut sums = [[0i32; LANES]; 2];
            for (x, [high, low]) in self.rows[r].chunks(BLOCK).zip(&mut *self.blocks) {
                let own = digits_of_some(x, inverse, [&mut high[r], &mut low[r]]);
                for (sum, own) in sums.as_flattened_mut().iter_mut().zip(own.as_flattened()) {
                    *sum = sum.wrapping_add(*own);
                }
                // SAFETY: the caller vouches for the instructions.
                unsafe { V::Numbers::arrange([&mut high[r], &mut low[r]]) };
            }
            self.own[r] = Row { starts: [start(&sums[0], bias), start(&sums[1], bias)], scale };
        }
    }
}

/// The first `width` inputs of a tile of outputs as they lie for [`DigitRows::add`], where inputs are columns and outputs are
/// what is added: `[4 steps][width][4]`. Columns that the tile has not are left as they are.
///
/// # Panics
/// If `to` is not a tile of so many columns.
pub(crate) fn turn(simd: Simd, tile: OutputTile, width: usize, to: &mut [Code]) {
    assert_eq!(to.len(), OUTPUTS * width, "a tile");
    // SAFETY: its fields are slices, and every access to them is checked.
    unsafe { simd.run(Turn { tile: tile.as_flattened(), width, to }) };
}

struct Turn<'a> {
    tile: &'a [Code],
    width: usize,
    to: &'a mut [Code],
}

impl Kernel for Turn<'_> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let columns = self.to.chunks_exact_mut(self.width * STEP);
        for (step, columns) in columns.enumerate() {
            // Four outputs of four inputs each, which become four columns of four.
            let fours = self.tile.as_chunks::<{ STEP * STEP }>().0.iter();
            let fours = fours.skip(step).step_by(OUTPUTS / STEP);
            for (four, columns) in fours.zip(columns.as_chunks_mut::<{ STEP * STEP }>().0) {
                for (i, code) in columns.iter_mut().enumerate() {
                    *code = four[i % STEP * STEP + i / STEP];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
