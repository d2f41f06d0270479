//! Two prompts with one hash.

use super::BLOCK;
use super::scene::AnyCache;
use super::trusting::{Trusting, after_another};
use crate::{Chain, HashedBlocks, Policy};
use naive_decode::Result;
use naive_decode::break_it::{BreakIt, Side};

// ANCHOR: fault
/// A hash that anybody can steer: the sum of the tokens, whatever their order. Nobody compares tokens on a hit.
fn sum(before: u64, tokens: &[u32]) -> u64 {
    let sum: u64 = tokens.iter().map(|&token| u64::from(token)).sum();
    before.wrapping_mul(1_000_003).wrapping_add(sum)
}
// ANCHOR_END: fault

/// Another prompt with the same sums: in some blocks the tokens stand in another order.
fn collides(prompt: &[u32]) -> Vec<u32> {
    let mut other = prompt.to_vec();
    for block in other.chunks_exact_mut(BLOCK).skip(1) {
        block.reverse();
    }
    other
}

fn cache(side: Side) -> Result<AnyCache> {
    Ok(match side {
        Side::Clean => {
            Box::new(HashedBlocks::new(BLOCK, Chain::new(b"faults"), Policy::LeafFirst)?)
        }
        Side::Broken => Box::new(Trusting::new(BLOCK, sum)),
    })
}

/// One prompt is answered with another's cache.
pub const WEAK_HASH: BreakIt = BreakIt {
    name: "weak-hash",
    package: "prefix-radix",
    cites: &["CVE-2025-25183", "vllm-project/vllm#12621"],
    symptom: "a request reads a prompt that somebody else has sent, and that he could choose",
    guard: "after another prompt with the same hashes, logits are the naive loop's",
    weaker_test: Some("asked a second time, a prompt has the naive loop's logits"),
    run: |bench| after_another(bench, &WEAK_HASH, cache, collides),
};
