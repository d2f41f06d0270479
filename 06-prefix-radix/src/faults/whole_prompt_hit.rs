//! All of a prompt is found.

use super::scene::{Pool, Sharing, answers_as_if_alone, pool, serve, tree};
use super::{BLOCK, TOKENS};
use crate::{PrefixCache, Salt, Session};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Decoder, Result};

/// A request whose prompt is looked up without leaving a token to read.
struct Whole {
    inner: Sharing,
    side: Side,
}

impl Decoder for Whole {
    fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if self.side == Side::Clean || self.inner.session.is_some() {
            return self.inner.feed(tokens);
        }
        (self.inner.before)(&mut self.inner.pool, tokens)?;
        let (session, logits) = begin(&mut self.inner.pool, tokens)?;
        self.inner.session = Some(session);
        Ok(logits)
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn kv_bytes_per_token(&self) -> usize {
        self.inner.kv_bytes_per_token()
    }
}

// ANCHOR: fault
/// Takes all that is known of a prompt. If that is all of it, no row is left to run, and a kernel is called with
/// none; here, somebody has put that right in the obvious way: there must be a last token, so run the last one.
/// It then stands in the cache twice.
fn begin(pool: &mut Pool, prompt: &[u32]) -> Result<(Session, Vec<f32>)> {
    let (blocks, _) = pool.executor.attention.parts();
    let cache = pool.prefixes.cache_mut();
    let prefix = cache.longest(Salt::NONE, prompt, prompt.len(), blocks);
    let found = prefix.tokens;
    let sequence = pool.executor.attention.adopt(&prefix.blocks, found)?;
    let text = prompt[..found].to_vec();
    let mut session = Session { salt: Salt::NONE, sequence, text, found };
    let rest = &prompt[found.min(prompt.len() - 1)..];
    let logits = pool.feed(&mut session, rest)?;
    Ok((session, logits))
}
// ANCHOR_END: fault

/// A prompt that is known as a whole.
pub const WHOLE_PROMPT_HIT: BreakIt = BreakIt {
    name: "whole-prompt-hit",
    package: "prefix-radix",
    cites: &["GeeeekExplorer/nano-vllm#144", "GeeeekExplorer/nano-vllm#199"],
    symptom: "a prompt that fills its blocks, asked a second time: a crash, or its last token is read twice",
    guard: "the same prompt, asked again, has the naive loop's logits",
    weaker_test: Some(
        "a prompt that does not fill its last block, asked again, has the naive loop's logits",
    ),
    run: |bench| {
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(whole(bench, side)?)) };
        let blocks = bench.prompt.len() / BLOCK;
        let guard = |side| asked_again(bench, side, blocks * BLOCK);
        let weaker = |side| asked_again(bench, side, blocks * BLOCK - 3);
        let filled = filled(bench)?;
        Trial {
            about: &WHOLE_PROMPT_HIT,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(&filled)
    },
};

/// The bench with a prompt that fills its blocks: a few of the first tokens are left out.
fn filled(bench: &Bench) -> Result<Bench> {
    let prompt = bench.prompt[bench.prompt.len() % BLOCK..].to_vec();
    Ok(Bench { prompt, ..bench.with_prompt("")? })
}

/// The request, whose prompt somebody has asked before.
fn whole(bench: &Bench, side: Side) -> Result<Whole> {
    let pool = pool(&bench.model, 2 * bench.model.context(), tree()?)?;
    Ok(Whole { inner: Sharing::new(pool, serve), side })
}

fn asked_again(bench: &Bench, side: Side, length: usize) -> Result<()> {
    answers_as_if_alone(bench, &bench.prompt[..length], whole(bench, side)?)
}
