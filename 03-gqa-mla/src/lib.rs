//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `fit.rs` | how much context and how large a batch fit a memory |
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |

pub mod evict;
pub mod fit;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quantized;
mod reading;

pub use reading::{Attended, Reading, attend_reading, dot};
