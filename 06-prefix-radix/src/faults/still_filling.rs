//! A hit on blocks that are not written yet.

use super::scene::{Pool, Sharing, answers_as_if_alone, pool, tree};
use super::{BLOCK, TOKENS};
use crate::{PrefixCache, Salt};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Decoder, Executor, Pass, Result, Span, Want};
use paged_cache::BlockId;

// ANCHOR: fault
/// Another request with the same prompt is being read, a chunk at a time, and has got as far as `read`.
///
/// It has been given blocks for all of its prompt. The broken side makes them known when they are given, not
/// when they are written.
fn another_is_being_read(pool: &mut Pool, prompt: &[u32], read: usize, side: Side) -> Result<()> {
    let sequence = pool.executor.attention.open();
    let chunk = Span::new(sequence, 0, &prompt[..read], Want::Nothing);
    pool.executor.execute(&Pass::one(chunk))?;
    let mut table: Vec<BlockId> = pool.executor.attention.tables(sequence)?.held().collect();
    let (blocks, _) = pool.executor.attention.parts();
    let known = match side {
        Side::Clean => read,
        Side::Broken => prompt.len() / BLOCK * BLOCK,
    };
    while table.len() * BLOCK < known {
        table.extend(blocks.take());
    }
    pool.prefixes.cache_mut().keep(Salt::NONE, &prompt[..known], &table, blocks);
    Ok(())
}
// ANCHOR_END: fault

/// A block that another request is still filling is shared.
pub const STILL_FILLING: BreakIt = BreakIt {
    name: "still-filling",
    package: "prefix-radix",
    cites: &["GeeeekExplorer/nano-vllm#208"],
    symptom: "two users ask the same thing at the same moment: the second reads a prompt that is not there yet",
    guard: "with the other request half read, logits are the naive loop's",
    weaker_test: Some("with the other request all read, logits are the naive loop's"),
    run: |bench| {
        let second = |side, chunks: fn(usize) -> usize| -> Result<Sharing> {
            let pool = pool(&bench.model, 3 * bench.model.context(), tree()?)?;
            Ok(Sharing::new(pool, move |pool, prompt| {
                let read = chunks(prompt.len() / BLOCK) * BLOCK;
                another_is_being_read(pool, prompt, read, side)
            }))
        };
        let half: fn(usize) -> usize = |blocks| blocks / 2;
        let all: fn(usize) -> usize = |blocks| blocks;
        let decoder = |side| -> Result<Box<dyn Decoder>> { Ok(Box::new(second(side, half)?)) };
        let alone = |bench: &Bench, decoder| answers_as_if_alone(bench, &bench.prompt, decoder);
        Trial {
            about: &STILL_FILLING,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &|side| alone(bench, second(side, half)?),
            weaker_test: Some(&|side| alone(bench, second(side, all)?)),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};
