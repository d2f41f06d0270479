//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `fit.rs` | how much context and how large a batch fit a memory |
//! | `quantized/` | codes instead of numbers: INT8, FP8, KIVI, TurboQuant |
//! | `quality/` | what a cache that loses something costs: perplexity, KL, agreement, recall |
//! | `faults/` | what goes wrong with smaller caches, on purpose |
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |

pub mod evict;
pub mod faults;
pub mod fit;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quality;
pub mod quantized;
mod reading;

pub use reading::{Attended, Reading, attend_reading, dot};
