//! Rows of activations in blocks: as many together as a kernel takes, and what is left over in one or two blocks more.

use super::rows::{Cross, Family};
use crate::kernels::activations::Scaling;
use crate::kernels::{PanelsAt, Products, RowsAt, Simd, TILE_ROWS};
use crate::threads::{Disjoint, Pool, share};
use naive_decode::numerics::LANES;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows that a kernel takes together where there are enough registers.
pub(crate) const MANY: usize = 12;

/// Where there are fewer.
pub(crate) const FEW: usize = 4;

/// From this many activations on, threads arrange them together. Fewer are arranged by each thread for itself, which is
/// done sooner than one of them could hand them to the others.
pub(super) const TOGETHER: usize = 1 << 14;

/// Blocks that some rows make: the rows of each, and how many rows they take in all. The first has up to `first` rows, which
/// panels meet as they come from memory, others up to `most`.
///
/// A block of every size would be a kernel for every size. One row of zeros costs less than that; two or three cost more
/// than a second block, except in tiles.
fn cut(rows: usize, first: usize, most: usize) -> Vec<(usize, usize)> {
    if first > most && rows > first {
        return [vec![(first, first)], cut(rows - first, most, most)].concat();
    }
    let most = most.max(first);
    let (left, whole) = (rows % most, rows - rows % most);
    let mut blocks = vec![(most, whole)];
    match left {
        // In tiles rows of zeros cost nothing, and a second block all weights once more.
        9.. if most == TILE_ROWS => blocks.push((left.next_multiple_of(4), left)),
        9 | 10 => blocks.extend([(5, 5), (left - 5, left - 5)]),
        7 | 11 => blocks.push((left + 1, left)),
        // One or two rows take nearly as long as four.
        1 | 2 if 2 * most == MANY && whole > 0 => {
            blocks = vec![(most, whole - most), (4, 4), (left + 2, left + 2)];
        }
        _ => blocks.push((left, left)),
    }
    blocks.retain(|&(_, rows)| rows > 0);
    blocks
}

/// Neighbouring panels of a matrix.
#[derive(Clone)]
pub(super) struct Panels<'a> {
    pub(super) simd: Simd,
    /// One after another, of `each` bytes.
    pub(super) bytes: &'a [u8],
    pub(super) each: usize,
    pub(super) outputs: Range<usize>,
    /// Whether they are copies that [`Family::cross`] made.
    pub(super) crossed: bool,
    /// Outputs of the matrix: the width of a row of products.
    pub(super) width: usize,
}

impl Panels<'_> {
    /// Takes the first `count` off; none if there are not so many.
    fn take(&mut self, count: usize) -> Option<Self> {
        let (bytes, rest) = self.bytes.split_at_checked(count * self.each)?;
        let middle = self.outputs.end.min(self.outputs.start + count * LANES);
        let outputs = self.outputs.start..middle;
        (self.bytes, self.outputs.start) = (rest, middle);
        Some(Panels { bytes, outputs, ..*self })
    }

    /// Takes as many off as one call has: [`PANELS`], and of what is left two, then one.
    fn next(&mut self) -> Option<Self> {
        [PANELS, 2, 1].into_iter().find_map(|count| self.take(count))
    }

    /// Where the outputs of some rows begin.
    fn within(&self, rows: &Range<usize>, out: &Disjoint<MaybeUninit<f32>>) -> *mut f32 {
        let last = (rows.end - 1) * self.width;
        out.within(rows.start * self.width + self.outputs.start..last + self.outputs.end).cast()
    }
}

/// Blocks of some number of rows each, whatever number it is.
trait Met: Send + Sync {
    /// Panels against blocks that have the first of some rows; `out` is `[rows][width]`. Gives the rows that are left.
    fn meet(
        &self,
        panels: Panels,
        rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize>;
}

/// Blocks of `R` rows, the last of which may be filled up with rows of zeros: `[blocks][pieces]`.
struct Blocks<K: Family, const R: usize> {
    pieces: Vec<K::Piece<R>>,
    /// Pieces to a block.
    each: usize,
    /// Whether the first of them is the first to meet panels.
    first: bool,
    /// Whether panels count as near even then.
    near: bool,
}

impl<K: Family, const R: usize> Blocks<K, R> {
    /// Arranges rows of activations, of which the last block may want some.
    fn of(setting: Setting, x: &[f32], first: bool) -> Self {
        let Setting { simd, scaling, pool, inputs, near } = setting;
        let (each, block) = (K::pieces(inputs), R * inputs);
        let count = x.len().div_ceil(block) * each;
        let mut pieces = Vec::with_capacity(count);
        let to = Disjoint::new(&mut pieces.spare_capacity_mut()[..count]);
        // Some pieces of some blocks.
        let fill = |blocks: Range<usize>, mine: Range<usize>| {
            for (i, x) in x.chunks(block).enumerate().take(blocks.end).skip(blocks.start) {
                // SAFETY: threads have different blocks, or different pieces of a block.
                let to = unsafe { to.part(i * each + mine.start..i * each + mine.end) };
                match x.len() == block {
                    true => K::arrange::<R>(simd, scaling, x, inputs, mine.start, to),
                    false => {
                        let mut whole = x.to_vec();
                        whole.resize(block, 0.0);
                        K::arrange::<R>(simd, scaling, &whole, inputs, mine.start, to);
                    }
                }
            }
        };
        let blocks = count / each;
        match pool {
            // Each thread has as many blocks as the others, as likely as not of rows that it has just made and has near, and
            // of what blocks are left over so many inputs.
            Some(pool) => pool.run(&|thread| {
                let threads = pool.threads();
                let own = blocks / threads;
                fill(own * thread..own * (thread + 1), 0..each);
                fill(own * threads..blocks, share(each, threads, thread));
            }),
            None => fill(0..blocks, 0..each),
        }
        // SAFETY: `fill` is called for all pieces of all blocks, and `arrange` fills those it is given.
        unsafe { pieces.set_len(count) };
        Blocks { pieces, each, first, near }
    }
}

impl<K: Family, const R: usize> Met for Blocks<K, R> {
    fn meet(
        &self,
        mut panels: Panels,
        rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize> {
        let own = rows.start..rows.end.min(rows.start + self.pieces.len() / self.each * R);
        let outputs = panels.outputs.clone();
        let to = RowsAt { start: panels.within(&own, out), stride: panels.width };
        let products = Products { to, rows: own.len(), outputs: outputs.len() };
        let Panels { simd, bytes, .. } = panels;
        // SAFETY: these are the rows' outputs of these panels, which only this thread has.
        if unsafe { K::multiply_in_tiles::<R>(simd, bytes, &self.pieces, self.each, products) } {
            return own.end..rows.end;
        }
        let mut left = rows.clone();
        while let Some(some) = panels.next() {
            left = self.multiply(&some, rows.clone(), out);
        }
        left
    }
}

/// Panels that one call takes, one after another or side by side: a call takes as long as a good part of a short panel.
const PANELS: usize = 4;

/// Panels side by side for a block of so many rows. Of panels that come from memory, which sends one stretch as fast as two,
/// only as many as fill the waits of few rows' chains; and no more where registers are few.
const fn beside<K: Family>(rows: usize, many_registers: bool, near: bool) -> usize {
    let mut panels = match near {
        true => PANELS,
        false if rows < FEW => K::BESIDE,
        false => 1,
    };
    let sums = match (many_registers, near) {
        (true, true) => K::SUMS,
        (true, false) => MANY,
        (false, _) if K::SUMS < FEW => K::SUMS,
        (false, _) => FEW,
    };
    while panels > 1 && panels * rows > sums {
        panels /= 2;
    }
    panels
}

/// Whether any block of so many rows meets so many panels side by side: other kernels need not be there.
const fn is_used<K: Family>(rows: usize, panels: usize) -> bool {
    beside::<K>(rows, true, true) == panels
        || beside::<K>(rows, true, false) == panels
        || beside::<K>(rows, false, true) == panels
        || beside::<K>(rows, false, false) == panels
}

impl<K: Family, const R: usize> Blocks<K, R> {
    /// Four panels, two or one against all blocks.
    fn multiply(
        &self,
        panels: &Panels,
        mut rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize> {
        let many_registers = panels.simd.rows_together() == MANY;
        let count = panels.bytes.len() / panels.each;
        for (i, block) in self.pieces.chunks_exact(self.each).enumerate() {
            let own = rows.start..rows.end.min(rows.start + R);
            rows.start = own.end;
            let near = i > 0 || !self.first;
            match beside::<K>(R, many_registers, near || self.near) {
                4 if const { is_used::<K>(R, 4) } && count == 4 => {
                    multiply_block::<K, 4, R>(panels, near, block, own, out);
                }
                2 if const { is_used::<K>(R, 2) } && count >= 2 => {
                    multiply_block::<K, 2, R>(panels, near, block, own, out);
                }
                _ => multiply_block::<K, 1, R>(panels, near, block, own, out),
            }
        }
        rows
    }
}

/// Panels, `P` side by side, against one block of `R` rows: those of `rows`, and zeros.
fn multiply_block<K: Family, const P: usize, const R: usize>(
    panels: &Panels,
    near: bool,
    block: &[K::Piece<R>],
    rows: Range<usize>,
    out: &Disjoint<MaybeUninit<f32>>,
) {
    let &Panels { simd, bytes, each, width, crossed, .. } = panels;
    let (outputs, to) = (panels.outputs.len(), panels.within(&rows, out));
    let whole = outputs * each == bytes.len() * LANES && rows.len() == R;
    let panels = PanelsAt { bytes, near, crossed };
    if whole {
        let to = RowsAt { start: to, stride: width };
        // SAFETY: sixteen floats a panel of each row, which only this thread's panels have.
        unsafe { K::multiply::<P, R>(simd, panels, block, to) };
    } else {
        let mut lanes = [[[0.0f32; LANES]; PANELS]; R];
        let start = lanes.as_flattened_mut().as_flattened_mut().as_mut_ptr();
        // SAFETY: sixteen floats a panel of each row, borrowed.
        unsafe {
            K::multiply::<P, R>(simd, panels, block, RowsAt { start, stride: PANELS * LANES })
        };
        for (r, lanes) in lanes[..rows.len()].iter().enumerate() {
            // SAFETY: what there is of a row's outputs, which only this thread's panels have.
            unsafe {
                let to = to.add(r * width);
                to.copy_from_nonoverlapping(lanes.as_flattened().as_ptr(), outputs);
            }
        }
    }
}

/// What rows are arranged for, and by whom.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) simd: Simd,
    pub(super) scaling: Scaling,
    /// All threads of a pool, or this one alone.
    pub(super) pool: Option<&'a Pool>,
    pub(super) inputs: usize,
    /// Whether panels are near when the first rows meet them, or rows so many that it hardly counts.
    pub(super) near: bool,
}

/// Rows from which on panels are worth a copy.
const ENOUGH_TO_CROSS: usize = 32;

thread_local! {
    /// Room for panels that are crossed, kept from one matrix to the next.
    static CROSSED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Rows of activations, arranged in blocks in the order of the rows.
pub(super) struct Arranged {
    rows: usize,
    /// Whole blocks, then what is left.
    blocks: Vec<Box<dyn Met>>,
    /// What panels are copied by before they are met, where rows are many.
    cross: Option<Cross>,
}

impl Arranged {
    /// Arranges rows of activations for a family of kernels.
    pub(super) fn new<K: Family>(setting: Setting, x: &[f32]) -> Self {
        let rows = x.len() / setting.inputs;
        let blocks = |rows: usize, x: &[f32], first: bool| -> Box<dyn Met> {
            macro_rules! of {
                ($($r:literal)*) => {
                    match rows {
                        $($r => Box::new(Blocks::<K, $r>::of(setting, x, first)),)*
                        TILE_ROWS if const { K::TILED } => {
                            Box::new(Blocks::<K, TILE_ROWS>::of(setting, x, first))
                        }
                        rows => unreachable!("no block has {rows} rows"),
                    }
                };
            }
            of!(1 2 3 4 5 6 8 12)
        };
        let (first, most) =
            (K::rows_together(setting.simd, setting.near), K::rows_together(setting.simd, true));
        let mut rest = x;
        let mut taken = vec![];
        for (block, rows) in cut(rows, first, most) {
            let x;
            (x, rest) = rest.split_at(rows * setting.inputs);
            taken.push(blocks(block, x, taken.is_empty()));
        }
        let cross = K::cross(setting.simd).filter(|_| rows >= ENOUGH_TO_CROSS);
        Arranged { rows, blocks: taken, cross }
    }

    /// Panels' products with all rows, into `out [rows][width]`.
    pub(super) fn meet(&self, mut panels: Panels, out: &Disjoint<MaybeUninit<f32>>) {
        if let ([only], None) = (&self.blocks[..], self.cross) {
            only.meet(panels, 0..self.rows, out);
            return;
        }
        let mut room = CROSSED.take();
        // What is near is met by all blocks before the next comes.
        while let Some(mut some) = panels.next() {
            if let Some(cross) = self.cross {
                cross(some.simd, some.bytes, &mut room);
                some = Panels { bytes: &room, crossed: true, ..some };
            }
            let mut rows = 0..self.rows;
            for blocks in &self.blocks {
                rows = blocks.meet(some.clone(), rows, out);
            }
        }
        CROSSED.set(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_rows_and_few_of_zeros() {
        for (first, most, zeros) in
            [(FEW, FEW, 1), (MANY, MANY, 1), (MANY, 6, 1), (6, 6, 0), (TILE_ROWS, TILE_ROWS, 3)]
        {
            for rows in 0..100 {
                let blocks = cut(rows, first, most);
                let taken: usize = blocks.iter().map(|&(_, rows)| rows).sum();
                assert_eq!(taken, rows, "{blocks:?}");
                for (block, rows) in blocks {
                    assert!([1, 2, 3, 4, 5, 6, 8, 12, 16].contains(&block), "{block}");
                    let filled = rows.next_multiple_of(block) - rows;
                    assert!(filled <= zeros, "{rows} rows in blocks of {block}");
                }
            }
        }
    }
}
