//! A prefix that is in use is evicted.

use super::TOKENS;
use super::scene::{AnyCache, Pool, Sharing, answers_as_if_alone, other_prompt, pool, serve, tree};
use crate::{Evicted, Prefix, PrefixCache, Salt, Statistics};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Decoder, Result};
use paged_cache::{BlockId, Blocks};

/// A cache that gives blocks away and does not count that it did.
struct Uncounted(AnyCache);

impl PrefixCache for Uncounted {
    // ANCHOR: fault
    fn find(&mut self, salt: Salt, prompt: &[u32], blocks: &mut Blocks) -> Prefix {
        let prefix = self.0.find(salt, prompt, blocks);
        for &block in &prefix.blocks {
            blocks.release(block);
        }
        prefix
    }
    // ANCHOR_END: fault

    fn block_tokens(&self) -> usize {
        self.0.block_tokens()
    }

    fn longest(&mut self, salt: Salt, tokens: &[u32], most: usize, blocks: &mut Blocks) -> Prefix {
        self.0.longest(salt, tokens, most, blocks)
    }

    fn keep(&mut self, salt: Salt, text: &[u32], table: &[BlockId], blocks: &mut Blocks) -> usize {
        self.0.keep(salt, text, table, blocks)
    }

    fn evict(
        &mut self,
        wanted: usize,
        blocks: &mut Blocks,
        evicted: &mut dyn FnMut(Evicted),
    ) -> usize {
        self.0.evict(wanted, blocks, evicted)
    }

    fn held(&self) -> Vec<BlockId> {
        self.0.held()
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    fn check_integrity(&self, blocks: &Blocks) -> Result<()> {
        self.0.check_integrity(blocks)
    }
}

/// A live prefix is evicted because a reference was not counted.
pub const EVICTED_LIVE: BreakIt = BreakIt {
    name: "evicted-live",
    package: "prefix-radix",
    cites: &["sgl-project/mini-sglang#149", "sgl-project/mini-sglang#150"],
    symptom: "with memory to spare, nothing; in a full pool, a request loses its beginning to a newcomer",
    guard: "every block is in as many tables and caches as it has references",
    weaker_test: Some("a request that finds its prompt known has the naive loop's logits"),
    run: |bench| {
        let other = other_prompt(bench)?;
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let mut second = second(bench, side)?;
            let other = other.clone();
            second.between = Some(Box::new(move |pool| newcomer(pool, &other)));
            Ok(Box::new(second))
        };
        let guard = |side| {
            let mut second = second(bench, side)?;
            second.feed(&bench.prompt)?;
            second.pool.check_integrity()
        };
        Trial {
            about: &EVICTED_LIVE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&|side| {
                answers_as_if_alone(bench, &bench.prompt, second(bench, side)?)
            }),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A request whose prompt somebody has asked before.
fn second(bench: &Bench, side: Side) -> Result<Sharing> {
    let cache = match side {
        Side::Clean => tree()?,
        Side::Broken => Box::new(Uncounted(tree()?)),
    };
    Ok(Sharing::new(pool(&bench.model, bench.model.context(), cache)?, serve))
}

/// The pool runs short, and another request comes in.
fn newcomer(pool: &mut Pool, prompt: &[u32]) -> Result<()> {
    let (blocks, memory) = pool.executor.attention.parts();
    pool.prefixes.evict(usize::MAX, blocks, memory);
    serve(pool, prompt)
}
