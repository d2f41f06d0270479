//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |
//! | `evict.rs` | caches that keep a budget of entries, and how they choose |

mod entries;
pub mod evict;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quantized;
mod reading;
mod tiles;

pub use reading::{Attended, Reading, attend_reading, dot};
