//! A last tile that is read to its end.

use super::{TOKENS, decoder};
use crate::FlashCache;
use naive_decode::break_it::{Bench, BreakIt, Side, Trial, finite, same_logits};
use naive_decode::numerics::LANES;
use naive_decode::{Attention, Decoder, LayerSpec, Model, Pass, Result, Span, Want};
use ndarray::{Array3, ArrayView3};
use std::sync::Arc;

/// Tokens that the guard takes from the end of the prompt as if they had been generated.
const STEPS: usize = 4;

/// Attention whose decode path takes tiles as they come.
///
/// A prompt's rows need a causal mask, which hides what lies past the end as well. A single row sees
/// everything, so its path has no mask; and it forgets that the last tile may not be full. What stands there
/// is whatever the memory held: zeros in a fresh cache, an earlier request's keys in a used one. A key of
/// zeros scores 0, and takes the weight that belongs to a score of 0.
pub struct RaggedTile<A> {
    attention: A,
    capacity: usize,
}

impl<A> RaggedTile<A> {
    /// Over some attention that has room for so many tokens of a sequence.
    pub fn new(attention: A, capacity: usize) -> Self {
        RaggedTile { attention, capacity }
    }
}

impl<A: Attention> Attention for RaggedTile<A> {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.attention.begin(pass)
    }

    // ANCHOR: fault
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut seen = pass.clone();
        for span in seen.spans.iter_mut().filter(|span| span.rows() == 1) {
            let range = &mut span.sees[0].range;
            range.end = range.end.next_multiple_of(LANES).min(self.capacity);
        }
        self.attention.attend(layer, &seen, q, k, v)
    }
    // ANCHOR_END: fault

    fn commit(&mut self, pass: &Pass) {
        self.attention.commit(pass);
    }
}

/// The last tile is read past the end of the text.
pub const RAGGED_TILE: BreakIt = BreakIt {
    name: "ragged-tile",
    package: "flash-attention",
    cites: &["flashinfer-ai/flashinfer#5090", "intel/sycl-tla#489"],
    symptom: "up to fifteen tokens that nobody wrote get a share of every generated token's attention; at \
              every sixteenth token all is right",
    guard: "memory past the end is filled with NaN, and no logit becomes one",
    weaker_test: Some("a step that fills its last tile gives the naive loop's logits"),
    run: |bench| {
        let fresh = |side| -> Result<Box<dyn Decoder>> {
            Ok(decode(&bench.model, side, cache(&bench.model)?))
        };
        let guard = |side| {
            let mut cache = cache(&bench.model)?;
            poison(&mut cache, &bench.model)?;
            let (prompt, steps) = bench.prompt.split_at(bench.prompt.len() - STEPS);
            finite(&mut *decode(&bench.model, side, cache), prompt, steps)
        };
        let weaker = |side| fills_its_tile(bench, &mut *fresh(side)?);
        Trial {
            about: &RAGGED_TILE,
            tokens: TOKENS,
            decoder: &fresh,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

fn cache(model: &Model) -> Result<FlashCache> {
    FlashCache::new(model, model.context(), 1)
}

fn decode(model: &Arc<Model>, side: Side, attention: FlashCache) -> Box<dyn Decoder> {
    match side {
        Side::Clean => decoder(model, attention),
        Side::Broken => decoder(model, RaggedTile::new(attention, model.context())),
    }
}

/// Writes NaN to every place of every layer, in a pass that is never committed.
fn poison(cache: &mut FlashCache, model: &Model) -> Result<()> {
    let rows = model.context();
    let pass = Pass::one(Span::new(0, 0, &vec![0; rows], Want::Nothing));
    cache.begin(&pass)?;
    for (index, block) in model.blocks.iter().enumerate() {
        let Some(size) = block.projection.kv() else { continue };
        let layer =
            LayerSpec { index, kv_layer: index, window: Some(1), scale: 1.0, score_cap: None };
        let nan = |width| Array3::from_elem((rows, size.heads, width), f32::NAN);
        let (k, v) = (nan(size.key_dim), nan(size.value_dim));
        cache.attend(layer, &pass, k.view(), k.view(), v.view())?;
    }
    Ok(())
}

/// Feeds as much of the prompt as ends with a tile, the last token as a step of its own.
fn fills_its_tile(bench: &Bench, decoder: &mut dyn Decoder) -> Result<()> {
    let whole = &bench.prompt[..bench.prompt.len() / LANES * LANES];
    let (before, last) = whole.split_at(whole.len() - 1);
    decoder.feed(before)?;
    let found = decoder.feed(last)?;
    let naive = bench.naive_logits(whole)?;
    same_logits("logits after whole tiles", &found, &naive, "as the naive loop has it")
}
