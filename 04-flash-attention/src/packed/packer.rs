//! A whole model's matrices, packed as it is put together.

mod stack;
mod table;

use super::file::{Kept, PackedFile, PackedFrom, write};
use super::format::{Format, Rows};
use super::linear::PackedLinear;
use super::memory::Memory;
use crate::kernels::Simd;
use crate::threads::{Pool, PoolCrew};
use naive_decode::{
    Crew, EmbeddingAndHead, Error, Isa, Linear, Packing, Parts, Result, Tensors, rows_name,
};
use stack::Stack;
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use table::Table;

/// What a model's weights are to be stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// As the file has them, where it has them in one of our formats, or with the codes that it has; Q8_0 otherwise.
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
            name => name.parse().map(Weights::As).map_err(|_| {
                let names = Format::ALL.map(Format::name).join(", ");
                Error::invalid("weight format", name, format!("stored, or one of {names}"))
            }),
        }
    }
}

/// What became of some matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// What they are stored as now.
    pub format: Format,
    /// Whether they were taken as a file has them, and neither by way of f32 nor with their codes in other blocks.
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

    /// A matrix as the packed file has it.
    fn mapped(&self, name: &str, shape: [usize; 2]) -> Option<PackedLinear> {
        let (linear, as_stored) = self.file?.matrix(name, shape, self.simd, &self.pool)?;
        Some(self.noted(linear, as_stored).0)
    }

    /// A matrix's rows as its source has them, if they are to be kept so.
    fn stored(&self, name: &str, shape: [usize; 2]) -> Result<Option<Rows<'a>>> {
        // Another shape than the model's is for `tensors` to complain about.
        let rows = (self.stored)(name)
            .map_err(|error| of(name, error))?
            .filter(|rows| [rows.outputs, rows.inputs] == shape);
        Ok(rows.and_then(|rows| match (self.weights, rows.format) {
            (Weights::AsStored, _) => Some(rows),
            (Weights::As(format), stored) if format == stored => Some(rows),
            (Weights::As(format @ Format::Bf16Fast), Format::Bf16) => Some(Rows { format, ..rows }),
            _ => None,
        }))
    }

    /// A matrix that has a name, of the rows given or of what `make` gives.
    fn packed_now(
        &self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        rows: Option<Rows>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<PackedLinear> {
        let linear = match &rows {
            Some(rows) => PackedLinear::from_rows(rows, self.simd, &self.pool, &self.memory)?,
            None => self.converted(&make()?, outputs, inputs).map_err(|error| of(name, error))?,
        };
        let as_stored = rows.is_some_and(|rows| rows.as_stored);
        let (linear, packed) = self.noted(linear, as_stored);
        let (name, shares) = (name.to_owned(), linear.shares().clone());
        self.kept.borrow_mut().push(Kept { name, packed, outputs, inputs, shares });
        Ok(linear)
    }

    /// A matrix that has a name, as the packed file has it, or else of its source's rows, or of what `make` gives.
    fn kept_or_packed(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: impl FnOnce() -> Result<Option<Rows<'a>>>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<PackedLinear> {
        match self.mapped(name, shape) {
            Some(linear) => Ok(linear),
            None => self.packed_now(name, shape, rows()?, make),
        }
    }

    /// The matrix that the source calls `name`.
    fn named(&self, name: &str, shape: [usize; 2], tensors: Tensors) -> Result<PackedLinear> {
        self.kept_or_packed(name, shape, || self.stored(name, shape), &|| tensors(name, &shape))
    }

    /// What becomes of a matrix that its source has in none of our formats.
    fn format(&self) -> Format {
        match self.weights {
            Weights::AsStored => Format::Q8_0,
            Weights::As(format) => format,
        }
    }

    /// Rows of that format, of a matrix beside which others have some.
    fn encoded(
        &self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        tensors: Tensors,
    ) -> Result<Rows<'static>> {
        let weights = tensors(name, &[outputs, inputs])?;
        let rows = Rows::encoded(self.format(), &weights, outputs, inputs);
        rows.map(Rows::converted).map_err(|error| of(name, error))
    }

    fn converted(&self, weights: &[f32], outputs: usize, inputs: usize) -> Result<PackedLinear> {
        let format = self.format();
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

/// What is wrong with a matrix, and which it is.
fn of(name: &str, error: Error) -> Error {
    match error {
        Error::Invalid { what, found, expected } => {
            Error::Invalid { what: format!("`{name}`: {what}"), found, expected }
        }
        other => other,
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
        Ok(Box::new(self.named(name, [outputs, inputs], tensors)?))
    }

    fn unrounded(
        &self,
        parts: &Parts,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Box<dyn Linear>> {
        let rows = || {
            let stored = (self.stored)(name).map_err(|error| of(name, error))?;
            let is_so = |rows: &Rows| {
                (rows.format, [rows.outputs, rows.inputs]) == (Format::F32, [outputs, inputs])
            };
            if let Some(rows) = stored.filter(is_so) {
                return Ok(Some(rows));
            }
            let weights = parts.tensor(name, &[outputs, inputs])?;
            let rows = Rows::encoded(Format::F32, &weights, outputs, inputs);
            rows.map(|rows| Some(rows.converted())).map_err(|error| of(name, error))
        };
        let never = || unreachable!("there are rows");
        Ok(Box::new(self.kept_or_packed(name, [outputs, inputs], rows, &never)?))
    }

    fn crew(&self) -> Arc<dyn Crew> {
        Arc::new(PoolCrew(self.pool.clone()))
    }

    fn derived(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        // No source has it as it is.
        Ok(Box::new(self.kept_or_packed(name, [outputs, inputs], || Ok(None), make)?))
    }

    fn rows(
        &self,
        name: &str,
        shape: [usize; 2],
        rows: Range<usize>,
        make: &dyn Fn() -> Result<Vec<f32>>,
    ) -> Result<Box<dyn Linear>> {
        let (part, own) = (rows_name(name, &rows), [rows.len(), shape[1]]);
        let stored = || Ok(self.stored(name, shape)?.map(|all| all.part(rows)));
        Ok(Box::new(self.kept_or_packed(&part, own, stored, make)?))
    }

    fn stacked(
        &self,
        matrices: &[(String, usize)],
        inputs: usize,
        tensors: Tensors,
    ) -> Result<Vec<Box<dyn Linear>>> {
        let mut made: Vec<Box<dyn Linear>> = Vec::new();
        if self.file.is_some() {
            // Who wrote the file stacked what could be stacked.
            let mut rest = matrices;
            while let [(name, outputs), after @ ..] = rest {
                let longest = (2..=rest.len()).rev().find_map(|count| {
                    let stack = Stack::new(rest[..count].to_vec(), inputs);
                    Some((self.mapped(&stack.name, stack.shape())?, count))
                });
                let (linear, next) = match longest {
                    Some((linear, count)) => (linear, &rest[count..]),
                    None => (self.named(name, [*outputs, inputs], tensors)?, after),
                };
                made.push(Box::new(linear));
                rest = next;
            }
            return Ok(made);
        }
        let rows = |(name, outputs): &(String, usize)| self.stored(name, [*outputs, inputs]);
        let rows = matrices.iter().map(rows).collect::<Result<Vec<_>>>()?;
        let mut all = Vec::from_iter(matrices.iter().cloned().zip(rows));
        let format = |rows: &Option<Rows>| rows.as_ref().map_or(self.format(), |rows| rows.format);
        while !all.is_empty() {
            let first = format(&all[0].1);
            let alike = all.iter().take_while(|(_, rows)| format(rows) == first).count();
            let (stack, rows) = all.drain(..alike).unzip();
            made.push(Box::new(self.stack(Stack::new(stack, inputs), rows, tensors)?));
        }
        Ok(made)
    }

    fn embedding(
        &self,
        name: &str,
        shape: [usize; 2],
        is_tied: bool,
        tensors: Tensors,
    ) -> Result<EmbeddingAndHead> {
        let table = Table(Arc::new(self.named(name, shape, tensors)?));
        let head = is_tied.then(|| Box::new(table.clone()) as Box<dyn Linear>);
        Ok((Box::new(table), head))
    }
}
