//! A maximum that moves, and sums that do not.

use super::{TOKENS, by};
use crate::flash_v2::flash_v2_by;
use crate::head::{Head, Tiling};
use crate::online::Online;
use crate::tiles::integer_maximum;
use naive_decode::SPLIT;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, same_logits};
use naive_decode::{Decoder, Result};
use ndarray::ArrayView2;

/// Keys in a tile.
const TILE: usize = 16;

// ANCHOR: fault
/// [`Online::update`] without the factor: the maximum is exchanged, the sums stay relative to the old one.
///
/// Each time a larger score turns up, all that came before it keeps a weight that is too large by a power of
/// two.
pub fn update_without_rescale(
    online: &mut Online,
    head: &Head,
    first: usize,
    scores: &[f32],
    values: ArrayView2<f32>,
) {
    let Some(maximum) = integer_maximum(scores) else { return };
    online.maximum = online.maximum.max(maximum);
    online.add(head, first, scores, values);
}
// ANCHOR_END: fault

/// The running maximum moves without the accumulators.
pub const MISSING_RESCALE: BreakIt = BreakIt {
    name: "missing-rescale",
    package: "flash-attention",
    cites: &["meta-pytorch/MSLK#242", "Dao-AILab/flash-attention#2082"],
    symptom: "whatever stood before the best match counts too much; right as long as the best match is in the \
              first tile",
    guard: "tiles of 16 keys and one tile of all keys give the same logits, bit for bit",
    weaker_test: Some("a prompt that fits one tile gives the naive loop's logits"),
    run: |bench| {
        let decoder = |side| Ok(tiled(bench, side, TILE));
        let guard = |side| {
            let whole = tiled(bench, side, SPLIT).feed(&bench.prompt)?;
            let found = tiled(bench, side, TILE).feed(&bench.prompt)?;
            same_logits("logits with tiles of 16 keys", &found, &whole, "as with one tile")
        };
        let weaker = |side| -> Result<()> {
            let one_tile = &bench.prompt[..TILE];
            let found = tiled(bench, side, TILE).feed(one_tile)?;
            let naive = bench.naive_logits(one_tile)?;
            same_logits("logits after one tile", &found, &naive, "as the naive loop has it")
        };
        Trial {
            about: &MISSING_RESCALE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// FlashAttention with so many keys to a tile.
fn tiled(bench: &Bench, side: Side, keys: usize) -> Box<dyn Decoder> {
    let tiling = Tiling { queries: TILE, keys };
    by(&bench.model, move |head, traffic| match side {
        Side::Clean => flash_v2_by(&Online::update, head, tiling, traffic),
        Side::Broken => flash_v2_by(&update_without_rescale, head, tiling, traffic),
    })
}
