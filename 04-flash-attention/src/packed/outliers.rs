//! LLM.int8() (Dettmers et al. 2022): a few columns of activations are far larger than all others, and
//! one scale for a row leaves the others no steps. Those columns, and the weights that meet them, are
//! kept in 16 bits; all else is INT8 with a scale for each row and each output.
//!
//! The paper finds the columns anew in every batch, so that a row's outputs depend on its neighbours.
//! Here they are found once, on a text to calibrate with: it is the same few, layer after layer (its
//! section 4).

use super::calibration::{InOrder, Seen};
use super::format::Format;
use super::linear::PackedLinear;
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{Isa, Linear, Packing, Result};
use ndarray::{Array2, ArrayView2, Axis};
use std::sync::Arc;

/// An activation this large makes its column an outlier (section 3.2 of the paper).
pub const THRESHOLD: f32 = 6.0;

// ANCHOR: split
/// A matrix in two parts: outlier columns in 16 bits, the others in eight.
pub struct OutlierSplit {
    columns: Vec<usize>,
    /// `[outputs][columns]`, none if there are no such columns.
    outliers: Option<PackedLinear>,
    /// `[outputs][inputs]`, zeros where the outliers are.
    others: PackedLinear,
}

impl OutlierSplit {
    /// Splits a row-major `[outputs][inputs]` matrix.
    ///
    /// # Errors
    /// If the weights are not so many, there is no memory for them, or one is too large for its half of the matrix.
    ///
    /// # Panics
    /// If a column is past the last, or `memory` is not for the pool's threads.
    pub fn new(
        mut weights: Vec<f32>,
        outputs: usize,
        inputs: usize,
        columns: Vec<usize>,
        simd: Simd,
        pool: &Arc<Pool>,
        memory: &Memory,
    ) -> Result<Self> {
        let count = columns.len();
        let mut apart = Vec::with_capacity(outputs * count);
        for row in weights.chunks_exact_mut(inputs.max(1)) {
            apart.extend(columns.iter().map(|&column| std::mem::take(&mut row[column])));
        }
        let others = PackedLinear::vector_wise(&weights, outputs, inputs, simd, pool, memory)?;
        let pack =
            || PackedLinear::from_floats(Format::F16, &apart, outputs, count, simd, pool, memory);
        let outliers = if count == 0 { None } else { Some(pack()?) };
        Ok(OutlierSplit { columns, outliers, others })
    }
}

impl Linear for OutlierSplit {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let Some(outliers) = &self.outliers else { return self.others.apply(x) };
        let mut rest = x.to_owned();
        for &column in &self.columns {
            rest.column_mut(column).fill(0.0);
        }
        self.others.apply(rest.view()) + outliers.apply(x.select(Axis(1), &self.columns).view())
    }
    // ANCHOR_END: split

    fn inputs(&self) -> usize {
        self.others.inputs()
    }

    fn outputs(&self) -> usize {
        self.others.outputs()
    }

    fn bytes(&self) -> usize {
        self.others.bytes() + self.outliers.as_ref().map_or(0, Linear::bytes)
    }
}

/// Packs a model's matrices as [`OutlierSplit`]: columns whose activations reached `threshold` are outliers. What
/// was `seen` is of as many matrices, in the same order.
pub fn outlier_packer(
    seen: &[Seen],
    threshold: f32,
    isa: Isa,
    pool: &Arc<Pool>,
) -> impl Packing + use<> {
    let columns = seen.iter().map(|seen| seen.columns(threshold)).collect();
    let (simd, pool, memory) = (Simd::within(isa), pool.clone(), Memory::new(pool.threads()));
    InOrder::new(columns, move |weights: Vec<f32>, outputs, inputs, columns: &Vec<usize>| {
        let columns = columns.clone();
        OutlierSplit::new(weights, outputs, inputs, columns, simd, &pool, &memory)
    })
}
