//! Attention in every form of this rung, and fused blocks, against rung 01's, bit for bit; and the bytes that
//! each moves.
//!
//! | File | Proves |
//! |---|---|
//! | `textbook.rs` | standard, both FlashAttentions, Flash-Decoding, the unified maximum = `attend_span` |
//! | `bytes.rs` | counted traffic = the formulas; the published 32x |
//! | `flash_cache.rs` | the cache in tiles = rung 02's contiguous cache, pass by pass |
//! | `fusion.rs` | the rules find the fusions; fused = unfused, and moves less |
//! | `case.rs` | the random cases of attention |

mod bytes;
mod case;
mod fast_attention;
mod flash_cache;
mod fusion;
mod textbook;
