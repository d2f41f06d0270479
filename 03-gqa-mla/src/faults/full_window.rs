//! A ring that loses its place when it first comes round.

use crate::hybrid;
use crate::{HybridCache, Room};
use embedded_models::HYBRID;
use kv_cache::faults::Stepper;
use kv_cache::faults::guards::Shadow;
use kv_cache::{Cached, KvShape, ListStore, Place, Store, forward_store};
use naive_decode::break_it::{Bench, BreakIt, Side, Trial};
use naive_decode::{Attention, CpuExecutor, Decoder, LoadOptions, Model, Result};
use std::sync::Arc;

/// Tokens to generate: a prompt of a few facts, and then far enough for the window to be full.
const TOKENS: usize = 80;

/// How far the layers with a window see.
const WINDOW: usize = 64;

/// Tokens past the full window that the guard looks at.
const BEYOND: usize = 4;

/// A ring that moves on one token early: from the one that fills it on, every token goes one place
/// too far.
///
/// The oldest token is lost before its time, and the place that should have been filled stays empty
/// for a whole round: a key of zeros, which every row sees and gives some weight. From then on a
/// row finds all of its window but the token just before it.
pub struct RollsEarly<S> {
    store: S,
    /// Of each sequence, whether its ring has been filled.
    full: Vec<bool>,
}

impl<S: Store> RollsEarly<S> {
    /// The fault over an empty ring.
    pub fn new(store: S) -> Self {
        RollsEarly { full: vec![false; store.sequences()], store }
    }
}

impl<S: Store> Store for RollsEarly<S> {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    // ANCHOR: early
    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        let places = self.store.capacity();
        let full = &mut self.full[place.sequence];
        *full |= place.slot + 1 == places;
        let slot = if *full { (place.slot + 1) % places } else { place.slot };
        self.store.write(Place { slot, ..place }, key, value);
    }
    // ANCHOR_END: early
}

/// The update of a window goes wrong in the step that fills it.
pub const FULL_WINDOW: BreakIt = BreakIt {
    name: "full-window",
    package: "gqa-mla",
    cites: &["huggingface/transformers#37574", "huggingface/transformers#47708"],
    symptom: "right to the bit until the text is as long as the window; then every row misses the token before it",
    guard: "masked full attention over a cache of everything gives every layer the same answer",
    weaker_test: Some("the same for a text that is no longer than the window"),
    run: |bench| {
        bench.only_embedded("windows, and answers from within them")?;
        let bench = &hybrid_bench(bench)?;
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            Ok(Box::new(stepper(&bench.model, rings(&bench.model, side)?)))
        };
        let guard = |side| shadowed(bench, side, WINDOW + BEYOND);
        let weaker = |side| shadowed(bench, side, WINDOW);
        Trial {
            about: &FULL_WINDOW,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// The embedded model with windows, and a prompt that is shorter than they are.
fn hybrid_bench(bench: &Bench) -> Result<Bench> {
    let options = LoadOptions::default();
    let model = hybrid::embedded(HYBRID.name, HYBRID.config, HYBRID.weights, options)?;
    let world = Bench::world(0, 2, 0);
    let prompt = bench.tokenizer.encode(&(world.prompt().to_owned() + &world.question(0)))?;
    let (model, tokenizer) = (Arc::new(model), bench.tokenizer.clone());
    Ok(Bench { model, tokenizer, prompt, is_embedded: bench.is_embedded })
}

/// A cache for one sequence; on the broken side its rings roll early.
fn rings(model: &Model, side: Side) -> Result<HybridCache<Box<dyn Store>>> {
    let room = Room { capacity: model.context(), sequences: 1, spare: 0 };
    HybridCache::over(model, room, |window, shape, places| -> Result<Box<dyn Store>> {
        let store = kv_cache::ContiguousStore::new(shape, places, room.sequences)?;
        Ok(match (window, side) {
            (Some(_), Side::Broken) => Box::new(RollsEarly::new(store)),
            _ => Box::new(store),
        })
    })
}

fn stepper<A: Attention>(model: &Arc<Model>, attention: A) -> Stepper<CpuExecutor<A>> {
    let executor = CpuExecutor { model: Arc::clone(model), attention };
    Stepper::new(executor, model.context(), usize::MAX)
}

/// Feeds a text of `length` tokens, the prompt and then one by one, and holds every answer of the
/// rings against that of a cache of everything.
fn shadowed(bench: &Bench, side: Side, length: usize) -> Result<()> {
    let model = &bench.model;
    let everything = ListStore::new(KvShape::of(model), model.context(), 1);
    let judge = Cached::new(everything, model.isa);
    let mut decoder = stepper(model, Shadow::new(rings(model, side)?, judge));
    let text: Vec<u32> = bench.prompt.iter().copied().cycle().take(length).collect();
    let (prompt, steps) = text.split_at(bench.prompt.len().min(length));
    decoder.feed(prompt)?;
    steps.chunks(1).try_for_each(|step| decoder.feed(step).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_when_the_window_is_full_and_is_caught() {
        let bench = Bench::embedded().unwrap();
        let prompt = hybrid_bench(&bench).unwrap().prompt.len();
        assert!(prompt < WINDOW, "the prompt, {prompt} tokens, fits the window");
        let report = (FULL_WINDOW.run)(&bench).unwrap();
        // The token in slot `WINDOW` is the first that looks for the one that was misplaced; the
        // logits of step 0 are those after the prompt's last token.
        assert_eq!(report.first_logit_difference, Some(WINDOW - prompt + 1));
        assert!(report.first_difference.is_some(), "the text changes");
        assert_eq!(report.guard.on_clean, None);
        let said = report.guard.on_broken.unwrap();
        assert!(said.contains("answer of layer 0"), "{said}");
        let weaker = report.weaker_test.unwrap();
        assert_eq!((weaker.on_clean, weaker.on_broken), (None, None));
    }
}
