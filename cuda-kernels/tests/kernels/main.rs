//! Every kernel's committed PTX, run by the interpreter: right, as `cuda_kernels::check` has it, and what can be counted.
//!
//! | File | Holds |
//! |---|---|
//! | `gpu.rs` | the interpreter as a device: arrays in and out, launches |
//! | `checks.rs` | every kernel against its reference, and that none is left out |
//! | `gemm.rs` | matrix products |
//! | `gemm_blocks.rs` | the same with weights in INT4 and FP8 |
//! | `paged_case.rs`, `paged.rs` | attention over the paged cache |
//! | `fp8.rs` | keys and values in FP8 |
//! | `mla.rs` | multi-head latent attention |
//! | `steps.rs` | the numbered steps, and what each is better at than the one before |
//! | `hopper.rs` | step 6 |
//! | `paged_hopper.rs` | attention over the paged cache with Hopper's instructions |
//! | `chapters.rs` | answers to the book's questions |
//! | `mutants.rs` | kernels broken on purpose, and what notices |
//! | `mutants_hopper.rs` | what only Hopper's kernels have to break |

mod chapters;
mod checks;
mod fp8;
mod gemm;
mod gemm_blocks;
mod gpu;
mod hopper;
mod mla;
mod mutants;
mod mutants_hopper;
mod paged;
mod paged_case;
mod paged_hopper;
mod steps;
