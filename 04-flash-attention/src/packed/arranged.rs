//! Rows of activations in blocks: as many together as a kernel takes, and what is left over in one or two blocks more.

mod blocks;

use super::rows::{Cross, Family};
use crate::kernels::activations::Scaling;
use crate::kernels::{MANY, Simd, TILE_ROWS};
use crate::threads::{Disjoint, Pool, share};
use blocks::{Blocks, Met, PANELS};
use naive_decode::numerics::LANES;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

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
    use crate::kernels::FEW;

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
