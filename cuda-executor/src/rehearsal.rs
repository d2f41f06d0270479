//! Passes of a model that is nowhere yet: which kernels they launch, and how many launches they are.

use crate::forward::{FEW_ROWS, Forward, Scratch};
use crate::prompts::PromptKernel;
use crate::shared::failed;
use crate::staging::Staged;
use crate::weights::{Weights, check};
use cuda_kernels::{Gpu, Launch};
use naive_decode::{Config, Result};

/// Makes the kernels that a model's passes launch ready on a device. So kernels that the driver cannot compile are found out
/// before anything is set aside, and no request waits for the compiler. (Hopper's own kernel for prompts is none of them: it
/// has a trial of its own.)
///
/// # Errors
/// If the kernels do not fit the model's sizes, or the device cannot have one of them.
pub fn prepare<G: Gpu>(gpu: &mut G, config: &Config) -> Result<()> {
    for rows in [1, FEW_ROWS + 1] {
        gpu.prepare(&launches(config, rows)?).map_err(failed)?;
    }
    Ok(())
}

/// What a pass of so many rows of one sequence launches, one of which wants logits. No address in it means anything.
pub(crate) fn launches(config: &Config, rows: usize) -> Result<Vec<Launch>> {
    let heads = check(config)?;
    let nowhere = &mut |_| Ok(0);
    let scratch = Scratch::new(nowhere, config, heads, (rows, rows)).map_err(failed)?;
    let forward = Forward {
        config: config.clone(),
        heads,
        weights: Weights::nowhere(config),
        turns: 0,
        pool: 0,
        scratch,
        blocks: 1,
        prompts: PromptKernel::Usual,
    };
    forward.step(&Staged::nowhere(rows), 1)
}
