//! Every kernel against a plain reference, on any device.
//!
//! The tests run these under the interpreter, `ladder gpu-check` on a GPU: the same inputs from the same seeds, the same
//! references in f64, the same bounds.
//!
//! | File | Holds |
//! |---|---|
//! | `bench.rs` | arrays in a device's memory |
//! | `memory.rs` | the device itself: memory, copies, recorded launches |
//! | `numbers.rs` | inputs from a seed, bfloat16, how far results may be off |
//! | `rows.rs` | norms, SwiGLU, embedding, argmax, RoPE with the cache's writes |
//! | `parts.rs` | the same of products whose splits are still apart |
//! | `gemm.rs`, `gemm_blocks.rs` | matrix products, with weights in bf16, in bytes, in blocks |
//! | `gated.rs` | the first product of a feed-forward layer with its gate |
//! | `paged.rs` | requests in a paged cache, and attention over it |
//! | `mla.rs` | multi-head latent attention |
//! | `sampling.rs` | tokens drawn as the CPU's sampler draws them |
//! | `steps.rs`, `hopper.rs` | the numbered steps |

mod bench;
mod gated;
pub mod gemm;
pub mod gemm_blocks;
pub mod hopper;
mod memory;
pub mod mla;
pub mod numbers;
pub mod paged;
mod parts;
mod rows;
pub mod sampling;
pub mod steps;

pub use bench::{Bench, Buffer};

use crate::gpu::{DeviceError, Gpu};
use std::fmt::Debug;

/// Why a kernel has not passed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shape is none that the kernel can be launched for.
    #[error(transparent)]
    Launch(#[from] crate::Error),
    /// The result is not what it should be.
    #[error("{0}")]
    Wrong(String),
}

/// Some kernels, and whether they give what they should.
pub struct Check {
    /// Which kernels.
    pub name: &'static str,
    /// Whether they are for devices of compute capability 9.0 and no others.
    pub is_for_hopper: bool,
    /// The most shared memory that a block of theirs asks for, in bytes.
    pub shared_bytes: u32,
    run: fn(&mut Bench) -> Result<(), Problem>,
}

impl Check {
    /// Why a device cannot run them, if it cannot.
    pub fn left_out(&self, device: &dyn Gpu) -> Option<String> {
        if self.is_for_hopper && !device.is_hopper() {
            return Some("for compute capability 9.0 alone".into());
        }
        let (wanted, most) = (self.shared_bytes, device.shared_bytes());
        (wanted > most)
            .then(|| format!("it takes {wanted} bytes of shared memory; a block may have {most}"))
    }

    /// Runs them on a device.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn run(&self, device: &mut dyn Gpu) -> Result<(), Problem> {
        (self.run)(&mut Bench::new(device))
    }
}

/// All of them: between them they launch every kernel there is.
pub fn all() -> Vec<Check> {
    type Run = fn(&mut Bench) -> Result<(), Problem>;
    let check = |name, shared_bytes, run: Run| {
        let is_for_hopper = false;
        Check { name, is_for_hopper, shared_bytes, run }
    };
    let for_hopper = |name, shared_bytes, run: Run| {
        let is_for_hopper = true;
        Check { name, is_for_hopper, shared_bytes, run }
    };
    vec![
        check("memory, copies, recorded launches", 0, memory::check),
        check("norms, gate, embedding, argmax", 0, rows::check),
        check("RoPE and the cache's writes", 0, rows::check_rope),
        check("norms and RoPE of products in splits", 16_416, parts::check),
        check("sampling", 0, sampling::check),
        check("matrix products", 98_304, gemm::check),
        check("matrix products with their gates", 65_536, gated::check),
        check("matrix products with weights in blocks", 98_304, gemm_blocks::check),
        check("attention over the paged cache", 81_920, paged::check),
        check("multi-head latent attention", 152_064, mla::check),
        check("attention, steps 1 to 5", 0, steps::check),
        for_hopper("matrix products, Hopper's", 163_904, gemm::check_hopper),
        for_hopper("attention, step 6", 163_912, hopper::check),
        for_hopper("attention over the paged cache, Hopper's", 163_976, paged::check_hopper),
    ]
}

/// Whether both have the same elements, bit for bit.
fn same<T: PartialEq + Debug>(what: &str, found: &[T], right: &[T]) -> Result<(), Problem> {
    if found.len() != right.len() {
        let (found, right) = (found.len(), right.len());
        return Err(Problem::Wrong(format!("{what}: {found} elements, right are {right}")));
    }
    match found.iter().zip(right).position(|(found, right)| found != right) {
        None => Ok(()),
        Some(i) => {
            let (found, right) = (&found[i], &right[i]);
            Err(Problem::Wrong(format!("{what}: element {i} is {found:?}, right is {right:?}")))
        }
    }
}
