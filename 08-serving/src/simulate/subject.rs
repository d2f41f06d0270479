//! What is simulated: a published shape, or a model whose files are here.

use crate::simulator::{SimulatedModel, Storage};
use anyhow::{Result, ensure};
use model_files::ModelFiles;
use naive_decode::roofline::{PUBLISHED, PublishedShape, Shape, published};
use naive_decode::{Error, Model};

/// The published shape of this name.
///
/// # Errors
/// If there is none; all names are said.
pub(super) fn named(name: &str) -> Result<&'static PublishedShape> {
    let known: Vec<&str> = PUBLISHED.iter().map(|model| model.name).collect();
    let refused = || Error::invalid("the shape", format!("\"{name}\""), known.join(", "));
    Ok(published(name).ok_or_else(refused)?)
}

/// A published shape, counted.
///
/// # Errors
/// See [`SimulatedModel::new`].
pub(super) fn of_shape(model: &PublishedShape, storage: Storage) -> Result<SimulatedModel> {
    let PublishedShape { name, shape, window, context } = *model;
    let windows = vec![window; shape.layers];
    let parameters = shape.parameters();
    Ok(SimulatedModel::new(name, &shape, parameters, &windows, context, storage)?)
}

/// A model's files, counted.
///
/// # Errors
/// See [`SimulatedModel::new`].
pub fn of_files(files: &ModelFiles, context: usize, storage: Storage) -> Result<SimulatedModel> {
    let shape = Shape::from(&files.config);
    let (parameters, windows) = (files.parameters() as u64, files.windows());
    Ok(SimulatedModel::new(&files.name, &shape, parameters, &windows, context, storage)?)
}

/// How a model that has been loaded is stored.
///
/// # Errors
/// If it keeps nothing of a token.
pub fn storage_of(files: &ModelFiles, model: &Model) -> Result<Storage> {
    let shape = Shape::from(&files.config);
    let numbers = 2 * shape.kv_heads * shape.head_dim * shape.layers;
    ensure!(numbers > 0, "{} keeps nothing of a token", files.name);
    let bits = |bytes: usize, numbers: usize| 8.0 * bytes as f64 / numbers as f64;
    let weight_bits = bits(model.weight_bytes(), files.parameters());
    let kv_bits = bits(model.kv_bytes_per_token(), numbers);
    Ok(Storage { weight_bits, kv_bits, ..Storage::BF16 })
}
