//! A file has a scale for every 32 weights, and a loader that takes one for the row.

use super::{TOKENS, predicts_alike};
use crate::packed::{Format, Packer, Rows, Weights};
use crate::threads::Pool;
use embedded_models::TARGET;
use kv_cache::CONTIGUOUS;
use naive_decode::break_it::{BreakIt, Side, Trial};
use naive_decode::{Checkpoint, Config, Error, LoadOptions, Model, Result, Settings};
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a block: its scale, then 32 codes.
const BLOCK: usize = 34;

// ANCHOR: first_scale
/// INT8 rows whose groups all have the scale of their row's first.
///
/// # Panics
/// If the rows are not INT8.
pub fn first_scale_for_all(rows: &mut Rows) {
    assert_eq!(rows.format, Format::Q8_0, "rows of INT8");
    let row_bytes = rows.format.row_bytes(rows.inputs);
    for row in rows.bytes.to_mut().chunks_exact_mut(row_bytes) {
        let first = [row[0], row[1]];
        row.chunks_exact_mut(BLOCK).for_each(|block| block[..2].copy_from_slice(&first));
    }
}
// ANCHOR_END: first_scale

/// Only the first group's scale.
pub const GROUP_SCALE: BreakIt = BreakIt {
    name: "group-scale",
    package: "flash-attention",
    cites: &["inference lesson, quantised weights", "group sizes in GPTQ and AWQ checkpoints"],
    symptom: "every code is right and the text drifts: all groups of a row are as large as its first",
    guard: "predictions along the prompt part from full precision's by less than 0.1 nats a token",
    weaker_test: Some("every code of a matrix is the file's"),
    run: |bench| {
        bench.only_embedded("the embedded weights, packed wrongly")?;
        let options = LoadOptions::default();
        let full = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options)?;
        let checkpoint = Checkpoint::embedded("target/model.safetensors", TARGET.weights)?;
        let model = |side| model(&checkpoint, side);
        let decoder = |side| {
            let model = Arc::new(model(side)?);
            let settings =
                Settings { capacity: model.context(), prefill_chunk: None, threads: None };
            (CONTIGUOUS.start)(model, settings)
        };
        let guard = |side| predicts_alike(bench, &full, &model(side)?);
        let weaker = |side| codes_are_the_files(&checkpoint, side);
        Trial {
            about: &GROUP_SCALE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A matrix of the embedded target as a file of INT8 would have it.
fn rows(checkpoint: &Checkpoint, name: &str, side: Side) -> Result<Option<Rows<'static>>> {
    let view = checkpoint.view(name);
    let Some(&[outputs, inputs]) = view.as_ref().map(|view| view.shape()) else { return Ok(None) };
    let weights = checkpoint.tensor(name, &[outputs, inputs])?;
    let mut rows = Rows::encoded(Format::Q8_0, &weights, outputs, inputs)?;
    if side == Side::Broken {
        first_scale_for_all(&mut rows);
    }
    Ok(Some(rows))
}

fn model(checkpoint: &Checkpoint, side: Side) -> Result<Model> {
    let config = Config::from_json("target/config.json", TARGET.config)?;
    let options = LoadOptions::default();
    let stored = |name: &str| rows(checkpoint, name, side);
    let packer = Packer::new(Weights::AsStored, options.isa, &Pool::new(1), &stored);
    let tensors = |name: &str, shape: &[usize]| checkpoint.tensor(name, shape);
    Model::assemble(config, options, &tensors, &packer)
}

/// Compares codes, and forgets what they are to be multiplied by.
fn codes_are_the_files(checkpoint: &Checkpoint, side: Side) -> Result<()> {
    let name = "model.layers.0.mlp.down_proj.weight";
    let codes = |rows: Option<Rows<'static>>| -> Vec<u8> {
        let bytes = rows.map_or(Cow::default(), |rows| rows.bytes);
        bytes.chunks_exact(BLOCK).flat_map(|block| block[2..].to_vec()).collect()
    };
    let (expected, found) =
        (codes(rows(checkpoint, name, Side::Clean)?), codes(rows(checkpoint, name, side)?));
    match expected == found {
        true => Ok(()),
        false => Err(Error::invalid(format!("codes of `{name}`"), "others", "the file's")),
    }
}
