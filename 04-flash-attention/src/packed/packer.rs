//! A whole model's matrices, packed as it is put together.

use super::format::{Format, Rows};
use super::linear::PackedLinear;
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{Embedding, EmbeddingAndHead, Error, Isa, Linear, Packing, Result, Tensors};
use ndarray::{Array2, ArrayView2};
use std::cell::RefCell;
use std::str::FromStr;
use std::sync::Arc;

/// What a model's weights are to be stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// As the file has them, where it has them in one of our formats; INT8 otherwise.
    AsStored,
    /// All in one format, whatever the file has.
    As(Format),
}

impl FromStr for Weights {
    type Err = Error;

    /// "stored", or the name of a format.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "stored" => Ok(Weights::AsStored),
            name => name.parse().map(Weights::As),
        }
    }
}

/// What became of some matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// What they are stored as now.
    pub format: Format,
    /// Whether they were taken as they were, and not by way of f32.
    pub as_stored: bool,
    /// How many.
    pub matrices: usize,
    /// Bytes of their panels.
    pub bytes: usize,
}

/// Packs the matrices of one model; give it to whatever assembles the model.
///
/// Matrices come in the order in which a token will meet them, and lie in that order in each thread's
/// stretch of memory. A table that is both embedding and head is kept once.
pub struct Packer<'a> {
    weights: Weights,
    stored: &'a dyn Fn(&str) -> Result<Option<Rows<'a>>>,
    simd: Simd,
    pool: Arc<Pool>,
    memory: Memory,
    packed: RefCell<Vec<Packed>>,
}

impl<'a> Packer<'a> {
    /// Packs for the instructions of `isa` and the threads of `pool`. `stored` gives a matrix as the
    /// file has it, by its name in Hugging Face's layout, if that is in one of our formats.
    pub fn new(
        weights: Weights,
        isa: Isa,
        pool: &Arc<Pool>,
        stored: &'a dyn Fn(&str) -> Result<Option<Rows<'a>>>,
    ) -> Self {
        let memory = Memory::new(pool.threads());
        let (simd, pool, packed) = (Simd::within(isa), pool.clone(), RefCell::default());
        Packer { weights, stored, simd, pool, memory, packed }
    }

    /// What became of the matrices so far, one entry for each format and way.
    pub fn packed(&self) -> Vec<Packed> {
        self.packed.borrow().clone()
    }

    fn named(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        tensors: Tensors,
    ) -> Result<PackedLinear> {
        let rows = (self.stored)(name)?.filter(|rows| {
            let wanted =
                self.weights == Weights::AsStored || self.weights == Weights::As(rows.format);
            // Another shape than the model's is for `tensors` to complain about.
            wanted && (rows.outputs, rows.inputs) == (outputs, inputs)
        });
        match rows {
            Some(rows) => {
                let linear = PackedLinear::from_rows(&rows, self.simd, &self.pool, &self.memory)?;
                Ok(self.noted(linear, true))
            }
            None => self.made(&tensors(name, &[outputs, inputs])?, outputs, inputs),
        }
    }

    fn made(&self, weights: &[f32], outputs: usize, inputs: usize) -> Result<PackedLinear> {
        let format = match self.weights {
            Weights::AsStored => Format::Q8_0,
            Weights::As(format) => format,
        };
        let linear = PackedLinear::from_floats(
            format,
            weights,
            outputs,
            inputs,
            self.simd,
            &self.pool,
            &self.memory,
        )?;
        Ok(self.noted(linear, false))
    }

    fn noted(&self, linear: PackedLinear, as_stored: bool) -> PackedLinear {
        let (format, bytes) = (linear.format(), linear.bytes());
        let mut packed = self.packed.borrow_mut();
        match packed.iter_mut().find(|it| (it.format, it.as_stored) == (format, as_stored)) {
            Some(entry) => {
                entry.matrices += 1;
                entry.bytes += bytes;
            }
            None => packed.push(Packed { format, as_stored, matrices: 1, bytes }),
        }
        linear
    }
}

impl Packing for Packer<'_> {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        Ok(Box::new(self.made(&weights, outputs, inputs)?))
    }

    fn matrix(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Box<dyn Linear>> {
        Ok(Box::new(self.named(name, outputs, inputs, tensors)?))
    }

    fn embedding(
        &self,
        name: &str,
        [vocab, hidden]: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let table = Table(Arc::new(self.named(name, vocab, hidden, tensors)?));
        let head = is_tied.then(|| Box::new(table.clone()) as Box<dyn Linear>);
        Ok((Box::new(table), head))
    }
}

/// A packed matrix that is looked up by row, multiplied, or both.
#[derive(Clone)]
struct Table(Arc<PackedLinear>);

impl Embedding for Table {
    fn rows(&self, tokens: &[usize]) -> Array2<f32> {
        let mut rows = Array2::zeros((tokens.len(), self.0.inputs()));
        for (mut row, &token) in rows.rows_mut().into_iter().zip(tokens) {
            self.0.row(token, row.as_slice_mut().expect("rows are contiguous"));
        }
        rows
    }
}

impl Linear for Table {
    fn apply(&self, x: ArrayView2<f32>) -> Array2<f32> {
        self.0.apply(x)
    }

    fn inputs(&self) -> usize {
        self.0.inputs()
    }

    fn outputs(&self) -> usize {
        self.0.outputs()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
