//! Every kernel's committed PTX, run by the interpreter and held against a plain reference.
//!
//! | File | Holds |
//! |---|---|
//! | `gpu.rs` | the interpreter as a device: arrays in and out, launches |
//! | `numbers.rs` | inputs from a seed, bfloat16, how far results may be off |
//! | `rows.rs` | norms, SwiGLU, embedding, argmax, RoPE with the cache's writes |
//! | `gemm.rs` | matrix products |
//! | `paged_case.rs`, `paged.rs` | requests in a paged cache and their reference; attention over it |
//! | `mla.rs` | multi-head latent attention |
//! | `sampling.rs` | tokens drawn as the CPU's sampler draws them |
//! | `steps.rs` | the numbered steps, and what each is better at than the one before |
//! | `hopper.rs` | step 6 |
//! | `chapters.rs` | answers to the book's questions |
//! | `mutants.rs` | kernels broken on purpose, and what notices |

mod chapters;
mod gemm;
mod gpu;
mod hopper;
mod mla;
mod mutants;
mod numbers;
mod paged;
mod paged_case;
mod rows;
mod sampling;
mod steps;
