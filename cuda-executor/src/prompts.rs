//! Which of two kernels prompts take, for attention and for matrix products.

use crate::shared::failed;
use cuda_kernels::check::{Bench, Problem, gemm, paged};
use cuda_kernels::{DeviceError, Gpu};
use naive_decode::Result;
use std::fmt;

/// The variable of the environment that keeps Hopper's own kernels from being used, or tried.
const OFF: &str = "LADDER_NO_HOPPER";

/// The kernels that attention over prompts, and matrix products with their many rows, are launched with.
///
/// A row of a pass goes through the kernels for few rows or through those for many, depending on who is beside it. Its
/// bits must not. Kernels with the same instructions give the same bits; whether Hopper's own, `wgmma`, round as those do
/// is not documented, so each device is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptKernels {
    /// Those for compute capability 8.0 and newer.
    Usual,
    /// Hopper's own. On this device they gave the bits of the usual ones.
    Hopper,
    /// The usual ones, though the device is a Hopper; and why.
    NotHopper(String),
}

impl PromptKernels {
    /// Runs small cases through both kernels of each kind, if the device is a Hopper: Hopper's are used if all of them give
    /// the same bits. `head_dim`: elements of a head, 64 or 128.
    ///
    /// # Errors
    /// If the device has failed in one. It runs nothing any more then.
    pub(crate) fn choose(gpu: &mut dyn Gpu, head_dim: usize) -> Result<Self> {
        Self::choose_if(std::env::var_os(OFF).is_none(), gpu, head_dim)
    }

    fn choose_if(is_wanted: bool, gpu: &mut dyn Gpu, head_dim: usize) -> Result<Self> {
        if !gpu.is_hopper() {
            return Ok(PromptKernels::Usual);
        }
        if !is_wanted {
            return Ok(PromptKernels::NotHopper(format!("{OFF} is set")));
        }
        let heads = if head_dim == paged::NARROW.head_dim { paged::NARROW } else { paged::WIDE };
        type Trial<'a> = &'a dyn Fn(&mut Bench) -> std::result::Result<bool, Problem>;
        let trials: [(&str, Trial); 2] = [
            ("attention", &|gpu| paged::hopper_gives_the_same_bits(gpu, heads)),
            ("matrix product", &gemm::hopper_gives_the_same_bits),
        ];
        for (what, trial) in trials {
            let problem = match trial(&mut Bench::new(gpu)) {
                Ok(true) => continue,
                Ok(false) => format!("Hopper's {what} gives other bits on this device"),
                Err(problem) => {
                    // A kernel that was refused leaves the device as it was. One that has failed takes it along: all that
                    // is asked of it afterwards fails, and would seem to be what is wrong.
                    gpu.finish().map_err(|_| {
                        failed(DeviceError(format!(
                            "Hopper's {what} for prompts failed when it was tried: {problem}; with {OFF}=1 in the environment prompts take the usual kernels"
                        )))
                    })?;
                    format!("Hopper's {what} cannot be run: {problem}")
                }
            };
            tracing::warn!("prompts take the usual kernels: {problem}");
            return Ok(PromptKernels::NotHopper(problem));
        }
        Ok(PromptKernels::Hopper)
    }
}

impl fmt::Display for PromptKernels {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PromptKernels::Usual => f.write_str("the usual kernels"),
            PromptKernels::Hopper => f.write_str("Hopper's kernels"),
            PromptKernels::NotHopper(problem) => write!(f, "the usual kernels: {problem}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_kernels::Interpreter;

    #[test]
    fn hoppers_kernels_can_be_turned_off() {
        let mut gpu = Interpreter::new();
        let mut choose = |is_hopper, is_wanted| {
            gpu.is_hopper = is_hopper;
            PromptKernels::choose_if(is_wanted, &mut gpu, 64).unwrap().to_string()
        };
        assert_eq!(choose(true, false), "the usual kernels: LADDER_NO_HOPPER is set");
        assert_eq!(choose(true, true), "Hopper's kernels");
        assert_eq!(choose(false, false), "the usual kernels");
    }
}
