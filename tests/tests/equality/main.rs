//! The equality matrix: every rung gives the naive rung's logits, bit for bit.
//!
//! | File | Proves |
//! |---|---|
//! | `naive.rs` | one pass that wants every row's logits is the naive loop, step by step |
//! | `matrix.rs` | rungs × prompts × threads × chunks × instruction sets = that one pass |
//! | `architectures.rs` | the same of latents, experts, windows and shared layers, and of other families |
//! | `trained.rs` | the same of the embedded models whose cache is smaller, and absorbed = explicit there |
//! | `passes.rs` | batches, draft trees, windows and shared layers change no bit either |
//! | `judge.rs`, `models.rs` | (what every rung is held to; models and texts) |
//!
//! The first makes the rest affordable: the naive loop costs the square of the length, one pass
//! only the length, and once they are known to be the same, the one pass is the oracle.

mod architectures;
mod judge;
mod matrix;
mod models;
mod naive;
mod passes;
mod trained;
