//! Rung 03: smaller caches.
//!
//! | File | Holds |
//! |---|---|
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |
//! | `heads.rs` | the same weights with more or fewer key-value heads |
//! | `mla.rs` | latent attention, explicit and absorbed |
//! | `experts.rs` | mixture of experts, which the models with latent attention have |
//! | `faults/` | what goes wrong with smaller caches, on purpose |

pub mod evict;
pub mod experts;
pub mod faults;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quantized;
mod reading;

pub use reading::{Attended, Reading, attend_reading, dot};
