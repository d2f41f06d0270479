//! Rung 03: smaller caches.
//!
//! A cache costs bytes for every token, and a server's memory decides how many tokens it can remember for
//! how many people. There are four ways to pay less, and all are here: fewer heads that are kept, something
//! smaller than heads, fewer layers or tokens that are kept, and narrower numbers.
//!
//! | File | Holds |
//! |---|---|
//! | `fit.rs` | how much context and how large a batch fit a memory |
//! | `heads.rs` | the same weights with more or fewer key-value heads |
//! | `mla.rs` | latent attention, explicit and absorbed |
//! | `experts.rs` | mixture of experts, which the models with latent attention have |
//! | `hybrid.rs` | models with windows, QK norm and layers that share keys and values |
//! | `ring.rs` | a cache that keeps of each layer what that layer can still look at |
//! | `quantized.rs` | codes instead of numbers: INT8, FP8, KIVI, TurboQuant |
//! | `evict.rs` | caches that keep a budget of entries, and how they choose |
//! | `sparse.rs` | a cache that keeps everything and reads blocks of it |
//! | `compaction.rs` | notes on a block instead of the block |
//! | `reading.rs` | attention over caches whose keys and values are codes, or not all there |
//! | `entries.rs`, `tiles.rs` | entries of which single ones can be dropped; the same laid out for a pass |
//! | `quality.rs` | what a cache that loses something costs: perplexity, KL, agreement, recall |
//! | `faults.rs` | what goes wrong with smaller caches, on purpose |

pub mod compaction;
mod entries;
pub mod evict;
pub mod experts;
pub mod faults;
pub mod fit;
pub mod heads;
pub mod hybrid;
pub mod mla;
pub mod quality;
pub mod quantized;
mod reading;
mod ring;
pub mod sparse;
mod tiles;

pub use reading::{Attended, Reading, attend_reading};
pub use ring::{HybridCache, Maker, Room, makers};
