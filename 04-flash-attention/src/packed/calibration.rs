//! What a model's matrices are multiplied with, found out by letting a text through.
//!
//! Some ways to store weights ask not only what the weights are, but what they meet: [`super::outliers`] and
//! [`super::awq`].

use naive_decode::{DenseLinear, Error, Isa, Linear, Packing, Result};
use ndarray::{Array2, ArrayView2};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, PoisonError};

/// Watches the activations. Assemble the model with this, run a text through it, ask. (Not with [`crate::fusion::Fused`] around
/// it, unless all rows are wanted: rows that nobody reads would not meet the last block's matrices.)
pub struct Calibration {
    isa: Isa,
    /// For each matrix in the order of packing.
    seen: RefCell<Vec<Arc<Mutex<Seen>>>>,
}

/// What one matrix has been multiplied with, column by column of its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Rows of activations.
    pub rows: usize,
    /// `[inputs]`: the largest in size.
    pub largest: Vec<f32>,
    /// `[inputs]`: all sizes added up.
    pub sizes: Vec<f32>,
    /// `[inputs]`: all squares added up.
    pub squares: Vec<f32>,
}

impl Seen {
    /// Columns that reached `threshold` in size, ascending.
    pub fn columns(&self, threshold: f32) -> Vec<usize> {
        (0..self.largest.len()).filter(|&column| self.largest[column] >= threshold).collect()
    }

    fn nothing(inputs: usize) -> Self {
        let none = vec![0.0; inputs];
        Seen { rows: 0, largest: none.clone(), sizes: none.clone(), squares: none }
    }

    fn look(&mut self, x: ArrayView2<f32>) {
        self.rows += x.nrows();
        for row in x.rows() {
            for (column, x) in row.iter().enumerate() {
                self.largest[column] = self.largest[column].max(x.abs());
                self.sizes[column] += x.abs();
                self.squares[column] += x * x;
            }
        }
    }
}

impl Calibration {
    /// Has seen nothing yet.
    pub fn new(isa: Isa) -> Self {
        Calibration { isa, seen: RefCell::default() }
    }

    /// What each matrix has met, in the order of packing.
    pub fn seen(&self) -> Vec<Seen> {
        let copy =
            |seen: &Arc<Mutex<Seen>>| seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.seen.borrow().iter().map(copy).collect()
    }
}

impl Packing for Calibration {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        let inner = DenseLinear::new(&weights, outputs, inputs, self.isa)?;
        let seen = Arc::new(Mutex::new(Seen::nothing(inputs)));
        self.seen.borrow_mut().push(seen.clone());
        Ok(Box::new(Watched { inner, seen }))
    }
}

/// A plain matrix that notes what it is multiplied with.
struct Watched {
    inner: DenseLinear,
    seen: Arc<Mutex<Seen>>,
}

impl Linear for Watched {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).look(x);
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

/// Packs matrices one after another, each with what is known of it.
pub(super) struct InOrder<T, F> {
    known: Vec<T>,
    next: Cell<usize>,
    make: F,
}

impl<T, L, F> InOrder<T, F>
where
    L: Linear + 'static,
    F: Fn(Vec<f32>, usize, usize, &T) -> Result<L>,
{
    /// `make` is given row-major `[outputs][inputs]` weights, both sizes, and what is known of the matrix.
    pub(super) fn new(known: Vec<T>, make: F) -> Self {
        InOrder { known, next: Cell::new(0), make }
    }
}

impl<T, L, F> Packing for InOrder<T, F>
where
    L: Linear + 'static,
    F: Fn(Vec<f32>, usize, usize, &T) -> Result<L>,
{
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        let number = self.next.replace(self.next.get() + 1);
        let known = self.known.get(number).ok_or_else(|| {
            let expected = format!("{}, as many as were watched", self.known.len());
            Error::invalid("matrices of a model", number + 1, expected)
        })?;
        Ok(Box::new((self.make)(weights, outputs, inputs, known)?))
    }
}
