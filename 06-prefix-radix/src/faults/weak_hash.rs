//! Two prompts with one hash.

use super::scene::{AnyCache, Sharing, answers_as_if_alone, pool, serve};
use super::trusting::Trusting;
use super::{BLOCK, TOKENS};
use crate::{Chain, HashedBlocks, Policy};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Decoder, Result};

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
    run: |bench| {
        let after = |side, other: fn(&[u32]) -> Vec<u32>| -> Result<Sharing> {
            let pool = pool(&bench.model, 3 * bench.model.context(), cache(side)?)?;
            Ok(Sharing::new(pool, move |pool, prompt| serve(pool, &other(prompt))))
        };
        let same: fn(&[u32]) -> Vec<u32> = |prompt| prompt.to_vec();
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(after(side, collides)?)) };
        let alone = |bench: &Bench, decoder| answers_as_if_alone(bench, &bench.prompt, decoder);
        Trial {
            about: &WEAK_HASH,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &|side| alone(bench, after(side, collides)?),
            weaker_test: Some(&|side| alone(bench, after(side, same)?)),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};
