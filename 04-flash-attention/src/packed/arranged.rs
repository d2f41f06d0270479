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
    /// Pieces of all blocks.
    fn count(&self) -> usize;

    /// What arranges pieces of the activations `x`, a range at a time and by whatever thread.
    ///
    /// # Safety
    /// No two ranges may overlap.
    unsafe fn arranging<'a>(&'a mut self, setting: Setting<'a>, x: &'a [f32])
    -> Box<Arranging<'a>>;

    /// Says that they all are there.
    ///
    /// # Safety
    /// All of them have been arranged.
    unsafe fn are_arranged(&mut self);

    /// Panels against blocks that have the first of some rows; `out` is `[rows][width]`. Gives the rows that are left.
    fn meet(
        &self,
        panels: Panels,
        rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize>;
}

/// Arranges pieces, counted through all blocks.
type Arranging<'a> = dyn Fn(Range<usize>) + Sync + 'a;

/// Blocks of `R` rows, the last of which may be filled up with rows of zeros: `[blocks][pieces]`.
struct Blocks<K: Family, const R: usize> {
    pieces: Vec<K::Piece<R>>,
    /// Pieces of all blocks.
    count: usize,
    /// Pieces to a block.
    each: usize,
    /// Whether the first of them is the first to meet panels.
    first: bool,
    /// Whether panels count as near even then.
    near: bool,
}

impl<K: Family, const R: usize> Blocks<K, R> {
    /// Rows of activations, of which the last block may want some. Where a pool is to arrange them, there is only room yet.
    fn of(setting: Setting, x: &[f32], first: bool) -> Self {
        let each = K::pieces(setting.inputs);
        let count = x.len().div_ceil(R * setting.inputs) * each;
        let near = setting.near;
        let mut blocks = Blocks { pieces: Vec::with_capacity(count), count, each, first, near };
        if setting.pool.is_none() {
            // SAFETY: nobody else has any of them, and then all are there.
            unsafe {
                arrange::<K, R>(setting, x, &blocks.room(), 0..count);
                blocks.are_arranged();
            }
        }
        blocks
    }

    /// What is to be arranged, and how many of it there are to a block.
    fn room(&mut self) -> (Disjoint<'_, MaybeUninit<K::Piece<R>>>, usize) {
        (Disjoint::new(&mut self.pieces.spare_capacity_mut()[..self.count]), self.each)
    }
}

/// Arranges all rows in one region: each thread as many as the others, neighbours as far as can be, as likely as not rows
/// that it has just made and has near.
fn arrange_together(
    pool: &Pool,
    setting: Setting,
    mut x: &[f32],
    cuts: &[(usize, usize)],
    blocks: &mut [Box<dyn Met>],
) {
    let (mut parts, mut end) = (Vec::with_capacity(blocks.len()), 0);
    for (blocks, &(rows, in_all)) in blocks.iter_mut().zip(cuts) {
        let (own, others) = x.split_at(in_all * setting.inputs);
        x = others;
        let start = end;
        end += blocks.count() * rows;
        // SAFETY: threads' shares do not overlap, and neither do the pieces that begin in them.
        parts.push((start..end, rows, unsafe { blocks.arranging(setting, own) }));
    }
    pool.run(&|thread| {
        let mine = share(end, pool.threads(), thread);
        for (pieces, rows, arrange) in &parts {
            let [first, last] = [mine.start, mine.end]
                .map(|at| (at.clamp(pieces.start, pieces.end) - pieces.start).div_ceil(*rows));
            arrange(first..last);
        }
    });
    drop(parts);
    // SAFETY: each piece begins in one thread's share.
    blocks.iter_mut().for_each(|blocks| unsafe { blocks.are_arranged() });
}

/// Arranges some pieces of blocks of `R` rows that have `each` of them, in their room.
///
/// # Safety
/// Nobody else reads or writes these meanwhile.
unsafe fn arrange<K: Family, const R: usize>(
    Setting { simd, scaling, inputs, .. }: Setting,
    x: &[f32],
    (room, each): &(Disjoint<MaybeUninit<K::Piece<R>>>, usize),
    pieces: Range<usize>,
) {
    for (i, x) in x.chunks(R * inputs).enumerate() {
        let first = i * each;
        let [start, end] = [pieces.start, pieces.end].map(|at| at.clamp(first, first + each));
        if start == end {
            continue;
        }
        // SAFETY: the caller's condition.
        let to = unsafe { room.part(start..end) };
        match x.len() == R * inputs {
            true => K::arrange::<R>(simd, scaling, x, inputs, start - first, to),
            false => {
                let mut whole = x.to_vec();
                whole.resize(R * inputs, 0.0);
                K::arrange::<R>(simd, scaling, &whole, inputs, start - first, to);
            }
        }
    }
}

impl<K: Family, const R: usize> Met for Blocks<K, R> {
    fn count(&self) -> usize {
        self.count
    }

    unsafe fn arranging<'a>(
        &'a mut self,
        setting: Setting<'a>,
        x: &'a [f32],
    ) -> Box<Arranging<'a>> {
        let room = self.room();
        // SAFETY: the caller's condition.
        Box::new(move |pieces| unsafe { arrange::<K, R>(setting, x, &room, pieces) })
    }

    unsafe fn are_arranged(&mut self) {
        // SAFETY: the caller's condition.
        unsafe { self.pieces.set_len(self.count) };
    }

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
        let cuts = cut(rows, first, most);
        let (mut rest, mut taken) = (x, Vec::with_capacity(cuts.len()));
        for &(block, rows) in &cuts {
            let x;
            (x, rest) = rest.split_at(rows * setting.inputs);
            taken.push(blocks(block, x, taken.is_empty()));
        }
        if let Some(pool) = setting.pool {
            arrange_together(pool, setting, x, &cuts, &mut taken);
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
