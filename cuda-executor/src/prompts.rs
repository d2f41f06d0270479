//! Which of two kernels prompts take.

use crate::shared::failed;
use cuda_kernels::check::{Bench, paged};
use cuda_kernels::{DeviceError, Gpu};
use naive_decode::Result;
use std::fmt;

/// The variable of the environment that keeps Hopper's own kernel from being used, or tried.
const OFF: &str = "LADDER_NO_HOPPER";

/// The kernel that attention over prompts is launched with.
///
/// A row of a pass goes through the kernels for few rows or through the one for many, depending on who is beside it. Its
/// bits must not. Kernels with the same instructions give the same bits; whether Hopper's own, `wgmma`, round as those
/// do is not documented, so each device is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptKernel {
    /// The one for compute capability 8.0 and newer.
    Usual,
    /// Hopper's own. On this device it gave the bits of the usual one.
    Hopper,
    /// The usual one, though the device is a Hopper; and why.
    NotHopper(String),
}

impl PromptKernel {
    /// Runs a small case through both kernels, if the device is a Hopper. `head_dim`: elements of a head, 64 or 128.
    ///
    /// # Errors
    /// If the device has failed in it. It runs nothing any more then.
    pub(crate) fn choose(gpu: &mut dyn Gpu, head_dim: usize) -> Result<Self> {
        Self::choose_if(std::env::var_os(OFF).is_none(), gpu, head_dim)
    }

    fn choose_if(is_wanted: bool, gpu: &mut dyn Gpu, head_dim: usize) -> Result<Self> {
        if !gpu.is_hopper() {
            return Ok(PromptKernel::Usual);
        }
        if !is_wanted {
            return Ok(PromptKernel::NotHopper(format!("{OFF} is set")));
        }
        let heads = if head_dim == paged::NARROW.head_dim { paged::NARROW } else { paged::WIDE };
        let problem = match paged::hopper_gives_the_same_bits(&mut Bench::new(gpu), heads) {
            Ok(true) => return Ok(PromptKernel::Hopper),
            Ok(false) => "Hopper's gives other bits on this device".to_owned(),
            Err(problem) => {
                // A kernel that was refused leaves the device as it was. One that has failed takes it along: all that is
                // asked of it afterwards fails, and would seem to be what is wrong.
                gpu.finish().map_err(|_| {
                    failed(DeviceError(format!(
                        "Hopper's kernel for prompts failed when it was tried: {problem}; with {OFF}=1 in the environment prompts take the usual kernel"
                    )))
                })?;
                format!("Hopper's cannot be run: {problem}")
            }
        };
        tracing::warn!("prompts take the usual kernel: {problem}");
        Ok(PromptKernel::NotHopper(problem))
    }
}

impl fmt::Display for PromptKernel {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            PromptKernel::Usual => f.write_str("the usual kernel"),
            PromptKernel::Hopper => f.write_str("Hopper's kernel"),
            PromptKernel::NotHopper(problem) => write!(f, "the usual kernel: {problem}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_kernels::Interpreter;

    #[test]
    fn hoppers_kernel_can_be_turned_off() {
        let mut gpu = Interpreter::new();
        let mut choose = |is_hopper, is_wanted| {
            gpu.is_hopper = is_hopper;
            PromptKernel::choose_if(is_wanted, &mut gpu, 64).unwrap().to_string()
        };
        assert_eq!(choose(true, false), "the usual kernel: LADDER_NO_HOPPER is set");
        assert_eq!(choose(true, true), "Hopper's kernel");
        assert_eq!(choose(false, false), "the usual kernel");
    }
}
