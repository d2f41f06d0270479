//! A whole model's matrices, packed as it is put together.

mod table;

use super::file::{Kept, PackedFile, PackedFrom, write};
use super::format::{Format, Rows};
use super::linear::PackedLinear;
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::Pool;
use naive_decode::{EmbeddingAndHead, Error, Isa, Linear, Packing, Result, Tensors};
use std::cell::RefCell;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use table::Table;

/// What a model's weights are to be stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// As the file has them, where it has them in one of our formats; INT8 otherwise.
    AsStored,
    /// All in one format, whatever the file has.
    As(Format),
}

impl Weights {
    /// What [`Weights::from_str`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Weights::AsStored => "stored",
            Weights::As(format) => format.name(),
        }
    }
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
/// stretch of memory. A table that is both embedding and head is kept once. What a [`PackedFile`] has is
/// used as it is mapped, and its source is not read.
pub struct Packer<'a> {
    weights: Weights,
    stored: &'a dyn Fn(&str) -> Result<Option<Rows<'a>>>,
    simd: Simd,
    pool: Arc<Pool>,
    memory: Memory,
    file: Option<&'a PackedFile>,
    progress: Option<&'a dyn Fn(usize)>,
    packed: RefCell<Vec<Packed>>,
    /// Matrices that came by name, in the order of packing.
    kept: RefCell<Vec<Kept>>,
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
        Packer {
            weights,
            stored,
            simd: Simd::within(isa),
            pool: pool.clone(),
            memory,
            file: None,
            progress: None,
            packed: RefCell::default(),
            kept: RefCell::default(),
        }
    }

    /// Takes from the file what it has. It is to be of this packer's threads and weights.
    pub fn with_file(self, file: &'a PackedFile) -> Self {
        Packer { file: Some(file), ..self }
    }

    /// Calls `progress` after each matrix, with the numbers in it.
    pub fn with_progress(self, progress: &'a dyn Fn(usize)) -> Self {
        Packer { progress: Some(progress), ..self }
    }

    /// Writes all matrices that came by name to a file, for [`PackedFile::open`].
    ///
    /// # Errors
    /// If the file cannot be written, or `from` is for other weights or threads than this packer's.
    pub fn write(&self, path: &Path, from: &PackedFrom) -> Result<()> {
        let (own, wanted) = ((self.weights, self.pool.threads()), (from.weights, from.threads));
        if own != wanted {
            let expected = format!("{own:?}, as packed");
            return Err(Error::invalid(
                "weights and threads of a file",
                format!("{wanted:?}"),
                expected,
            ));
        }
        write(path, from, &self.kept.borrow())
    }

    /// What became of the matrices so far, one entry for each format and way.
    pub fn packed(&self) -> Vec<Packed> {
        self.packed.borrow().clone()
    }

    /// A matrix that has a name, by `make` if its source does not have it in the wanted format.
    fn named(
        &self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        stored: &dyn Fn(&str) -> Result<Option<Rows<'a>>>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<PackedLinear> {
        let mapped =
            self.file.and_then(|file| file.matrix(name, [outputs, inputs], self.simd, &self.pool));
        if let Some((linear, as_stored)) = mapped {
            return Ok(self.noted(linear, as_stored).0);
        }
        let rows = stored(name)?.filter(|rows| {
            let wanted =
                self.weights == Weights::AsStored || self.weights == Weights::As(rows.format);
            // Another shape than the model's is for `tensors` to complain about.
            wanted && (rows.outputs, rows.inputs) == (outputs, inputs)
        });
        let linear = match &rows {
            Some(rows) => PackedLinear::from_rows(rows, self.simd, &self.pool, &self.memory)?,
            None => self.converted(&make()?, outputs, inputs)?,
        };
        let (linear, packed) = self.noted(linear, rows.is_some());
        let (name, shares) = (name.to_owned(), linear.shares().clone());
        self.kept.borrow_mut().push(Kept { name, packed, outputs, inputs, shares });
        Ok(linear)
    }

    fn converted(&self, weights: &[f32], outputs: usize, inputs: usize) -> Result<PackedLinear> {
        let format = match self.weights {
            Weights::AsStored => Format::Q8_0,
            Weights::As(format) => format,
        };
        let (simd, pool, memory) = (self.simd, &self.pool, &self.memory);
        PackedLinear::from_floats(format, weights, outputs, inputs, simd, pool, memory)
    }

    fn noted(&self, linear: PackedLinear, as_stored: bool) -> (PackedLinear, Packed) {
        let (format, bytes) = (linear.format(), linear.bytes());
        let new = Packed { format, as_stored, matrices: 1, bytes };
        let mut packed = self.packed.borrow_mut();
        match packed.iter_mut().find(|it| (it.format, it.as_stored) == (format, as_stored)) {
            Some(entry) => {
                entry.matrices += 1;
                entry.bytes += bytes;
            }
            None => packed.push(new),
        }
        if let Some(progress) = self.progress {
            progress(linear.outputs() * linear.inputs());
        }
        (linear, new)
    }
}

impl Packing for Packer<'_> {
    fn pack(&self, weights: Vec<f32>, outputs: usize, inputs: usize) -> Result<Box<dyn Linear>> {
        let linear = self.converted(&weights, outputs, inputs)?;
        Ok(Box::new(self.noted(linear, false).0))
    }

    fn matrix(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Box<dyn Linear>> {
        let make = || tensors(name, &[outputs, inputs]);
        Ok(Box::new(self.named(name, [outputs, inputs], self.stored, &make)?))
    }

    fn derived(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        // No source has it as it is.
        Ok(Box::new(self.named(name, [outputs, inputs], &|_| Ok(None), make)?))
    }

    fn embedding(
        &self,
        name: &str,
        shape: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let make = || tensors(name, &shape);
        let table = Table(Arc::new(self.named(name, shape, self.stored, &make)?));
        let head = is_tied.then(|| Box::new(table.clone()) as Box<dyn Linear>);
        Ok((Box::new(table), head))
    }
}
