//! What a GGUF file says of itself before the weights: metadata, and where each tensor lies.

use super::cursor::Cursor;
use super::metadata::Metadata;
use super::value::Entry;
use crate::blocks::BlockType;
use naive_decode::{Error, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Where tensors begin if the file does not say: at multiples of this many bytes.
const USUAL_ALIGNMENT: u64 = 32;

/// ggml knows no tensor with more.
const MOST_DIMENSIONS: u32 = 4;

/// GGUF allows no longer key, in bytes.
const LONGEST_KEY: usize = 65_535;

/// One tensor's place in its file.
#[derive(Debug, Clone)]
pub(super) struct TensorPlace {
    pub(super) kind: BlockType,
    /// Outermost dimension first (the file has the innermost first).
    pub(super) shape: Vec<usize>,
    /// The file that it lies in, if there are several: from 0 on.
    pub(super) part: usize,
    /// First byte, counted from the file's first.
    pub(super) start: usize,
    pub(super) length: usize,
}

/// Everything before the weights, checked against the file's length.
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, Entry>,
    pub(super) tensors: BTreeMap<String, TensorPlace>,
}

/// What a GGUF file begins with.
const MAGIC: &[u8; 4] = b"GGUF";

/// Whether a file is one by its name, or begins as one does whatever its name: Ollama's are called by what is in them.
pub(crate) fn is_gguf(path: &Path) -> bool {
    let begins = || {
        let mut magic = [0; MAGIC.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == *MAGIC
    };
    let is_named = path.extension().is_some_and(|extension| extension == "gguf");
    is_named && !path.is_dir() || path.is_file() && begins()
}

impl Header {
    /// Reads and checks the header of a whole file.
    ///
    /// # Errors
    /// If it is no GGUF of a version that is read here, ends before all that it promises, or has a tensor of a type or in a
    /// place that cannot be.
    pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |problem: String| Err(Error::file(file, problem));
        let mut cursor = Cursor { file, bytes, at: 0 };
        let magic = cursor.take(4, "GGUF's magic number")?;
        if magic != MAGIC {
            let found = String::from_utf8_lossy(magic).escape_debug().to_string();
            return refuse(format!("begins with \"{found}\", expected \"GGUF\": not a GGUF file"));
        }
        match cursor.u32("the version")? {
            2 | 3 => {}
            version if matches!(version.swap_bytes(), 1..=3) => {
                return refuse("is a big-endian GGUF, expected a little-endian one".into());
            }
            version => return refuse(format!("is GGUF version {version}, expected 2 or 3")),
        }
        // Name, dimensions, one dimension, type and offset; key, type and value.
        let tensor_count = cursor.count(8 + 4 + 8 + 4 + 8, "the number of tensors")?;
        let entry_count = cursor.count(8 + 4 + 1, "the number of metadata entries")?;
        let mut metadata = BTreeMap::new();
        for _ in 0..entry_count {
            let key = read_key(&mut cursor)?;
            let entry = Entry::read(&mut cursor, &key)?;
            if metadata.contains_key(&key) {
                return refuse(format!("metadata `{key}` is there twice, expected once"));
            }
            metadata.insert(key, entry);
        }
        let alignment = alignment(&Metadata { file, bytes, entries: &metadata })?;
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let name = cursor.text("a tensor's name")?.to_owned();
            let place = read_place(&mut cursor, &name, alignment)?;
            if tensors.contains_key(&name) {
                return refuse(format!("tensor `{name}` is there twice, expected once"));
            }
            tensors.insert(name, place);
        }
        let data = (cursor.at as u64).next_multiple_of(alignment);
        let mut header = Header { metadata, tensors };
        header.place_tensors(file, data, bytes.len() as u64)?;
        Ok(header)
    }

    /// Turns offsets from the first tensor into places in the file, which must all be there and
    /// apart from each other.
    fn place_tensors(&mut self, file: &str, data: u64, size: u64) -> Result<()> {
        let mut order: Vec<(&String, &mut TensorPlace)> = self.tensors.iter_mut().collect();
        order.sort_by_key(|(_, place)| place.start);
        let mut before: Option<(&String, usize)> = None;
        for (name, place) in order {
            let end = data
                .checked_add(place.start as u64)
                .and_then(|start| start.checked_add(place.length as u64));
            let Some(end) = end.filter(|&end| end <= size) else {
                let problem = format!(
                    "tensor `{name}` ({}, shape {:?}) lies at bytes {} to {} after byte {data}, \
                     expected inside the file's {size}: it is truncated or damaged",
                    place.kind,
                    place.shape,
                    place.start,
                    place.start as u128 + place.length as u128
                );
                return Err(Error::file(file, problem));
            };
            // No overflow: the end is inside a file that is in memory.
            place.start += data as usize;
            if let Some((other, other_end)) = before
                && place.start < other_end
            {
                let problem = format!(
                    "tensor `{name}` begins at byte {}, expected at or after {other_end}, where \
                     `{other}` ends",
                    place.start
                );
                return Err(Error::file(file, problem));
            }
            before = Some((name, end as usize));
        }
        Ok(())
    }
}

/// The next metadata key.
fn read_key(cursor: &mut Cursor) -> Result<String> {
    let at = cursor.at;
    let key = cursor.text("a metadata key")?;
    if key.len() > LONGEST_KEY {
        let length = key.len();
        let problem = format!(
            "a metadata key at byte {at} has {length} bytes, expected at most {LONGEST_KEY}"
        );
        return Err(Error::file(cursor.file, problem));
    }
    Ok(key.to_owned())
}

/// The alignment of tensors.
fn alignment(metadata: &Metadata) -> Result<u64> {
    let key = "general.alignment";
    let alignment = metadata.integer(key)?.unwrap_or(USUAL_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > 1 << 16 {
        let expected = "a power of two up to 65,536";
        return Err(metadata.mismatch(key, &alignment.to_string(), expected));
    }
    Ok(alignment)
}

/// One tensor's description; `start` is still counted from the first tensor.
fn read_place(cursor: &mut Cursor, name: &str, alignment: u64) -> Result<TensorPlace> {
    let file = cursor.file;
    let refuse = |problem: String| Err(Error::file(file, format!("tensor `{name}` {problem}")));
    let what = format!("the description of tensor `{name}`");
    let dimensions = cursor.u32(&what)?;
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        return refuse(format!("has {dimensions} dimensions, expected 1 to {MOST_DIMENSIONS}"));
    }
    let mut shape: Vec<u64> = (0..dimensions).map(|_| cursor.u64(&what)).collect::<Result<_>>()?;
    shape.reverse();
    let code = cursor.u32(&what)?;
    let Some(kind) = BlockType::from_code(code) else {
        let known: Vec<String> = BlockType::ALL.iter().map(|(_, kind)| kind.to_string()).collect();
        return refuse(format!("has ggml type {code}, expected one of {}", known.join(", ")));
    };
    let start = cursor.u64(&what)?;
    if !start.is_multiple_of(alignment) {
        return refuse(format!("begins at offset {start}, expected a multiple of {alignment}"));
    }
    let innermost = shape[shape.len() - 1];
    if !innermost.is_multiple_of(kind.block_numbers() as u64) {
        let block = kind.block_numbers();
        return refuse(format!("has rows of {innermost}, expected whole {kind} blocks of {block}"));
    }
    let numbers = shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
    let length = numbers.map(|numbers| numbers / kind.block_numbers() as u64);
    let length = length.and_then(|blocks| blocks.checked_mul(kind.block_bytes() as u64));
    // What fits the file fits memory, whose addresses `usize` counts.
    let most = cursor.bytes.len() as u64;
    match length {
        Some(length) if (1..=most).contains(&length) && start <= most => Ok(TensorPlace {
            kind,
            shape: shape.into_iter().map(|size| size as usize).collect(),
            part: 0,
            start: start as usize,
            length: length as usize,
        }),
        Some(0) => refuse(format!("has shape {shape:?}, expected at least one number")),
        _ => refuse(format!(
            "has shape {shape:?} of {kind} at offset {start}, expected no more than the file's {most} bytes: it is \
             truncated or damaged"
        )),
    }
}
