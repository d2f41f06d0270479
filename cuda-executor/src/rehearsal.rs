//! Passes of a model that is nowhere yet: which kernels they launch, and how many launches they are.

use crate::forward::{FEW_ROWS, Forward, Scratch};
use crate::prompts::PromptKernels;
use crate::shared::failed;
use crate::staging::Staged;
use crate::weights::{Weights, check};
use cuda_kernels::{Gpu, Launch};
use naive_decode::{Config, Error, Result};

/// Makes the kernels that a model's passes launch ready on a device. So kernels that the driver cannot compile are found out
/// before anything is set aside, and no request waits for the compiler. (Hopper's own kernels for prompts are none of them:
/// they have a trial of their own, before a request comes.)
///
/// # Errors
/// If the kernels do not fit the model's sizes, or the device cannot have one of them.
pub fn prepare<G: Gpu>(gpu: &mut G, config: &Config) -> Result<()> {
    // Of few rows, of more, and of many.
    for rows in [1, FEW_ROWS, FEW_ROWS + 1] {
        gpu.prepare(&launches(config, rows)?).map_err(failed)?;
    }
    gpu.prepare(&[nowhere(config)?.argmax(0, 1)?]).map_err(failed)
}

/// Whether passes of a room's size can be launched at all: grids and the kernels' 32-bit indices have an end.
///
/// # Errors
/// If the kernels do not fit the model's sizes, or passes of so many rows do not fit the kernels; names what does not.
pub(crate) fn check_rows(config: &Config, rows: usize) -> Result<()> {
    // A model that fits no pass has to be told from a room that is too large.
    launches(config, 1)?;
    launches(config, rows).map(|_| ()).map_err(|problem| {
        let expected = format!("as many as the kernels take ({problem})");
        Error::invalid("rows of a room on the device", rows, expected)
    })
}

/// What a pass of so many rows of one sequence launches, of which as many want logits as the head takes at a time. No address in
/// it means anything.
pub(crate) fn launches(config: &Config, rows: usize) -> Result<Vec<Launch>> {
    nowhere(config)?.step(&Staged::nowhere(rows), rows.min(FEW_ROWS))
}

/// A model all of whose addresses are 0.
fn nowhere(config: &Config) -> Result<Forward> {
    let heads = check(config)?;
    // Nothing is set aside, so its size does not matter.
    let scratch = Scratch::new(&mut |_| Ok(0), config, heads, (1, 1)).map_err(failed)?;
    Ok(Forward {
        config: config.clone(),
        heads,
        weights: Weights::nowhere(config),
        turns: 0,
        pool: 0,
        scratch,
        blocks: 1,
        prompts: PromptKernels::Usual,
    })
}
