//! Kernels for NVIDIA GPUs: the CUDA sources, the PTX that they compile to, and how each kernel is launched.
//!
//! | Place | What is there |
//! |---|---|
//! | `cuda/*.cu` | the sources, with each kernel's parameters and their shapes |
//! | `ptx/*.ptx` | what they compile to; committed, so that using them needs a driver and no compiler |
//! | `manifest.json` | which source, headers, flags and compiler gave which PTX, by SHA-256 |
//! | `compile.py` | writes the two above; with `--check` compares them byte for byte |
//! | `lint.py` | NVIDIA's assembler over all of them: spills and serialised products are errors |
//! | `src/launch/*.rs` | for each kernel a struct of its arrays and shapes, and from it a checked [`Launch`] |
//! | `src/gpu.rs` | the seam to a device that runs launches |
//! | `src/read.rs` | what a device gives in pieces, as numbers in a row |
//! | `src/check.rs`, `src/check/` | every kernel against a plain reference, on any device |
//! | `src/interpreter.rs` | the interpreter of PTX behind it: feature `interpreter` |
//! | `src/interpreted.rs` | a launch as the interpreter is given it |
//! | `src/small/` | a small launch of each kind of kernel, to watch in the interpreter |
//!
//! Every kernel is batch-invariant: what a row gives does not depend on the rows beside it. Activations are bfloat16,
//! sums are f32, and the order of every sum is fixed by the row's own shape alone. A [`Launch`] says all that there is
//! to say, so the interpreter that the tests run and a driver are given the same.

pub mod check;
mod gpu;
#[cfg(feature = "interpreter")]
mod interpreted;
#[cfg(feature = "interpreter")]
mod interpreter;
mod launch;
mod read;
#[cfg(feature = "interpreter")]
pub mod small;

pub use gpu::{DeviceError, DeviceResult, Gpu, Recording, Rows};
#[cfg(feature = "interpreter")]
pub use interpreter::Interpreter;
pub use launch::{
    Address, Argument, Error, Launch, Parts, TensorMap, attention, cache, gated, gemm, rows,
    sampling, steps,
};
pub use read::read_onto;
