//! A block that is free and in use at the same time.

use super::TOKENS;
use super::scene::{Scene, beside, other_prompt};
use crate::blocks::BlockId;
use naive_decode::Result;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};

/// Calls after the prompt's at which a neighbour ends.
const AFTER: usize = 10;

// ANCHOR: fault
/// A neighbour who shared the prompt ends. On the broken side it frees every block of its table, whoever
/// else may hold it.
///
/// Nothing happens yet: what is in the blocks is still right. Then another request is given them, and writes.
fn neighbour_ends(scene: &mut Scene, side: Side) -> Result<()> {
    let sequence = scene.sequence;
    let neighbour = scene.cache().fork(sequence)?;
    let shared: Vec<BlockId> = scene.cache().tables(neighbour)?.held().collect();
    scene.cache().close(neighbour)?;
    if side == Side::Broken {
        let (blocks, _) = scene.cache().parts();
        for block in shared {
            blocks.release(block);
        }
    }
    Ok(())
}
// ANCHOR_END: fault

/// A block is freed while a table still points at it.
pub const DANGLING_BLOCK: BreakIt = BreakIt {
    name: "dangling-block",
    package: "paged-cache",
    cites: &["sgl-project/mini-sglang#142"],
    symptom: "right until somebody else is given the block; from then on the request reads another's past",
    guard: "every block is in as many tables as it has references, and among the free only if in none",
    weaker_test: Some("after the neighbour has ended, logits are still the naive loop's"),
    run: |bench| {
        let other = other_prompt(bench)?;
        let decoder = |side| {
            let other = other.clone();
            beside(
                &bench.model,
                |call, _| call == AFTER,
                move |scene| {
                    neighbour_ends(scene, side)?;
                    let sequence = scene.cache().open();
                    scene.run(sequence, &other).map(drop)
                },
            )
        };
        let guard = |side| {
            let mut scene = ended(bench, side)?;
            scene.cache().check_integrity([])
        };
        let weaker = |side| {
            let mut scene = ended(bench, side)?;
            let next = bench.prompt[scene.text.len()];
            let found = scene.feed(&[next])?;
            let expected = bench.naive_logits(&scene.text)?;
            same_logits(
                "logits beside the freed blocks",
                &found,
                &expected,
                "as the naive loop has it",
            )
        };
        Trial {
            about: &DANGLING_BLOCK,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// Some of the prompt, that ends inside a block; and then the neighbour's end.
fn ended(bench: &Bench, side: Side) -> Result<Scene> {
    let mut scene = Scene::new(&bench.model)?;
    scene.feed(&bench.prompt[..bench.prompt.len() / 16 * 16 - 8])?;
    neighbour_ends(&mut scene, side)?;
    Ok(scene)
}
