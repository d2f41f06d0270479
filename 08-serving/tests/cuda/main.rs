//! The engine over the GPU's kernels, run by the interpreter of PTX: what holds on the processor holds there.
//!
//! | File | Holds |
//! |---|---|
//! | `world.rs` | a small model in bfloat16, and engines for it |
//! | `engine.rs` | the processor's tokens; the same bits in any company, from any cache, with guesses and without |
//! | `likeliest.rs` | tokens that the device finds, and whose logits stay there |
//! | `rungs.rs` | rungs 02, 06 and 07 over it |
//! | `gpu_check.rs` | what `ladder gpu-check` runs |
//! | `command.rs` | `--device` and `gpu-check`, where there is no GPU |

mod command;
mod engine;
mod gpu_check;
mod likeliest;
mod rungs;
mod world;
