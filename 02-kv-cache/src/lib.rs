//! Rung 02: keep keys and values instead of computing them again.
mod cached;
mod contiguous;
mod decode;
mod extension;
mod list;
mod store;

pub use cached::{Cached, KvCache};
pub use contiguous::ContiguousStore;
pub use decode::{CONTIGUOUS, CachedDecoder, LISTS};
pub use extension::RopeScaling;
pub use list::ListStore;
pub use store::{KvShape, Place, Store};
