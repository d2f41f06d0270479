//! The first seam: how a weight matrix is stored and multiplied.

use crate::embedding::Embedding;
use crate::error::{Error, Result};
use crate::kernels::{Isa, multiply_row, multiply_rows};
use crate::numerics::LANES;
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use std::sync::Arc;

/// What makes one row of two, in place of the first.
pub type Join<'a> = dyn Fn(&mut [f32], &[f32]) + Sync + 'a;

/// A weight matrix that can be applied to rows of activations.
///
/// Rung 01 has plain f32. Later rungs swap in narrower formats behind the same trait.
// ANCHOR: seam
pub trait Linear: Send + Sync {
    /// `x [rows, inputs]` → `[rows, outputs]`: each output the chain over ascending inputs.
    ///
    /// # Panics
    /// If `x` has another width than [`Linear::inputs`]; the model's construction rules that out.
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32>;
    /// As [`Linear::apply`], of two matrices of as many outputs, one after the other: `[rows, outputs / 2]` are what `join`
    /// makes in place of a part of the first one's row, given the same part of the second one's.
    ///
    /// # Panics
    /// As [`Linear::apply`], and if there is an odd number of outputs.
    fn apply_joined(&self, x: ArrayView2<f32>, join: &Join) -> Array2<f32> {
        assert!(self.outputs().is_multiple_of(2), "two matrices of as many outputs");
        let (rows, half) = (x.nrows(), self.outputs() / 2);
        let mut both = self.apply(x).into_raw_vec_and_offset().0;
        for row in 0..rows {
            let (first, second) = both[2 * row * half..][..2 * half].split_at_mut(half);
            join(first, second);
            both.copy_within(2 * row * half..(2 * row + 1) * half, row * half);
        }
        both.truncate(rows * half);
        Array2::from_shape_vec((rows, half), both).expect("half of the outputs")
    }
    /// Width of the rows it takes.
    fn inputs(&self) -> usize;
    /// Width of the rows it gives.
    fn outputs(&self) -> usize;
    /// Bytes that one pass over the weights reads.
    fn bytes(&self) -> usize;
}
// ANCHOR_END: seam

/// A plain f32 matrix in panels: `[outputs / 16][inputs][16 outputs]`.
///
/// One panel holds sixteen neighbouring outputs, `k` by `k`, so the inner loop reads memory
/// straight forward whether it has one row or a thousand.
pub struct DenseLinear {
    panels: Vec<[f32; LANES]>,
    inputs: usize,
    outputs: usize,
    isa: Isa,
}

/// Below this many multiply-adds, waking another thread costs more than it saves.
const SERIAL_WORK: usize = 1 << 16;

impl DenseLinear {
    /// Packs a row-major `[outputs][inputs]` matrix, the order of a checkpoint.
    ///
    /// # Errors
    /// If `weights` does not have `outputs × inputs` values, or there are to be none.
    pub fn new(weights: &[f32], outputs: usize, inputs: usize, isa: Isa) -> Result<Self> {
        let count = outputs.checked_mul(inputs).filter(|&count| count > 0);
        if count != Some(weights.len()) {
            return Err(Error::invalid(
                "weight count of a linear layer",
                weights.len(),
                format!("{outputs} outputs x {inputs} inputs, at least one of each"),
            ));
        }
        let mut panels = vec![[0.0; LANES]; outputs.div_ceil(LANES) * inputs];
        let rows = weights.par_chunks(LANES * inputs);
        panels.par_chunks_mut(inputs).zip(rows).for_each(|(panel, rows)| {
            for (lane, row) in rows.chunks_exact(inputs).enumerate() {
                panel.iter_mut().zip(row).for_each(|(lanes, &w)| lanes[lane] = w);
            }
        });
        Ok(DenseLinear { panels, inputs, outputs, isa })
    }

    /// One row: panels four at a time, so that four chains per lane are in flight.
    fn apply_row(&self, x: &[f32], first_panel: usize, out: &mut [[f32; LANES]]) {
        let panel = |p: usize| &self.panels[(first_panel + p) * self.inputs..][..self.inputs];
        let (fours, rest) = out.as_chunks_mut::<4>();
        for (i, four) in fours.iter_mut().enumerate() {
            let at = [0, 1, 2, 3].map(|p| panel(4 * i + p));
            multiply_row(self.isa, x, at, four);
        }
        for (i, lanes) in rest.iter_mut().enumerate() {
            let mut one = [[0.0; LANES]];
            multiply_row(self.isa, x, [panel(4 * fours.len() + i)], &mut one);
            *lanes = one[0];
        }
    }

    /// Many rows against one panel; `out` is `[rows][LANES]`.
    fn apply_panel(&self, tiles: &RowTiles, panel: usize, out: &mut [[f32; LANES]]) {
        let panel = &self.panels[panel * self.inputs..][..self.inputs];
        let (eights, last) = out.as_chunks_mut::<8>();
        let mut of_eight = tiles.eights.chunks_exact(self.inputs);
        for (sums, tile) in eights.iter_mut().zip(of_eight.by_ref()) {
            multiply_rows(self.isa, tile, panel, sums);
        }
        if let Some(tile) = of_eight.next() {
            let mut sums = [[0.0; LANES]; 8];
            multiply_rows(self.isa, tile, panel, &mut sums);
            last.copy_from_slice(&sums[..last.len()]);
        }
        for (row, lanes) in tiles.single.chunks_exact(self.inputs).zip(last) {
            let mut one = [[0.0; LANES]];
            multiply_row(self.isa, row, [panel], &mut one);
            *lanes = one[0];
        }
    }
}

/// Activations regrouped for the inner loop: eight rows side by side.
///
/// Of two to seven rows left over, eight are made with zeros: the weights are then read once for all of
/// them, which is what a draft to verify is run for. A single one stays as it is.
struct RowTiles {
    /// `[tiles][inputs]`, each entry one `k` of eight rows.
    eights: Vec<[f32; 8]>,
    /// `[rows % 8 == 1][inputs]`, as it was.
    single: Vec<f32>,
}

impl RowTiles {
    fn new(x: &[f32], width: usize) -> Self {
        let rows = x.len() / width;
        let (whole, over) = (rows / 8, rows % 8);
        let mut eights = vec![[0.0; 8]; (whole + usize::from(over > 1)) * width];
        for (block, tile) in x.chunks(8 * width).zip(eights.chunks_exact_mut(width)) {
            for (r, row) in block.chunks_exact(width).enumerate() {
                tile.iter_mut().zip(row).for_each(|(t, &v)| t[r] = v);
            }
        }
        let single = if over == 1 { x[whole * 8 * width..].to_vec() } else { Vec::new() };
        RowTiles { eights, single }
    }
}

impl Linear for DenseLinear {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let rows = x.nrows();
        assert_eq!(x.ncols(), self.inputs, "activations are as wide as the weights' inputs");
        let x = x.as_standard_layout();
        let x = x.as_slice().expect("standard layout is contiguous");
        let panels = self.outputs.div_ceil(LANES);
        // Sums come out panel by panel, `[panels][rows][LANES]`; threads share out the panels.
        let mut sums = vec![[0.0f32; LANES]; panels * rows];
        let threads = rayon::current_num_threads();
        let serial = threads == 1 || rows * self.inputs * self.outputs < SERIAL_WORK;
        let per_task = if serial { panels } else { panels.div_ceil(threads).next_multiple_of(4) };
        if rows == 1 {
            let task = |(i, out): (usize, &mut [[f32; LANES]])| {
                self.apply_row(x, i * per_task, out);
            };
            if serial {
                task((0, &mut sums));
            } else {
                sums.par_chunks_mut(per_task).enumerate().for_each(task);
            }
            let mut flat = sums.into_flattened();
            flat.truncate(self.outputs);
            return Array2::from_shape_vec((1, self.outputs), flat).expect("one row of outputs");
        }
        let tiles = RowTiles::new(x, self.inputs);
        let task = |(panel, out): (usize, &mut [[f32; LANES]])| {
            self.apply_panel(&tiles, panel, out);
        };
        if serial {
            sums.chunks_mut(rows.max(1)).enumerate().for_each(task);
        } else {
            sums.par_chunks_mut(rows.max(1)).enumerate().for_each(task);
        }
        // `[panels][rows][LANES]` → `[rows][outputs]`
        let mut out = vec![0.0; rows * self.outputs];
        let gather = |(row, out): (usize, &mut [f32])| {
            for (panel, out) in out.chunks_mut(LANES).enumerate() {
                out.copy_from_slice(&sums[panel * rows + row][..out.len()]);
            }
        };
        if serial {
            out.chunks_mut(self.outputs).enumerate().for_each(gather);
        } else {
            out.par_chunks_mut(self.outputs).enumerate().for_each(gather);
        }
        Array2::from_shape_vec((rows, self.outputs), out).expect("one value per output")
    }

    fn inputs(&self) -> usize {
        self.inputs
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn bytes(&self) -> usize {
        self.panels.len() * LANES * size_of::<f32>()
    }
}

/// A matrix that several hold: the table of embeddings, when it is the head as well.
impl<T: Linear + ?Sized> Linear for Arc<T> {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        T::apply(self, x)
    }

    fn inputs(&self) -> usize {
        T::inputs(self)
    }

    fn outputs(&self) -> usize {
        T::outputs(self)
    }

    fn bytes(&self) -> usize {
        T::bytes(self)
    }
}

impl Embedding for Arc<DenseLinear> {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        let mut rows = Array2::zeros((tokens.len(), self.inputs));
        for (mut row, &token) in rows.rows_mut().into_iter().zip(tokens) {
            assert!(token < self.outputs, "token {token} of {}", self.outputs);
            let panel = &self.panels[token / LANES * self.inputs..][..self.inputs];
            row.iter_mut().zip(panel).for_each(|(to, lanes)| *to = lanes[token % LANES]);
        }
        rows
    }
}
