//! Rung 06: prefixes shared between requests.
//!
//! Keys and values depend on the tokens before them and on nothing that comes after. So two requests that
//! begin alike (the same instructions, the same examples, the same conversation one turn later) have the
//! same keys and values for as long as they agree, and the second need not compute them again. Rung 05 put
//! them in blocks that several tables may point at. What is missing is somebody who knows, when a prompt
//! comes in, which blocks to point at: a [`PrefixCache`].
//!
//! | File | Holds |
//! |---|---|
//! | `cache.rs` | what every prefix cache can do: find, keep, evict |
//! | `nothing.rs` | none at all, behind the same interface |
//! | `radix.rs`, `radix/` | a radix tree over tokens (SGLang's RadixAttention) |
//! | `hashed.rs`, `hashed/` | blocks by a hash of all that comes before them (vLLM) |
//! | `salt.rs` | who may share with whom |
//! | `chain.rs` | names of blocks, each hashed from the name before it |
//! | `queue.rs` | what may go, the longest unused first |
//! | `pinned.rs` | prompts kept by a handle until they are let go (prompt caching in APIs) |
//! | `tiered.rs` | what is evicted goes to slower tiers, and comes back when it is asked for |
//! | `shared_pool.rs`, `shared_pool/` | requests over one pool and what is known of earlier ones, alone and in batches |
//! | `rung.rs` | the same as a rung |
//! | `faults.rs` | what goes wrong with shared prefixes, on purpose |
//! | `workload.rs`, `workload/` | requests that share as real ones do, and a replay of them against a cache |

mod cache;
mod chain;
pub mod faults;
mod hashed;
mod nothing;
mod pinned;
mod queue;
mod radix;
mod rung;
mod salt;
mod shared_pool;
mod tiered;
pub mod workload;

pub use cache::{Evicted, Prefix, PrefixCache, Statistics};
pub use chain::{BlockHash, Chain};
pub use hashed::{HashedBlocks, Policy};
pub use nothing::Nothing;
pub use pinned::{Handle, Lease, Pinned};
pub use radix::{Branch, RadixTree};
pub use rung::SHARED;
pub use salt::Salt;
pub use shared_pool::{ParkedSession, Session, SharedPool};
pub use tiered::{Aside, KvEvent, SavePoint, TierStatistics, Tiered};
