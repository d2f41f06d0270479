//! Models whose layers do not all look equally far, and do not all keep what they see.
//!
//! Most of what a token needs stands just before it. So most layers look back a window's length
//! only (sliding-window attention, Beltagy et al. 2020; Mistral 7B, Jiang et al. 2023), and one in
//! a few sees everything and carries what is far. Neighbouring layers may also read one set of keys
//! and values (Cross-Layer Attention, Brandon et al. 2024). Both are the model's own choices,
//! trained in; a cache only follows them: [`crate::HybridCache`].
//!
//! | File | Holds |
//! |---|---|
//! | `config.rs` | which layer has which window and shares with whom, read from `config.json` |
//! | `projection.rs` | queries and keys normed by head; a layer without keys and values |
//! | `load.rs` | from files to a model |
//! | `decoder.rs` | decoding with rings |

mod config;
mod decoder;
mod load;
mod projection;

pub use config::HybridConfig;
pub use decoder::{RING, start};
pub use load::{assemble, embedded, projection, random};
pub use projection::{HeadNorm, QkNorm, Sharing};
