//! LLM.int8() (Dettmers et al. 2022): a few columns of activations are far larger than all others, and
//! one scale for a row leaves the others no steps. Those columns, and the weights that meet them, are
//! kept in 16 bits; all else is INT8 with a scale for each row and each output.
//!
//! The paper finds the columns anew in every batch, so that a row's outputs depend on its neighbours.
//! Here they are found once, on a text to calibrate with: it is the same few, layer after layer (its
//! section 4).

use super::format::Format;
use super::linear::PackedLinear;
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{DenseLinear, Isa, Linear, Packing, Result};
use ndarray::{Array2, ArrayView2, Axis};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};

/// An activation this large makes its column an outlier (section 3.2 of the paper).
pub const THRESHOLD: f32 = 6.0;

/// Finds the columns. Assemble the model with this, run a text through it, ask.
pub struct Calibration {
    isa: Isa,
    /// For each matrix in the order of packing, the largest activation of each column.
    largest: RefCell<Vec<Largest>>,
}

type Largest = Arc<Mutex<Vec<f32>>>;

impl Calibration {
    /// Has seen nothing yet.
    pub fn new(isa: Isa) -> Self {
        Calibration { isa, largest: RefCell::default() }
    }

    /// For each matrix in the order of packing, the columns that reached `threshold`, ascending.
    pub fn columns(&self, threshold: f32) -> Vec<Vec<usize>> {
        let reached = |largest: &Largest| {
            let largest = largest.lock().unwrap_or_else(PoisonError::into_inner);
            (0..largest.len()).filter(|&column| largest[column] >= threshold).collect()
        };
        self.largest.borrow().iter().map(reached).collect()
    }
}

impl Packing for Calibration {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        let inner = DenseLinear::new(&weights, outputs, inputs, self.isa)?;
        let largest = Arc::new(Mutex::new(vec![0.0; inputs]));
        self.largest.borrow_mut().push(largest.clone());
        Ok(Box::new(Watched { inner, largest }))
    }
}

/// A plain matrix that notes what it is multiplied with.
struct Watched {
    inner: DenseLinear,
    largest: Largest,
}

impl Linear for Watched {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        let mut largest = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        for row in x.rows() {
            largest.iter_mut().zip(row).for_each(|(largest, x)| *largest = largest.max(x.abs()));
        }
        self.inner.apply(x)
    }

    fn inputs(&self) -> usize {
        self.inner.inputs()
    }

    fn outputs(&self) -> usize {
        self.inner.outputs()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

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
    /// If the weights are not so many, or there is no memory for them.
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

/// Packs a model's matrices as [`OutlierSplit`], with the columns that a [`Calibration`] found.
pub struct OutlierPacker {
    columns: Vec<Vec<usize>>,
    next: Cell<usize>,
    simd: Simd,
    pool: Arc<Pool>,
    memory: Memory,
}

impl OutlierPacker {
    /// Packs as many matrices as there are lists of columns, in the same order.
    pub fn new(columns: Vec<Vec<usize>>, isa: Isa, pool: &Arc<Pool>) -> Self {
        let memory = Memory::new(pool.threads());
        let simd = Simd::within(isa);
        OutlierPacker { columns, next: Cell::new(0), simd, pool: pool.clone(), memory }
    }
}

impl Packing for OutlierPacker {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        let columns = self.columns.get(self.next.replace(self.next.get() + 1));
        let columns = columns.cloned().unwrap_or_default();
        Ok(Box::new(OutlierSplit::new(
            weights,
            outputs,
            inputs,
            columns,
            self.simd,
            &self.pool,
            &self.memory,
        )?))
    }
}
