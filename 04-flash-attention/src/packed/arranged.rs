//! Rows of activations in blocks: as many together as a kernel takes, and what is left over in one or two blocks more.

use super::rows::Family;
use crate::kernels::activations::Scaling;
use crate::kernels::{Products, RowsAt, Simd, TILE_ROWS};
use crate::threads::{Disjoint, Pool, share};
use naive_decode::numerics::LANES;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows that a kernel takes together where there are enough registers.
pub(crate) const MANY: usize = 12;

/// Where there are fewer.
pub(crate) const FEW: usize = 4;

/// From this many activations on, threads arrange them together. Fewer are arranged by each thread for itself, which is
/// done sooner than one of them could hand them to the others.
pub(super) const TOGETHER: usize = 1 << 14;

/// How many rows are taken by whole blocks of `most` rows, and the blocks that what is left makes; 0 for none.
///
/// A block of every size would be a kernel for every size. One row of zeros costs less than that; two or three cost more
/// than a second block, except in tiles.
fn cut(rows: usize, most: usize) -> (usize, [usize; 2]) {
    let left = rows % most;
    let blocks = match left {
        // In tiles rows of zeros cost nothing, and a second block all weights once more.
        9.. if most == TILE_ROWS => [left.next_multiple_of(4), 0],
        9 | 10 => [5, left - 5],
        7 | 11 => [left + 1, 0],
        _ => [left, 0],
    };
    (rows - left, blocks)
}

/// Neighbouring panels of a matrix.
#[derive(Clone)]
pub(super) struct Panels<'a> {
    pub(super) simd: Simd,
    /// One after another, of `each` bytes.
    pub(super) bytes: &'a [u8],
    pub(super) each: usize,
    pub(super) outputs: Range<usize>,
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
}

impl<K: Family, const R: usize> Blocks<K, R> {
    /// Arranges rows of `inputs` activations, on all threads of a pool or on this one.
    fn of(simd: Simd, scaling: Scaling, pool: Option<&Pool>, x: &[f32], inputs: usize) -> Self {
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
        Blocks { pieces, each }
    }
}

impl<K: Family, const R: usize> Met for Blocks<K, R> {
    fn meet(
        &self,
        panels: Panels,
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
        match panels.simd.rows_together() {
            MANY => match const { beside(K::BESIDE, R, MANY) } {
                4 => self.meet_by::<4>(panels, rows, out),
                2 => self.meet_by::<2>(panels, rows, out),
                _ => self.meet_by::<1>(panels, rows, out),
            },
            _ => match const { beside(K::BESIDE, R, FEW) } {
                4 => self.meet_by::<4>(panels, rows, out),
                2 => self.meet_by::<2>(panels, rows, out),
                _ => self.meet_by::<1>(panels, rows, out),
            },
        }
    }
}

/// Panels that one call takes, one after another or side by side: a call takes as long as a good part of a short panel.
const PANELS: usize = 4;

/// Panels side by side for so many rows: for fewer than fill the waits of their chains, as far as there are registers. Those
/// are as many as `sums` rows of one panel need.
const fn beside(most: usize, rows: usize, sums: usize) -> usize {
    let mut panels = if rows < FEW { most } else { 1 };
    while panels > 1 && panels * rows > sums {
        panels /= 2;
    }
    panels
}

impl<K: Family, const R: usize> Blocks<K, R> {
    /// All panels, `P` side by side, against all blocks.
    fn meet_by<const P: usize>(
        &self,
        mut panels: Panels,
        rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize> {
        let mut left = rows.clone();
        while let Some(some) = panels.take(PANELS) {
            left = self.multiply::<PANELS, P>(&some, rows.clone(), out);
        }
        while let Some(one) = panels.take(1) {
            left = self.multiply::<1, 1>(&one, rows.clone(), out);
        }
        left
    }

    /// `N` panels, `P` side by side, against all blocks.
    fn multiply<const N: usize, const P: usize>(
        &self,
        panels: &Panels,
        mut rows: Range<usize>,
        out: &Disjoint<MaybeUninit<f32>>,
    ) -> Range<usize> {
        let mut pieces = &self.pieces[..];
        while let Some((block, others)) = pieces.split_at_checked(self.each) {
            let own = rows.start..rows.end.min(rows.start + R);
            (rows.start, pieces) = (own.end, others);
            multiply_block::<K, N, P, R>(panels, block, own, out);
        }
        rows
    }
}

/// `N` panels, `P` side by side, against one block of `R` rows: those of `rows`, and zeros.
fn multiply_block<K: Family, const N: usize, const P: usize, const R: usize>(
    panels: &Panels,
    block: &[K::Piece<R>],
    rows: Range<usize>,
    out: &Disjoint<MaybeUninit<f32>>,
) {
    let &Panels { simd, bytes, width, .. } = panels;
    let (outputs, to) = (panels.outputs.len(), panels.within(&rows, out));
    if outputs == N * LANES && rows.len() == R {
        let to = RowsAt { start: to, stride: width };
        // SAFETY: sixteen floats a panel of each row, which only this thread's panels have.
        unsafe { K::multiply::<P, R>(simd, bytes, block, to) };
    } else {
        let mut lanes = [[[0.0f32; LANES]; N]; R];
        let start = lanes.as_flattened_mut().as_flattened_mut().as_mut_ptr();
        // SAFETY: sixteen floats a panel of each row, borrowed.
        unsafe { K::multiply::<P, R>(simd, bytes, block, RowsAt { start, stride: N * LANES }) };
        for (r, lanes) in lanes[..rows.len()].iter().enumerate() {
            // SAFETY: what there is of a row's outputs, which only this thread's panels have.
            unsafe {
                let to = to.add(r * width);
                to.copy_from_nonoverlapping(lanes.as_flattened().as_ptr(), outputs);
            }
        }
    }
}

/// Rows of activations, arranged in blocks in the order of the rows.
pub(super) struct Arranged {
    rows: usize,
    /// Whole blocks, then what is left.
    blocks: Vec<Box<dyn Met>>,
}

impl Arranged {
    /// Arranges rows of `inputs` activations for a family of kernels, on all threads of a pool or on this one.
    pub(super) fn new<K: Family>(
        simd: Simd,
        scaling: Scaling,
        pool: Option<&Pool>,
        x: &[f32],
        inputs: usize,
    ) -> Self {
        let (rows, most) = (x.len() / inputs, K::rows_together(simd));
        let blocks = |rows: usize, x: &[f32]| -> Box<dyn Met> {
            macro_rules! of {
                ($($r:literal)*) => {
                    match rows {
                        $($r => Box::new(Blocks::<K, $r>::of(simd, scaling, pool, x, inputs)),)*
                        TILE_ROWS if const { K::TILED } => {
                            Box::new(Blocks::<K, TILE_ROWS>::of(simd, scaling, pool, x, inputs))
                        }
                        rows => unreachable!("no block has {rows} rows"),
                    }
                };
            }
            of!(1 2 3 4 5 6 8 12)
        };
        let (whole, left) = cut(rows, most);
        let mut rest = x;
        let mut take = |rows: usize| {
            let (taken, others) = rest.split_at(rest.len().min(rows * inputs));
            rest = others;
            taken
        };
        let parts = [(most, take(whole)), (left[0], take(left[0])), (left[1], take(left[1]))];
        let parts = parts.into_iter().filter(|(_, x)| !x.is_empty());
        Arranged { rows, blocks: parts.map(|(rows, x)| blocks(rows, x)).collect() }
    }

    /// Panels' products with all rows, into `out [rows][width]`.
    pub(super) fn meet(&self, mut panels: Panels, out: &Disjoint<MaybeUninit<f32>>) {
        if let [only] = &self.blocks[..] {
            only.meet(panels, 0..self.rows, out);
            return;
        }
        // What is near is met by all blocks before the next comes.
        while let Some(some) = panels.take(PANELS).or_else(|| panels.take(1)) {
            let mut rows = 0..self.rows;
            for blocks in &self.blocks {
                rows = blocks.meet(some.clone(), rows, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_all_rows_and_few_of_zeros() {
        for (most, zeros) in [(FEW, 1), (MANY, 1), (TILE_ROWS, 3)] {
            for rows in 0..100 {
                let (whole, left) = cut(rows, most);
                let held = whole + left[0] + left[1];
                assert!((rows..=rows + zeros).contains(&held), "{rows} rows: {held}");
                assert!(whole.is_multiple_of(most));
                assert!(left.iter().all(|left| [0, 1, 2, 3, 4, 5, 6, 8, 12, 16].contains(left)));
            }
        }
    }
}
