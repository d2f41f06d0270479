//! A block that comes back half written.

use super::TOKENS;
use super::scene::{Scene, beside};
use crate::blocks::BlockId;
use crate::offload::HostTier;
use kv_cache::KvCache;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Error, Result};

/// Calls after the prompt's at which the request is parked and brought back.
const AFTER: usize = 10;

/// Which of its blocks is torn.
const TORN: usize = 2;

// ANCHOR: fault
/// The request is parked in a tier, and brought back. On the broken side the machine went down while one
/// block was being written, and whoever reads it does not look at its checksum: the second half is what
/// another block had there.
fn away_and_back(scene: &mut Scene, side: Side) -> Result<()> {
    let (sequence, mut tier) = (scene.sequence, HostTier::new(usize::MAX));
    let parked = scene.cache().park(sequence, &mut tier)?;
    scene.sequence = scene.cache().unpark(&parked, &mut tier)?;
    if side == Side::Broken {
        let sequence = scene.sequence;
        let held: Vec<BlockId> = scene.cache().tables(sequence)?.held().collect();
        let (_, memory) = scene.cache().parts();
        let (mut torn, mut other) = (Vec::new(), Vec::new());
        memory.copy_out(held[TORN], &mut torn)?;
        memory.copy_out(held[TORN + 1], &mut other)?;
        let half = torn.len() / 2;
        torn[half..].copy_from_slice(&other[half..]);
        memory.copy_in(held[TORN], &torn)?;
    }
    Ok(())
}
// ANCHOR_END: fault

/// A torn block is used.
pub const TORN_BLOCK: BreakIt = BreakIt {
    name: "torn-block",
    package: "paged-cache",
    cites: &["vllm-project/vllm#54363", "LMCache/LMCache#207"],
    symptom: "after a restart or a crowd, a request has the wrong past in some layers of sixteen tokens",
    guard: "what comes back has the checksum of what went out",
    weaker_test: Some("as many tokens and as many blocks come back as went out"),
    run: |bench| {
        let decoder = |side| {
            let event = move |scene: &mut Scene| away_and_back(scene, side);
            beside(&bench.model, |call, _| call == AFTER, event)
        };
        let guard = |side| {
            let mut scene = prefilled(bench)?;
            let before = scene.bytes()?;
            away_and_back(&mut scene, side)?;
            let sums = |blocks: Vec<Vec<u8>>| -> Vec<blake3::Hash> {
                blocks.iter().map(|bytes| blake3::hash(bytes)).collect()
            };
            let (before, after) = (sums(before), sums(scene.bytes()?));
            match before.iter().zip(&after).position(|(before, after)| before != after) {
                None => Ok(()),
                Some(block) => Err(Error::invalid(
                    format!("checksum of block {block}"),
                    after[block].to_hex().get(..16).unwrap_or_default(),
                    format!("{:.16}, as it went out", before[block].to_hex()),
                )),
            }
        };
        let weaker = |side| {
            let mut scene = prefilled(bench)?;
            let blocks = scene.bytes()?.len();
            away_and_back(&mut scene, side)?;
            let sequence = scene.sequence;
            let found = (scene.cache().len(sequence), scene.bytes()?.len());
            match found == (scene.text.len(), blocks) {
                true => Ok(()),
                false => {
                    let expected = format!("{:?}", (scene.text.len(), blocks));
                    Err(Error::invalid("tokens and blocks", format!("{found:?}"), expected))
                }
            }
        };
        Trial {
            about: &TORN_BLOCK,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn prefilled(bench: &Bench) -> Result<Scene> {
    let mut scene = Scene::new(&bench.model)?;
    scene.feed(&bench.prompt)?;
    Ok(scene)
}
