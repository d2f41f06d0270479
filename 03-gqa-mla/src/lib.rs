//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |
//! | `evict.rs` | caches that keep a budget of entries, and how they choose |
//! | `sparse.rs` | a cache that keeps everything and reads blocks of it |
//! | `compaction.rs` | notes on a block instead of the block |
//! | `faults/` | what goes wrong with smaller caches, on purpose |

pub mod compaction;
mod entries;
pub mod evict;
pub mod faults;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quantized;
mod reading;
pub mod sparse;
mod tiles;

pub use reading::{Attended, Reading, attend_reading, dot};
