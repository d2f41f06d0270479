//! Prefill-decode disaggregation: one server reads prompts, another writes the answers.
//!
//! The one that writes asks `POST /prefill` of the one that reads, and gets keys and values, block after block, while the
//! prompt is being read. Each block comes with a checksum under its own name, which hangs on model, salt and text; so a
//! block of another text, of another model or damaged on its way is noticed, and is not used.
//!
//! | File | Holds |
//! |---|---|
//! | `prefill/worker.rs` | the side that reads: the route |
//! | `prefill/client.rs` | the side that writes: whom to ask, and what to do when nothing comes |
//! | `prefill/receive.rs` | one answer, from the connection to blocks |

mod client;
mod receive;
mod worker;

pub use client::{PrefillWorkers, WorkerAddress};
pub(super) use worker::prefill;

use paged_cache::offload::Key;
use serde::{Deserialize, Serialize};

/// Where it is asked.
pub(super) const PATH: &str = "/prefill";

/// Bytes of a block's checksum.
const SEAL: usize = 32;

// ANCHOR: ask
/// What is asked. The answer is a body of blocks, each followed by its [`seal`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// Stands for all that keys and values depend on besides the text.
    fingerprint: [u8; 32],
    /// What the text is kept under.
    salt: [u8; 32],
    /// The text, in whole blocks.
    tokens: Vec<u32>,
    /// How many of its first blocks need not come.
    known: usize,
}
// ANCHOR_END: ask

/// The checksum of a block's bytes under its name.
fn seal(name: Key, bytes: &[u8]) -> [u8; SEAL] {
    *blake3::keyed_hash(&name.0, bytes).as_bytes()
}
