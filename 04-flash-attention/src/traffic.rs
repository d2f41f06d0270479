//! How many bytes cross between slow and fast memory, counted where they cross.
//!
//! The model of the FlashAttention paper (Dao et al. 2022, section 3): a large slow memory, in which queries,
//! keys, values and answers live, and a small fast one, in which arithmetic is done. On a GPU they are HBM and
//! the SRAM of a multiprocessor, on a CPU the memory and the nearest cache. [`Slow`] is a matrix in slow
//! memory. Nobody gets at its rows but through [`Slow::read`] and [`Slow::write`], which count.

pub mod formula;

use ndarray::{Array2, ArrayView2, CowArray, Ix2, s};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which numbers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    /// `[queries, D]`
    Queries,
    /// `[places, D]`
    Keys,
    /// `[places, D_v]`
    Values,
    /// `[queries, places]`: dot products, before the softmax.
    Scores,
    /// `[queries, places]`: the softmax of the scores.
    Weights,
    /// What a query that has seen some of its places carries on: maximum, sums, values.
    Running,
    /// Results of single splits, to be joined.
    Partials,
    /// `[queries, D_v]`
    Answers,
}

/// Every kind of number, in the order in which attention makes them.
pub const MATRICES: [Matrix; 8] = [
    Matrix::Queries,
    Matrix::Keys,
    Matrix::Values,
    Matrix::Scores,
    Matrix::Weights,
    Matrix::Running,
    Matrix::Partials,
    Matrix::Answers,
];

/// Bytes read from slow memory and written to it, by what they were.
#[derive(Debug, Default)]
pub struct Traffic {
    read: [AtomicUsize; MATRICES.len()],
    written: [AtomicUsize; MATRICES.len()],
}

impl Traffic {
    /// Nothing moved yet.
    pub fn new() -> Self {
        Traffic::default()
    }

    /// Counts bytes on their way to fast memory.
    pub fn count_read(&self, matrix: Matrix, bytes: usize) {
        self.read[matrix as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes on their way back.
    pub fn count_written(&self, matrix: Matrix, bytes: usize) {
        self.written[matrix as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes read of one matrix.
    pub fn read(&self, matrix: Matrix) -> usize {
        self.read[matrix as usize].load(Ordering::Relaxed)
    }

    /// Bytes written of one matrix.
    pub fn written(&self, matrix: Matrix) -> usize {
        self.written[matrix as usize].load(Ordering::Relaxed)
    }

    /// Bytes of all matrices, both ways.
    pub fn total(&self) -> Bytes {
        let sum = |of: fn(&Traffic, Matrix) -> usize| MATRICES.iter().map(|&m| of(self, m)).sum();
        Bytes { read: sum(Traffic::read), written: sum(Traffic::written) }
    }
}

/// Bytes both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// From slow memory.
    pub read: usize,
    /// To slow memory.
    pub written: usize,
}

impl Bytes {
    /// Both together.
    pub fn moved(self) -> usize {
        self.read + self.written
    }
}

// ANCHOR: slow
/// A matrix of f32 in slow memory. Whoever looks at it pays.
pub struct Slow<'a> {
    matrix: Matrix,
    numbers: CowArray<'a, f32, Ix2>,
    traffic: &'a Traffic,
}

impl<'a> Slow<'a> {
    /// A matrix that is there already.
    pub fn given(matrix: Matrix, numbers: ArrayView2<'a, f32>, traffic: &'a Traffic) -> Self {
        Slow { matrix, numbers: numbers.into(), traffic }
    }

    /// Room for a matrix that will be written.
    pub fn room(matrix: Matrix, shape: (usize, usize), traffic: &'a Traffic) -> Self {
        Slow { matrix, numbers: Array2::zeros(shape).into(), traffic }
    }

    /// Brings a block to fast memory.
    pub fn read(&self, rows: Range<usize>, columns: Range<usize>) -> Array2<f32> {
        let block = self.numbers.slice(s![rows, columns]).as_standard_layout().into_owned();
        self.traffic.count_read(self.matrix, block.len() * size_of::<f32>());
        block
    }

    /// Brings whole rows to fast memory.
    pub fn read_rows(&self, rows: Range<usize>) -> Array2<f32> {
        self.read(rows, 0..self.numbers.ncols())
    }

    /// Takes a block back, from row and column `at` on.
    pub fn write(&mut self, at: (usize, usize), block: ArrayView2<f32>) {
        let (rows, columns) = block.dim();
        self.traffic.count_written(self.matrix, block.len() * size_of::<f32>());
        self.numbers.slice_mut(s![at.0..at.0 + rows, at.1..at.1 + columns]).assign(&block);
    }

    /// Hands the matrix over, where it lies.
    pub fn into_numbers(self) -> Array2<f32> {
        self.numbers.into_owned()
    }
}
// ANCHOR_END: slow
