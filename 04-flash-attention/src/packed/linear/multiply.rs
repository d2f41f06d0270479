//! A packed matrix behind rung 01's seam: who multiplies which rows by which panels.

use super::super::arranged::{Arranged, Panels, Setting, TOGETHER};
use super::super::format::Format;
use super::super::rows::{Digits, Family, Floats, Integers, Pairs};
use super::PackedLinear;
use crate::kernels::float_panels::{Brain, Eighth, Half, Single};
use crate::kernels::integer_tiles::{Bytes, Nibbles, NibblesAbove};
use crate::kernels::{MANY, TILE_ROWS, memory_sends_several};
use crate::threads::{Disjoint, ahead};
use naive_decode::numerics::LANES;
use naive_decode::{Join, Linear};
use ndarray::{Array2, ArrayView2};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Bytes of activations that a core keeps near while all panels pass: a part of its second cache, which has 1 MB and
/// more on processors of servers.
const NEAR_BYTES: usize = 256 << 10;

/// Bytes of all of a model's weights that a processor's last cache has room for, as likely as not.
const LAST_CACHE: usize = 32 << 20;

/// Panels of either matrix whose products are joined while they are near.
const JOINED: usize = 8;

/// Runs `$code` with the family of kernels `$K` for a format.
macro_rules! by_family {
    ($format:expr, $K:ident => $code:expr) => {
        by_family!(@ $format, $K => $code,
            F32 Floats<Single>, F16 Floats<Half>, Bf16 Floats<Brain>, Bf16Fast Pairs, Fp8 Floats<Eighth>, Int8 Digits,
            Q8_0 Integers<Bytes>, Q4_0 Integers<Nibbles>, Q4_1 Integers<NibblesAbove>)
    };
    (@ $format:expr, $K:ident => $code:expr, $($name:ident $family:ty),*) => {
        match $format {
            $(Format::$name => {
                type $K = $family;
                $code
            })*
        }
    };
}

/// Rows that are whole blocks of [`MANY`], and whole pairs of tiles.
const WHOLE_TILES: usize = 96;

impl Linear for PackedLinear {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        assert_eq!(x.ncols(), self.inputs, "activations are as wide as the weights' inputs");
        let rows = x.nrows();
        let x = x.as_standard_layout();
        let x = x.as_slice().expect("standard layout is contiguous");
        let out = by_family!(self.format, K => self.multiply::<K>(x));
        Array2::from_shape_vec((rows, self.outputs), out).expect("one value per output")
    }

    fn apply_joined(&self, x: ArrayView2<f32>, join: &Join) -> Array2<f32> {
        assert_eq!(x.ncols(), self.inputs, "activations are as wide as the weights' inputs");
        let (rows, half) = (x.nrows(), self.outputs / 2);
        assert_eq!(self.outputs, 2 * half, "two matrices of as many outputs");
        let x = x.as_standard_layout();
        let out = match self.pool.shares_rows(rows, self.bytes()) && half.is_multiple_of(LANES) {
            true => {
                let x = x.as_slice().expect("standard layout is contiguous");
                by_family!(self.format, K => self.multiply_joined::<K>(x, join))
            }
            false => {
                let both = self.apply(x.view());
                let both = both.as_slice().expect("contiguous");
                let [joined] = self.pool.make_rows(rows, [half], MANY, &|mine, [joined]| {
                    let both = &both[2 * mine.start * half..2 * mine.end * half];
                    for both in both.chunks_exact(2 * half) {
                        let (first, second) = both.split_at(half);
                        join(joined.add(first), second);
                    }
                });
                joined
            }
        };
        Array2::from_shape_vec((rows, half), out).expect("one value for two outputs")
    }

    fn inputs(&self) -> usize {
        self.inputs
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn bytes(&self) -> usize {
        self.shares.iter().map(|share| share.bytes().len()).sum()
    }
}

impl PackedLinear {
    fn multiply<K: Family>(&self, x: &[f32]) -> Vec<f32> {
        let rows = x.len() / self.inputs;
        let numbers = rows * self.outputs;
        // Not filled with zeros: that would take as long as writing the products does.
        let mut out = Vec::with_capacity(numbers);
        let to = &mut out.spare_capacity_mut()[..numbers];
        match self.pool.shares_rows(rows, self.bytes()) {
            true => self.share_rows::<K>(x, to),
            false => {
                let to = Disjoint::new(to);
                let near = K::CHAINED
                    && (self.shares[0].together() <= LAST_CACHE || memory_sends_several());
                let arranged = |pool| Arranged::new::<K>(Setting { pool, ..self.alone(near) }, x);
                let together = (x.len() >= TOGETHER).then(|| arranged(Some(&*self.pool)));
                self.pool.run(&|thread| {
                    match &together {
                        Some(x) => self.multiply_share(thread, x, &to),
                        None => self.multiply_share(thread, &arranged(None), &to),
                    }
                    ahead::goes_on_at(self.shares[thread].bytes().as_ptr_range().end);
                });
            }
        }
        // SAFETY: blocks cover all rows, threads' panels all outputs, and every panel writes its outputs of
        // every row.
        unsafe { out.set_len(numbers) };
        out
    }

    /// One thread's setting.
    fn alone(&self, near: bool) -> Setting<'_> {
        let &PackedLinear { simd, scaling, inputs, .. } = self;
        Setting { simd, scaling, pool: None, inputs, near }
    }

    // ANCHOR: share_rows
    /// Each thread takes rows of its own through all panels, and no thread waits for what another has in its cache.
    /// The weights are read by every thread, once for as many rows as its cache holds.
    fn share_rows<K: Family>(&self, x: &[f32], out: &mut [MaybeUninit<f32>]) {
        self.pool.run_rows(out, self.outputs, self.rows_together::<K>(), &|mine, out| {
            let (x, out) =
                (&x[mine.start * self.inputs..mine.end * self.inputs], Disjoint::new(out));
            let x = Arranged::new::<K>(self.alone(true), x);
            (0..self.shares.len()).for_each(|of| self.multiply_share(of, &x, &out));
        });
    }
    // ANCHOR_END: share_rows

    /// Rows that a thread takes through all panels together.
    fn rows_together<K: Family>(&self) -> usize {
        let block_bytes = K::pieces(self.inputs) * size_of::<K::Piece<MANY>>();
        let near = NEAR_BYTES / block_bytes * MANY;
        let whole = if K::rows_together(self.simd, true) == TILE_ROWS { WHOLE_TILES } else { MANY };
        (near / whole * whole).max(whole)
    }

    fn multiply_joined<K: Family>(&self, x: &[f32], join: &Join) -> Vec<f32> {
        let numbers = x.len() / self.inputs * (self.outputs / 2);
        let mut out = Vec::with_capacity(numbers);
        self.share_rows_joined::<K>(x, &mut out.spare_capacity_mut()[..numbers], join);
        // SAFETY: all rows of all halves have been written.
        unsafe { out.set_len(numbers) };
        out
    }

    /// As [`PackedLinear::share_rows`], of two matrices one after the other: of each row, `join` makes one half of both.
    fn share_rows_joined<K: Family>(&self, x: &[f32], out: &mut [MaybeUninit<f32>], join: &Join) {
        let half = self.outputs / 2;
        self.pool.run_rows(out, half, self.rows_together::<K>(), &|mine, out| {
            let x = &x[mine.start * self.inputs..mine.end * self.inputs];
            let x = Arranged::new::<K>(self.alone(true), x);
            let out = Disjoint::new(out);
            let mut second = Vec::with_capacity(mine.len() * JOINED * LANES);
            for first in (0..half).step_by(JOINED * LANES) {
                let own = first..half.min(first + JOINED * LANES);
                let room = &mut second.spare_capacity_mut()[..mine.len() * own.len()];
                self.multiply_outputs(own.clone(), &x, (&out, half), first);
                let others = half + own.start..half + own.end;
                self.multiply_outputs(others, &x, (&Disjoint::new(&mut *room), own.len()), 0);
                for (row, second) in room.chunks_exact_mut(own.len()).enumerate() {
                    let at = row * half + first;
                    // SAFETY: both have just been written, and only this thread has these rows.
                    unsafe { join(written(out.part(at..at + own.len())), written(second)) };
                }
            }
        });
    }

    /// Some outputs, whole panels of them, into columns from `at` on of `out [rows][width]`.
    fn multiply_outputs(
        &self,
        outputs: Range<usize>,
        x: &Arranged,
        (out, width): (&Disjoint<MaybeUninit<f32>>, usize),
        at: usize,
    ) {
        let each = self.format.panel_bytes(self.inputs);
        let (first, end) = (outputs.start / LANES, outputs.end / LANES);
        for (of, share) in self.shares.iter().enumerate() {
            let panels = self.panels_of(of);
            let own = first.max(panels.start)..end.min(panels.end);
            if !own.is_empty() {
                let bytes = &share.bytes()[(own.start - panels.start) * each..][..own.len() * each];
                let at = at + (own.start - first) * LANES;
                let outputs = at..at + own.len() * LANES;
                x.meet(
                    Panels { simd: self.simd, bytes, each, outputs, width, crossed: false },
                    out,
                );
            }
        }
    }

    /// The panels of thread `of` against rows, into `out [rows][outputs]`.
    fn multiply_share(&self, of: usize, x: &Arranged, out: &Disjoint<MaybeUninit<f32>>) {
        let panels = self.panels_of(of);
        let panels = Panels {
            simd: self.simd,
            bytes: self.shares[of].bytes(),
            each: self.format.panel_bytes(self.inputs),
            outputs: panels.start * LANES..self.outputs.min(panels.end * LANES),
            width: self.outputs,
            crossed: false,
        };
        x.meet(panels, out);
    }
}

/// Numbers that have been written.
///
/// # Safety
/// They have.
unsafe fn written(numbers: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    // SAFETY: the caller's condition; a number that is written is as it is otherwise.
    unsafe { &mut *(std::ptr::from_mut(numbers) as *mut [f32]) }
}

#[cfg(test)]
mod tests;
