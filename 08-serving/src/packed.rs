//! A model's files, packed for rung 04's kernels.

use flash_attention::packed::{Format, Packed, Packer, Rows, Weights};
use flash_attention::threads::Pool;
use model_files::{BlockType, ModelFiles};
use naive_decode::{LoadOptions, Model, Result};
use std::sync::Arc;

/// The model with its matrices packed for the pool's threads, and what became of them.
///
/// # Errors
/// Whatever is wrong with the files.
pub fn load_packed(
    files: &ModelFiles,
    weights: Weights,
    options: LoadOptions,
    pool: &Arc<Pool>,
) -> Result<(Model, Vec<Packed>)> {
    let stored = |name: &str| rows(files, name);
    let packer = Packer::new(weights, options.isa, pool, &stored);
    let model = files.assemble(options, &packer)?;
    Ok((model, packer.packed()))
}

/// A matrix as the file stores it, if the kernels can multiply that.
fn rows<'a>(files: &'a ModelFiles, name: &str) -> Result<Option<Rows<'a>>> {
    let Some(raw) = files.raw(name) else { return Ok(None) };
    let format = match raw.kind {
        BlockType::F32 => Format::F32,
        BlockType::F16 => Format::F16,
        BlockType::BF16 => Format::Bf16,
        BlockType::Q8_0 => Format::Q8_0,
        BlockType::Q4_0 => Format::Q4_0,
        BlockType::Q4_1 => Format::Q4_1,
        _ => return Ok(None),
    };
    let [outputs, inputs] = raw.shape[..] else { return Ok(None) };
    Rows::stored(format, outputs, inputs, raw.bytes).map(Some)
}
