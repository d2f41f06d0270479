//! Rung 04: fewer bytes moved.
//!
//! A processor multiplies faster than memory delivers. Everything here makes one token cost fewer bytes:
//! attention that never writes its scores down, weights that are stored narrow and multiplied as they are,
//! passes over memory that are merged into one.
//!
//! | File | Holds |
//! |---|---|
//! | `threads.rs` | a pool of threads for regions of microseconds |
//! | `packed.rs` | weights stored narrow, and multiplied as they are stored |
//! | `faults.rs` | what goes wrong on purpose |
//! | `kernels.rs` | the inner loops of packed weights, for each instruction set |

pub mod faults;
pub mod kernels;
pub mod packed;
pub mod threads;
