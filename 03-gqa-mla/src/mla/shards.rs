//! Weights in one file or in several: DeepSeek-V2-Lite comes in four.

use naive_decode::{Checkpoint, Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The checkpoint of a directory, whatever number of files it is in.
pub struct Shards {
    files: Vec<Checkpoint>,
    /// Which of `files` holds a tensor; one file holds all that are not named.
    places: BTreeMap<String, usize>,
}

/// `model.safetensors.index.json`: the file of each tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Shards {
    /// Maps `model.safetensors`, or if there is none the files that `model.safetensors.index.json`
    /// names.
    ///
    /// # Errors
    /// If a file is missing or is not what its name promises.
    pub fn open(directory: &Path) -> Result<Self> {
        let whole = directory.join("model.safetensors");
        let path = directory.join("model.safetensors.index.json");
        if whole.exists() || !path.exists() {
            return Ok(Shards { files: vec![Checkpoint::open(&whole)?], places: BTreeMap::new() });
        }
        let json =
            std::fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let index: Index = serde_json::from_slice(&json)
            .map_err(|e| Error::file(path.display().to_string(), e))?;
        let mut shards = Shards { files: Vec::new(), places: BTreeMap::new() };
        let mut numbers = BTreeMap::new();
        for (tensor, file) in index.weight_map {
            let number = match numbers.get(&file) {
                Some(&number) => number,
                None => {
                    shards.files.push(Checkpoint::open(&directory.join(&file))?);
                    numbers.insert(file, shards.files.len() - 1);
                    shards.files.len() - 1
                }
            };
            shards.places.insert(tensor, number);
        }
        match shards.files.is_empty() {
            true => Err(Error::file(path.display().to_string(), "weight_map names no file")),
            false => Ok(shards),
        }
    }

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`].
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        // A tensor that the index leaves out is missed by the first file.
        self.files[self.places.get(name).copied().unwrap_or(0)].tensor(name, shape)
    }
}
