//! Blocks of as many rows as a kernel takes: how they are filled, and how panels meet them.

use super::super::rows::Family;
use super::{Panels, Setting};
use crate::kernels::{FEW, MANY, PanelsAt, Products, RowsAt};
use crate::threads::Disjoint;
use naive_decode::numerics::LANES;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Blocks of some number of rows each, whatever number it is.
pub(super) trait Met: Send + Sync {
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
pub(super) type Arranging<'a> = dyn Fn(Range<usize>) + Sync + 'a;

/// Blocks of `R` rows, the last of which may be filled up with rows of zeros: `[blocks][pieces]`.
pub(super) struct Blocks<K: Family, const R: usize> {
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
    pub(super) fn of(setting: Setting, x: &[f32], first: bool) -> Self {
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
pub(super) const PANELS: usize = 4;

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
