//! Weights in safetensors files: one, or several with an index.

use crate::blocks::{BlockType, RawTensor};
use crate::origin::Stamp;
use crate::text_file::{check_is_file, is_there, read};
use ::safetensors::Dtype;
use naive_decode::{Checkpoint, Error, Result};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

/// The file of a model whose weights are in one.
pub(crate) const WHOLE: &str = "model.safetensors";

/// The file that says which weights are in which of several.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// All weights of a model, wherever they lie.
pub struct Safetensors {
    /// What errors call the whole.
    file: String,
    shards: Vec<Checkpoint>,
    /// Which shard has which tensor; empty if there is but one.
    places: HashMap<String, usize>,
    /// Of the index, if there is one, and of each file; none of what is part of the program.
    stamps: Vec<Stamp>,
}

/// What is read of an index.
#[derive(Deserialize)]
struct Index {
    /// Tensor → file, in an order that is always the same.
    weight_map: BTreeMap<String, String>,
}

impl Safetensors {
    /// Opens one file with everything in it.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a whole safetensors file.
    pub fn open(path: &Path) -> Result<Self> {
        let (only, stamp) = open_file(path)?;
        Ok(Safetensors { stamps: vec![stamp], ..Self::from(only) })
    }

    /// Opens every file that an index names, beside it.
    ///
    /// # Errors
    /// If the index is malformed, names something else than files beside it, or a file that is
    /// missing, damaged, or without the tensors that it should have.
    pub fn open_index(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let mut places = HashMap::new();
        let mut shards: Vec<Checkpoint> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let modified = Stamp::modified(path)?;
        let index = read_index(path)?;
        let content = format!("{index:?}");
        let mut stamps = vec![Stamp::new(path, modified, content.len(), content.as_bytes())];
        for (tensor, name) in index {
            let place = match known.get(&name) {
                Some(&place) => place,
                None => {
                    let (shard, stamp) = open_shard(path, &name)?;
                    shards.push(shard);
                    stamps.push(stamp);
                    known.insert(name, shards.len() - 1);
                    shards.len() - 1
                }
            };
            if shards[place].view(&tensor).is_none() {
                let problem = format!("should have tensor `{tensor}`, says {file}, and has not");
                return Err(Error::file(shards[place].file(), problem));
            }
            places.insert(tensor, place);
        }
        Ok(Safetensors { file, shards, places, stamps })
    }

    /// Opens the weights in a directory: one file, or an index and what it names.
    ///
    /// # Errors
    /// If there is neither, or as [`Safetensors::open`] and [`Safetensors::open_index`].
    pub fn open_directory(directory: &Path) -> Result<Self> {
        let (whole, index) = (directory.join(WHOLE), directory.join(INDEX));
        if !is_there(&whole) && is_there(&index) {
            return Safetensors::open_index(&index);
        }
        Safetensors::open(&whole)
    }

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// If it is missing, has another shape, holds something else than floating point numbers, or
    /// holds a NaN or an infinity.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let shard = self.shard(name).ok_or_else(|| Error::MissingTensor {
            file: self.file.clone(),
            tensor: name.into(),
            expected: shape.to_vec(),
        })?;
        shard.tensor(name, shape)
    }

    /// A tensor as it is stored, if it is there and holds floating point numbers of 16 or 32 bits.
    pub fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        let view = self.shard(name)?.view(name)?;
        let kind = match view.dtype() {
            Dtype::F32 => BlockType::F32,
            Dtype::F16 => BlockType::F16,
            Dtype::BF16 => BlockType::BF16,
            _ => return None,
        };
        Some(RawTensor { kind, shape: view.shape().to_vec(), bytes: Cow::Borrowed(view.data()) })
    }

    /// Numbers in all tensors.
    pub fn parameters(&self) -> usize {
        self.shards.iter().map(Checkpoint::numbers).sum()
    }

    /// Lets go of the pages that were read, as [`Checkpoint::release_pages`].
    pub fn release_pages(&self) {
        self.shards.iter().for_each(Checkpoint::release_pages);
    }

    /// What tells the files from others.
    pub(crate) fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// Bytes of all files.
    pub fn size(&self) -> usize {
        self.shards.iter().map(Checkpoint::size).sum()
    }

    fn shard(&self, name: &str) -> Option<&Checkpoint> {
        match self.shards.as_slice() {
            [only] if self.places.is_empty() => Some(only),
            shards => self.places.get(name).map(|&place| &shards[place]),
        }
    }
}

impl From<Checkpoint> for Safetensors {
    fn from(only: Checkpoint) -> Self {
        let file = only.file().to_owned();
        Safetensors { file, shards: vec![only], places: HashMap::new(), stamps: Vec::new() }
    }
}

/// Tensor → file name, as an index has it.
///
/// # Errors
/// If it cannot be read, is malformed, empty, or names something else than files beside it.
pub(crate) fn read_index(path: &Path) -> Result<BTreeMap<String, String>> {
    let file = path.display().to_string();
    let index: Index = serde_json::from_slice(&read(path)?).map_err(|e| Error::json(&file, &e))?;
    if index.weight_map.is_empty() {
        return Err(Error::file(&file, "weight_map is empty, expected a file for each tensor"));
    }
    for name in index.weight_map.values() {
        // An index may come from anywhere; it has no business outside its directory.
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let problem = format!("weight_map names \"{name}\", expected files beside the index");
            return Err(Error::file(&file, problem));
        }
    }
    Ok(index.weight_map)
}

fn open_shard(index: &Path, name: &str) -> Result<(Checkpoint, Stamp)> {
    let path = index.with_file_name(name);
    if !is_there(&path) {
        let problem = format!("names {name}, which is not there: expected every file beside it");
        return Err(Error::file(index.display().to_string(), problem));
    }
    open_file(&path)
}

fn open_file(path: &Path) -> Result<(Checkpoint, Stamp)> {
    check_is_file(path)?;
    let modified = Stamp::modified(path)?;
    let opened = Checkpoint::open(path)?;
    let stamp = Stamp::new(path, modified, opened.size(), opened.head());
    Ok((opened, stamp))
}
