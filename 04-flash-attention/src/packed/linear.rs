//! A packed matrix behind rung 01's seam.

use super::arranged::{Arranged, MANY, Panels, Setting, TOGETHER};
use super::encode::encode_with_one_scale;
use super::format::{Format, Rows};
use super::memory::{Block, Memory};
use super::rows::{Digits, Family, Floats, Integers, Pairs, panels_of};
use crate::kernels::activations::Scaling;
use crate::kernels::float_panels::{Brain, Eighth, Half, Single};
use crate::kernels::integer_tiles::{Bytes, Nibbles, NibblesAbove};
use crate::kernels::{Simd, TILE_ROWS};
use crate::threads::{Disjoint, Pool, ahead};
use naive_decode::numerics::LANES;
use naive_decode::{Error, Join, Linear, Result};
use ndarray::{Array2, ArrayView2};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

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

/// A matrix in panels of sixteen outputs, each thread's in its own stretch of memory.
pub struct PackedLinear {
    format: Format,
    inputs: usize,
    outputs: usize,
    scaling: Scaling,
    simd: Simd,
    pool: Arc<Pool>,
    /// One for each thread of the pool: its panels, one after another.
    shares: Arc<[Block]>,
}

impl PackedLinear {
    /// Packs rows as they are stored.
    ///
    /// # Errors
    /// If there is no memory for them.
    ///
    /// # Panics
    /// If `memory` is for another number of threads than `pool` has.
    pub fn from_rows(rows: &Rows, simd: Simd, pool: &Arc<Pool>, memory: &Memory) -> Result<Self> {
        let row_bytes = rows.format.row_bytes(rows.inputs);
        let row = |output: usize, copy: &mut [u8]| {
            copy.copy_from_slice(&rows.bytes[output * row_bytes..][..row_bytes]);
        };
        Self::pack(rows.format, rows.outputs, rows.inputs, simd, pool, memory, &row)
    }

    /// Packs a row-major `[outputs][inputs]` matrix of floats in the format given.
    ///
    /// # Errors
    /// If the weights are not so many, or there is no memory for them.
    ///
    /// # Panics
    /// As [`PackedLinear::from_rows`].
    pub fn from_floats(
        format: Format,
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        check_count(weights.len(), outputs, inputs)?;
        let row = |output: usize, copy: &mut [u8]| {
            format.encode(&weights[output * inputs..][..inputs], copy);
        };
        Self::pack(format, outputs, inputs, simd, pool, memory, &row)
    }

    /// Packs a row-major `[outputs][inputs]` matrix as LLM.int8() has it ("vector-wise", Dettmers et al.
    /// 2022, section 3.1): INT8 with one scale for each output, and activations with one for each row.
    ///
    /// # Errors
    /// As [`PackedLinear::from_floats`].
    ///
    /// # Panics
    /// As [`PackedLinear::from_rows`].
    pub fn vector_wise(
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        check_count(weights.len(), outputs, inputs)?;
        let row = |output: usize, copy: &mut [u8]| {
            encode_with_one_scale(&weights[output * inputs..][..inputs], copy);
        };
        let packed = Self::pack(Format::Q8_0, outputs, inputs, simd, pool, memory, &row)?;
        Ok(PackedLinear { scaling: Scaling::Row, ..packed })
    }

    /// Packs whatever rows `row` gives, each thread its own.
    fn pack(
        format: Format,
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
        row: &(dyn Fn(usize, &mut [u8]) + Sync),
    ) -> Result<Self> {
        let panel_bytes = format.panel_bytes(inputs);
        let threads = pool.threads();
        let take =
            |thread| memory.take(thread, panels_of(outputs, threads, thread).len() * panel_bytes);
        let mut shares = (0..threads).map(take).collect::<Result<Vec<Block>>>()?;
        pool.run_chunks(&mut shares, 1, &|thread, shares| {
            let mut copy = vec![0; format.row_bytes(inputs)];
            let panels = panels_of(outputs, threads, thread);
            for (panel, bytes) in panels.zip(shares[0].bytes_mut().chunks_exact_mut(panel_bytes)) {
                let rows = panel * LANES..outputs.min((panel + 1) * LANES);
                if rows.len() < LANES {
                    format.clear(bytes);
                }
                for (lane, output) in rows.enumerate() {
                    row(output, &mut copy);
                    format.put(&copy, lane, bytes);
                }
            }
        });
        Ok(Self::from_shares(format, outputs, inputs, simd, pool, shares.into()))
    }

    /// A matrix that was packed before: each thread's panels, which are [`share_bytes`] long.
    pub(super) fn from_shares(
        format: Format,
        outputs: usize,
        inputs: usize,
        simd: Simd,
        pool: &Arc<Pool>,
        shares: Arc<[Block]>,
    ) -> Self {
        let scaling = Scaling::Group;
        PackedLinear { format, scaling, inputs, outputs, simd, pool: pool.clone(), shares }
    }

    /// Each thread's panels, for whoever keeps them.
    pub(super) fn shares(&self) -> &Arc<[Block]> {
        &self.shares
    }

    /// What the weights are stored as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The weights of one output as they are stored.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn stored_row(&self, output: usize) -> Vec<u8> {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        let (panel, lane) = (output / LANES, output % LANES);
        let thread = (0..self.shares.len())
            .find(|&thread| self.panels_of(thread).contains(&panel))
            .expect("every panel is somebody's");
        let bytes = self.format.panel_bytes(self.inputs);
        let panel =
            &self.shares[thread].bytes()[(panel - self.panels_of(thread).start) * bytes..][..bytes];
        let mut row = vec![0; self.format.row_bytes(self.inputs)];
        self.format.take(panel, lane, &mut row);
        row
    }

    /// The weights of one output.
    ///
    /// # Panics
    /// If there is no such output, or `to` is not as long as there are inputs.
    pub fn row(&self, output: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.inputs, "a weight for each input");
        self.format.decode(&self.stored_row(output), to);
    }

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
                let near = K::CHAINED && self.shares[0].together() <= LAST_CACHE;
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

    fn panels_of(&self, thread: usize) -> Range<usize> {
        panels_of(self.outputs, self.shares.len(), thread)
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

/// Bytes of a thread's panels of a matrix; none if no machine has so many.
pub(super) fn share_bytes(
    format: Format,
    outputs: usize,
    inputs: usize,
    threads: usize,
    thread: usize,
) -> Option<usize> {
    panels_of(outputs, threads, thread).len().checked_mul(format.panel_bytes(inputs))
}

fn check_count(weights: usize, outputs: usize, inputs: usize) -> Result<()> {
    if weights != outputs * inputs || inputs == 0 {
        let expected = format!("{outputs} outputs x {inputs} inputs");
        return Err(Error::invalid("weight count of a linear layer", weights, expected));
    }
    Ok(())
}

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

#[cfg(test)]
mod tests;
