//! Attention over keys and values that are kept in tiles, wherever the tiles lie.
//!
//! A tile is sixteen positions side by side, so that a register of keys gives sixteen scores. Nothing is
//! copied, each key and value is loaded once for all the query heads that share it, and work is shared out by
//! head, rows and split. The sums of floats are those of [`naive_decode::attend_span`], in the same order.
//!
//! Where tiles lie is a [`TileSource`]'s business: one stretch of memory for a sequence
//! ([`FlashCache`](crate::FlashCache)), or blocks all over a pool (rung 05).
//!
//! | File | Holds |
//! |---|---|
//! | `source.rs` | where tiles lie |
//! | `element.rs` | the type of one number: f32, bf16, pairs of bf16, f16, INT8 |
//! | `line.rs` | the places that rows see, as runs of tiles |
//! | `work.rs` | what is shared out among threads |
//! | `unit.rs` | one key-value head and the queries that meet it together |
//! | `tiles.rs` | the tiles of one split, in order |
//! | `run.rs` | one split of attention over what is kept |
//! | `ways.rs` | the ways of multiplying: floats, pairs of BF16, whole numbers |
//! | `scores.rs`, `values.rs` | the two kernels of floats |
//! | `products.rs` | the innermost step of both |
//! | `columns.rs` | the second one where values are the beginnings of keys, as in absorbed latent attention |
//! | `pairs.rs`, `pairs/` | the two kernels of pairs |
//! | `codes.rs` | the two of whole numbers |
//! | `blocks.rs` | queries by the handful |

mod blocks;
mod codes;
mod columns;
mod element;
mod line;
mod pairs;
mod products;
mod run;
mod scores;
mod source;
mod tiles;
mod unit;
mod values;
mod ways;
mod work;

pub use crate::kernels::digits::rows::Code;
pub use element::{KvType, Paired, TileElement, put_key, put_value};
pub use run::Run;
pub use source::{Gathered, TileSource};
pub use work::{Workers, attend};
