//! Which of two kernels prompts take.

use cuda_kernels::Gpu;
use cuda_kernels::check::{Bench, paged};
use std::fmt;

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
    pub(crate) fn choose(gpu: &mut dyn Gpu, head_dim: usize) -> Self {
        if !gpu.is_hopper() {
            return PromptKernel::Usual;
        }
        let heads = if head_dim == paged::NARROW.head_dim { paged::NARROW } else { paged::WIDE };
        let problem = match paged::hopper_gives_the_same_bits(&mut Bench::new(gpu), heads) {
            Ok(true) => return PromptKernel::Hopper,
            Ok(false) => "Hopper's gives other bits on this device".to_owned(),
            Err(problem) => format!("Hopper's cannot be run: {problem}"),
        };
        tracing::warn!("prompts take the usual kernel: {problem}");
        PromptKernel::NotHopper(problem)
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
