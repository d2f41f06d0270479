//! Every kernel against a plain reference, on any device.
//!
//! The tests run these under the interpreter, `ladder gpu-check` on a GPU: the same inputs from the same seeds, the same
//! references in f64, the same bounds.
//!
//! | File | Holds |
//! |---|---|
//! | `bench.rs` | arrays in a device's memory |
//! | `numbers.rs` | inputs from a seed, bfloat16, how far results may be off |
//! | `rows.rs` | norms, SwiGLU, embedding, argmax, RoPE with the cache's writes |
//! | `gemm.rs`, `gemm_blocks.rs` | matrix products, with weights in bf16, in bytes, in blocks |
//! | `paged.rs` | requests in a paged cache, and attention over it |
//! | `mla.rs` | multi-head latent attention |
//! | `sampling.rs` | tokens drawn as the CPU's sampler draws them |
//! | `steps.rs`, `hopper.rs` | the numbered steps |

mod bench;
pub mod gemm;
pub mod gemm_blocks;
pub mod hopper;
pub mod mla;
pub mod numbers;
pub mod paged;
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
    run: fn(&mut Bench) -> Result<(), Problem>,
}

impl Check {
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
    let check = |name, run: Run| Check { name, is_for_hopper: false, run };
    let for_hopper = |name, run: Run| Check { name, is_for_hopper: true, run };
    vec![
        check("norms, gate, embedding, argmax", rows::check),
        check("RoPE and the cache's writes", rows::check_rope),
        check("sampling", sampling::check),
        check("matrix products", gemm::check),
        check("matrix products with weights in blocks", gemm_blocks::check),
        check("attention over the paged cache", paged::check),
        check("multi-head latent attention", mla::check),
        check("attention, steps 1 to 5", steps::check),
        for_hopper("attention, step 6", hopper::check),
        for_hopper("attention over the paged cache, Hopper's", paged::check_hopper),
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
