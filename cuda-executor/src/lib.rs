//! A model's passes on a GPU, behind the seam that the processor's executor has.
//!
//! A [`CudaExecutor`] has the weights of a Llama in bfloat16, a paged pool of keys and values, and the kernels of
//! `cuda-kernels` between them. It knows its device through [`Gpu`](cuda_kernels::Gpu) alone: memory and launches. [`Driver`] is one, by
//! way of CUDA's driver; the interpreter of PTX is another, and with it the tests run whole models on any processor.
//!
//! | File | Holds |
//! |---|---|
//! | `driver.rs`, `driver/` | CUDA's driver, or one line that says why there is none |
//! | `weights.rs` | a Llama's weights on the device, and which models fit |
//! | `heads.rs` | a model's heads in the kernels' widths |
//! | `memory.rs` | the pool's memory, as rung 05's tables see it |
//! | `room.rs` | how much of its memory a model takes |
//! | `rehearsal.rs` | passes of a model that is nowhere yet: which kernels have to be there |
//! | `staging.rs` | a pass as the kernels want it |
//! | `forward.rs` | a pass as launches |
//! | `prompts.rs` | which kernels prompts take: Hopper's own only after the device has shown that they change no bit |
//! | `graphs.rs` | decoding steps recorded once and played again |
//! | `shared.rs` | one device, two owners |
//! | `executor.rs` | the passes |

mod driver;
mod executor;
mod forward;
mod graphs;
mod heads;
mod memory;
mod prompts;
mod rehearsal;
mod room;
mod shared;
mod staging;
mod weights;

pub use driver::Driver;
pub use executor::CudaExecutor;
pub use prompts::PromptKernels;
pub use rehearsal::prepare;
pub use room::Room;
pub use weights::kv_bytes_per_token;
