//! A known stretch of text at another position.

use super::BLOCK;
use super::scene::{AnyCache, tree};
use super::trusting::{Trusting, after_another};
use naive_decode::Result;
use naive_decode::break_it::{BreakIt, Side};

// ANCHOR: fault
/// A block's name is made from its own tokens, and not from what came before it. So the block is found wherever
/// those tokens stand; but its keys were turned for the position that they had, and its values were made by
/// layers that had read another text.
fn own_tokens(_before: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(14_695_981_039_346_656_037, |hash: u64, &token| {
        (hash ^ u64::from(token)).wrapping_mul(1_099_511_628_211)
    })
}
// ANCHOR_END: fault

/// The same text behind a block of other tokens.
fn behind_others(prompt: &[u32]) -> Vec<u32> {
    let others = &prompt[prompt.len() - BLOCK..];
    [others, prompt].concat()
}

fn cache(side: Side) -> Result<AnyCache> {
    Ok(match side {
        Side::Clean => tree()?,
        Side::Broken => Box::new(Trusting::new(BLOCK, own_tokens)),
    })
}

/// Reused text at another position, its keys not turned again.
pub const MOVED_TEXT: BreakIt = BreakIt {
    name: "moved-text",
    package: "prefix-radix",
    cites: &["kvcache-ai/Mooncake#4153"],
    symptom: "a document that somebody else had behind a longer introduction is read as if it stood elsewhere",
    guard: "after a request with the same text further back, logits are the naive loop's",
    weaker_test: Some("asked a second time, a prompt has the naive loop's logits"),
    run: |bench| after_another(bench, &MOVED_TEXT, cache, behind_others),
};
