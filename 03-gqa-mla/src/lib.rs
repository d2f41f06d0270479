//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `fit.rs` | how much context and how large a batch fit a memory |
//! | `hybrid.rs` | models with windows, QK norm and layers that share keys and values |
//! | `ring.rs` | a cache that keeps of each layer what that layer can still look at |
//! | `faults/` | what goes wrong with smaller caches, on purpose |
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |

pub mod evict;
pub mod faults;
pub mod fit;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quantized;
mod reading;
mod ring;

pub use reading::{Attended, Reading, attend_reading, dot};
pub use ring::{HybridCache, Room};
