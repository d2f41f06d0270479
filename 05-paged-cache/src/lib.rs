//! Rung 05: keys and values in blocks.
//!
//! A slab for each sequence has to be as long as the longest text that might come, and most of it is never
//! written. Here a sequence takes memory as it grows, sixteen tokens at a time, from one pool that all share;
//! a table says which block holds which tokens (PagedAttention, Kwon et al. 2023). Blocks can lie anywhere,
//! so nothing is lost between them. And two sequences may have the same block in their tables.
//!
//! | File | Holds |
//! |---|---|
//! | `blocks.rs` | which blocks are free, and how many hold each of the others |
//! | `layout.rs` | what a block contains: which layers' keys and values, and where in it |
//! | `table.rs` | which block holds which tokens of a sequence |
//! | `pages.rs` | the pool's memory, and the kernels' way into it |
//! | `paged_cache.rs` | sequences, their tables, and attention through them: growth, forks, copy on write |
//! | `parking.rs` | a sequence out of the pool, and back |
//! | `offload.rs` | tiers: somewhere else to keep blocks |
//! | `crowd.rs` | more requests than the pool has room for: preemption |
//! | `waste.rs` | how much memory is lost, and to what, under contiguous slabs and under blocks |
//! | `rung.rs` | the paged cache as a rung |
//! | `faults.rs` | what goes wrong with tables, references and tiers, on purpose |

mod blocks;
pub mod crowd;
pub mod faults;
mod layout;
pub mod offload;
mod paged_cache;
mod pages;
mod parking;
mod rung;
mod table;
pub mod waste;

pub use blocks::{BlockId, Blocks};
pub use layout::{Behind, Group, Layout, check_block_tokens};
pub use paged_cache::{PagedCache, Room};
pub use parking::Parked;
pub use rung::PAGED;
pub use table::{Table, Tables};
