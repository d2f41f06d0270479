//! Rung 04: fewer bytes moved.
//!
//! A processor multiplies faster than memory delivers. Everything here makes one token cost fewer bytes:
//! attention that never writes its scores down, weights that are stored narrow and multiplied as they are,
//! passes over memory that are merged into one.
//!
//! | File | Holds |
//! |---|---|
//! | `flash_cache.rs` | the cache that serves: keys and values kept in tiles, as the kernels read them |

mod flash_cache;

pub use flash_cache::{FlashCache, TILES};
