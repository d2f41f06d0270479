//! Weights on disk: a safetensors file, memory-mapped, handed out tensor by tensor.

use crate::error::{Error, Result};
use crate::file_map::FileMap;
use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// A safetensors file in memory, either mapped from disk or built into the program.
pub struct Checkpoint {
    file: String,
    bytes: Bytes,
    /// Names, types, shapes and places of the tensors, checked against the file's size.
    header: Metadata,
    /// Where the tensors' bytes begin.
    data: usize,
}

/// The bytes of a safetensors file that say how long its header is.
const HEADER_LENGTH: usize = size_of::<u64>();

/// Bytes that a file must have by its own header, if that is whole and can be read. More than can be
/// counted are as many as can.
fn promised_size(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk::<HEADER_LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(rest.get(..length)?).ok()?;
    let ends = header.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
    Some(usize::try_from(ends.max()?).ok()?.saturating_add(HEADER_LENGTH + length))
}

enum Bytes {
    Mapped(FileMap),
    Embedded(&'static [u8]),
}

impl Checkpoint {
    /// Maps a file; pages are read when a tensor on them is first asked for.
    ///
    /// The file must stay as it is while the checkpoint lives. To update a model, write a new file
    /// beside it and rename.
    ///
    /// # Errors
    /// If the file cannot be opened, or is not a whole safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        Checkpoint::new(path.display().to_string(), Bytes::Mapped(FileMap::open(path)?))
    }

    /// Wraps bytes that are part of the program; `name` is what errors call them.
    ///
    /// # Errors
    /// If they are not a whole safetensors file.
    pub fn embedded(name: &str, bytes: &'static [u8]) -> Result<Self> {
        Checkpoint::new(name.to_owned(), Bytes::Embedded(bytes))
    }

    fn new(file: String, bytes: Bytes) -> Result<Self> {
        let size = bytes.as_slice().len();
        let refuse = |problem: String| {
            Error::file(&file, format!("not a whole safetensors file ({size} bytes): {problem}"))
        };
        // Before it is read: `read_metadata` adds to what the header promises, and may overflow.
        if let Some(whole) = promised_size(bytes.as_slice()).filter(|&whole| whole > size) {
            return Err(refuse(format!("cut short, its header promises {whole}")));
        }
        let (length, header) =
            SafeTensors::read_metadata(bytes.as_slice()).map_err(|e| refuse(e.to_string()))?;
        Ok(Checkpoint { file, bytes, header, data: HEADER_LENGTH + length })
    }

    /// Name that errors give this file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// Lets go of the pages that were read, as [`FileMap::release_pages`].
    pub fn release_pages(&self) {
        if let Bytes::Mapped(map) = &self.bytes {
            map.release_pages();
        }
    }

    /// The bytes before the tensors: what tensors there are, and where.
    pub fn head(&self) -> &[u8] {
        &self.bytes.as_slice()[..self.data]
    }

    /// Numbers in all tensors.
    pub fn numbers(&self) -> usize {
        let tensors = self.header.tensors();
        tensors.values().map(|info| info.shape.iter().product::<usize>()).sum()
    }

    /// A tensor as the file stores it: type, shape and bytes.
    pub fn view(&self, name: &str) -> Option<TensorView<'_>> {
        let info = self.header.info(name)?;
        let (start, end) = info.data_offsets;
        let bytes = &self.bytes.as_slice()[self.data + start..self.data + end];
        // The header was checked when it was read: type, shape and bytes agree.
        TensorView::new(info.dtype, info.shape.clone(), bytes).ok()
    }

    /// Reads one tensor as f32, converting bf16 and f16.
    ///
    /// # Errors
    /// If it is missing, has another shape, holds something else than floating point numbers, or
    /// holds a NaN or an infinity.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let view = self.view(name).ok_or_else(|| Error::MissingTensor {
            file: self.file.clone(),
            tensor: name.into(),
            expected: shape.to_vec(),
        })?;
        if view.shape() != shape {
            return Err(Error::TensorShape {
                file: self.file.clone(),
                tensor: name.into(),
                expected: shape.to_vec(),
                found: view.shape().to_vec(),
            });
        }
        let bytes = view.data();
        let values: Vec<f32> = match view.dtype() {
            Dtype::F32 => decode(bytes, f32::from_le_bytes),
            Dtype::BF16 => decode(bytes, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F16 => decode(bytes, |b| f16::from_le_bytes(b).to_f32()),
            other => {
                let problem =
                    format!("tensor `{name}` has type {other:?}, expected F32, BF16 or F16");
                return Err(Error::file(&self.file, problem));
            }
        };
        match values.par_iter().position_first(|v| !v.is_finite()) {
            None => Ok(values),
            Some(at) => Err(Error::file(
                &self.file,
                format!("tensor `{name}` holds {} at {at}, expected finite numbers", values[at]),
            )),
        }
    }
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Embedded(bytes) => bytes,
        }
    }
}

/// Numbers that one thread takes at a time: enough that handing them out costs nothing.
const NUMBERS_AT_ONCE: usize = 1 << 14;

fn decode<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32 + Sync) -> Vec<f32> {
    let numbers = bytes.as_chunks::<N>().0.par_iter().with_min_len(NUMBERS_AT_ONCE);
    numbers.map(|&bytes| value(bytes)).collect()
}
