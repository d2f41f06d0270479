//! A request that comes back one token short.

use super::TOKENS;
use super::scene::{Scene, beside};
use kv_cache::KvCache;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{Error, Result};

/// Tokens of a block.
const BLOCK: usize = 16;

// ANCHOR: fault
/// The request gives up its blocks, and is computed again: the prompt and what it had generated.
///
/// The last token of a text is usually the one that is fed next, and not in the cache yet. The broken side
/// takes that for granted when the text fills its blocks, and leaves it out. But the one that is fed next comes
/// after this text: what is lost is the word before the last.
fn preempted(scene: &mut Scene, side: Side) -> Result<()> {
    let sequence = scene.sequence;
    scene.cache().close(sequence)?;
    let mut text = std::mem::take(&mut scene.text);
    if side == Side::Broken && text.len().is_multiple_of(BLOCK) {
        text.pop();
    }
    scene.sequence = scene.cache().open();
    scene.feed(&text).map(drop)
}
// ANCHOR_END: fault

/// A preempted request is prefilled again without the token at a block's edge.
pub const DROPPED_AT_EDGE: BreakIt = BreakIt {
    name: "dropped-at-edge",
    package: "paged-cache",
    cites: &["GeeeekExplorer/nano-vllm#217"],
    symptom: "after it had to wait, a request goes on without the word before its last; one in sixteen does",
    guard: "what comes back has as many tokens in the cache as it had before",
    weaker_test: Some(
        "a request that is preempted inside a block goes on with the naive loop's logits",
    ),
    run: |bench| {
        // Some way into the answer, and at the end of a block.
        let due = |call: usize, tokens: usize| call > 8 && tokens.is_multiple_of(BLOCK);
        let decoder = |side| beside(&bench.model, due, move |scene| preempted(scene, side));
        let guard = |side| {
            let mut scene = begun(bench, 0)?;
            let before = scene.text.len();
            preempted(&mut scene, side)?;
            let sequence = scene.sequence;
            let after = scene.cache().len(sequence);
            match after == before {
                true => Ok(()),
                false => {
                    let expected = format!("{before}, as before it was preempted");
                    Err(Error::invalid("tokens in the cache", after, expected))
                }
            }
        };
        let weaker = |side| {
            let mut scene = begun(bench, 3)?;
            preempted(&mut scene, side)?;
            let next = bench.prompt[scene.text.len()];
            let found = scene.feed(&[next])?;
            let expected = bench.naive_logits(&scene.text)?;
            same_logits("logits after preemption", &found, &expected, "as the naive loop has it")
        };
        Trial {
            about: &DROPPED_AT_EDGE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// A part of the prompt that ends so many tokens after a block's edge.
fn begun(bench: &Bench, past_the_edge: usize) -> Result<Scene> {
    let mut scene = Scene::new(&bench.model)?;
    scene.feed(&bench.prompt[..bench.prompt.len() / BLOCK * BLOCK - BLOCK + past_the_edge])?;
    Ok(scene)
}
