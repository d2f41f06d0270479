//! Rung 02: keep keys and values instead of computing them again.
//!
//! A token's keys and values depend on it and on what came before it, never on what comes after. So
//! they can be computed once and kept. The next token then needs one row of work: its own query, key
//! and value, and a look at everything kept. Queries are not kept, for no later step asks them again.
//!
//! | File | Holds |
//! |---|---|
//! | `store.rs` | where keys and values are kept, and how many bytes that takes |
//! | `list.rs` | lists that grow, as microGPT has them |
//! | `contiguous.rs` | one slab, set aside beforehand |
//! | `lengths.rs` | how many tokens are held, and which passes and rollbacks that allows |
//! | `cached.rs` | attention over any store: write once, read ever after; rollback and reset |
//! | `executor.rs` | a model with a cache, on whatever device |
//! | `decode.rs` | prefill and decode through one forward function |
//! | `extension.rs` | contexts past the trained length: interpolation, NTK-aware, YaRN |
//! | `faults/` | what goes wrong with caches, on purpose |

mod cached;
mod contiguous;
mod decode;
mod executor;
mod extension;
pub mod faults;
mod lengths;
mod list;
mod store;

pub use cached::{Cached, KvCache};
pub use contiguous::ContiguousStore;
pub use decode::{CONTIGUOUS, CachedDecoder, LISTS};
pub use executor::CachedExecutor;
pub use extension::RopeScaling;
pub use lengths::Lengths;
pub use list::ListStore;
pub use store::{KvShape, Place, Store};
