//! Attention in every form of this rung, and fused blocks, against rung 01's, bit for bit; and the bytes that
//! each moves.
//!
//! | File | Proves |
//! |---|---|
//! | `textbook.rs` | standard, both FlashAttentions, Flash-Decoding, the unified maximum = `attend_span` |
//! | `bytes.rs` | counted traffic = the formulas; the published 32x |
//! | `flash_cache.rs` | the cache in tiles = rung 02's contiguous cache, pass by pass |
//! | `fast_attention.rs`, `codes.rs` | the cache's BF16 pairs, and its INT8, = their definitions |
//! | `fusion.rs` | the rules find the fusions; fused = unfused, and moves less |
//! | `case.rs`, `second_pass.rs` | the random cases of attention |

mod bytes;
mod case;
mod codes;
mod fast_attention;
mod flash_cache;
mod fusion;
mod second_pass;
mod textbook;
