//! A model's passes on a GPU, behind the seam that the processor's executor has.
//!
//! A [`CudaExecutor`] has the weights of a Llama in bfloat16, a paged pool of keys and values, and the kernels of
//! `cuda-kernels` between them. It knows its device through [`Gpu`] alone: memory and launches. [`Driver`] is one, by way of
//! CUDA's driver; the interpreter of PTX is another, and with it the tests run whole models on any processor.
//!
//! | File | Holds |
//! |---|---|
//! | `gpu.rs` | the seam |
//! | `driver.rs` | CUDA's driver behind it, or one line that says why there is none |
//! | `weights.rs` | a Llama's weights on the device |
//! | `sequences.rs` | which blocks hold which tokens |
//! | `staging.rs` | a pass as the kernels want it |
//! | `executor.rs` | the passes |
//! | `decoder.rs` | one sequence that grows |

mod decoder;
mod driver;
mod executor;
mod gpu;
mod sequences;
mod staging;
mod weights;

pub use decoder::CudaDecoder;
pub use driver::Driver;
pub use executor::{CudaExecutor, Room};
pub use gpu::Gpu;
