//! Right numbers in the wrong place: five faults, one decorator.
//!
//! A cache is more than its contents. What it holds must be the right values, in the right layer,
//! for the right head, at the right position, for the right request.

use super::guards::{self, Poisoned, ReadBack, Shadow};
use super::{Beside, Stepper, TOKENS, executor, other_prompt, store};
use crate::{KvShape, Place, Store, forward_store};
use naive_decode::break_it::{Bench, BreakIt, Report, Side, Trial};
use naive_decode::{Config, Decoder, LoadOptions, Model, Result};
use std::sync::Arc;

/// A store that is told one place and uses another.
pub struct Misplaced<S> {
    store: S,
    places: Places,
}

/// Where a [`Misplaced`] store writes and reads instead. A write can also go nowhere.
#[derive(Clone, Copy)]
struct Places {
    write: fn(Place) -> Option<Place>,
    read: fn(Place, KvShape) -> Place,
}

impl<S: Store> Store for Misplaced<S> {
    forward_store!(store: shape sequences capacity truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        if let Some(place) = (self.places.write)(place) {
            self.store.write(place, key, value);
        }
    }

    fn key(&self, place: Place, copy: &mut [f32]) {
        self.store.key((self.places.read)(place, self.store.shape()), copy);
    }

    fn value(&self, place: Place, copy: &mut [f32]) {
        self.store.value((self.places.read)(place, self.store.shape()), copy);
    }
}

/// BREAK IT 2: every key and value one slot too far.
///
/// Keys were turned by their positions before they were written, so most of the text survives a
/// wrong slot. What is lost is at the ends: slot 0 holds nothing, and no row finds itself.
pub const SHIFTED_WRITE: BreakIt = BreakIt {
    name: "shifted-write",
    package: "kv-cache",
    cites: &["KV-cache workshop, BREAK IT 2"],
    symptom: "every key is in the cache, one slot too far; eerily close to correct, then repetition",
    guard: "what has just been written is read back from where it belongs",
    weaker_test: Some("the cache holds as many keys as tokens were fed"),
    run: |bench| {
        // ANCHOR: shifted
        let places = Places {
            write: |place| Some(Place { slot: place.slot + 1, ..place }),
            read: |place, _| place,
        };
        // ANCHOR_END: shifted
        let guard = |side| ReadBack::guard(bench, |store| misplaced(side, store, places));
        let weaker = |side| guards::as_many_keys_as_tokens(bench, with(bench, side, places)?);
        trial(bench, &SHIFTED_WRITE, places, &guard, &weaker)
    },
};

/// The path that takes the first token forgets to write.
pub const FIRST_TOKEN_MISSING: BreakIt = BreakIt {
    name: "first-token-missing",
    package: "kv-cache",
    cites: &["TrenTorch/TrenTorch#192"],
    symptom: "position 0 stays as it was allocated, zeros: a token that never was, and every row sees it",
    guard: "fresh memory is filled with NaN, and none is left where tokens were written",
    weaker_test: Some("the cache's length is the number of tokens fed"),
    run: |bench| {
        let places = Places {
            write: |place| Some(place).filter(|place| place.slot != 0),
            read: |place, _| place,
        };
        let guard = |side| Poisoned::guard(bench, |store| misplaced(side, store, places));
        let weaker = |side| guards::length_is_tokens_fed(bench, with(bench, side, places)?);
        trial(bench, &FIRST_TOKEN_MISSING, places, &guard, &weaker)
    },
};

/// Layers read the cache of the layer before.
pub const WRONG_LAYER: BreakIt = BreakIt {
    name: "wrong-layer",
    package: "kv-cache",
    cites: &[
        "KV-cache workshop, BREAK IT 2",
        "NVIDIA/TensorRT-LLM#16801",
        "vllm-project/vllm#27264",
    ],
    symptom: "every layer but the first asks the layer before; the text falls apart from its first line on",
    guard: "a second cache of another make gives every layer the same answer",
    weaker_test: Some("every slot of every layer is filled"),
    run: |bench| {
        let places = Places {
            write: Some,
            read: |place, _| Place { layer: place.layer.saturating_sub(1), ..place },
        };
        let guard = |side| Shadow::guard(bench, |store| misplaced(side, store, places));
        let weaker = |side| guards::every_slot_is_filled(bench, with(bench, side, places)?);
        trial(bench, &WRONG_LAYER, places, &guard, &weaker)
    },
};

/// Query heads read their neighbours' key-value head.
pub const WRONG_HEAD: BreakIt = BreakIt {
    name: "wrong-head",
    package: "kv-cache",
    cites: &[
        "KV-cache workshop, BREAK IT 2",
        "FlashML-org/FreeToken#177",
        "tenstorrent/tt-metal#54413",
    ],
    symptom: "each group of query heads reads the next group's keys; of the text, nothing is left",
    guard: "a second cache of another make gives every head the same answer",
    weaker_test: Some("a model with one key-value head decodes as the naive loop does"),
    run: |bench| {
        let places = Places {
            write: Some,
            read: |place, shape| Place { kv_head: (place.kv_head + 1) % shape.kv_heads, ..place },
        };
        let guard = |side| Shadow::guard(bench, |store| misplaced(side, store, places));
        let weaker = |side| {
            let config = Config { kv_heads: 1, layers: 2, ..bench.model.config.clone() };
            let model = Arc::new(Model::random(config, 1, LoadOptions::default())?);
            let store = misplaced(side, Box::new(store(&model, 1)?), places);
            guards::equals_naive(&model, executor(&model, store), &bench.prompt)
        };
        trial(bench, &WRONG_HEAD, places, &guard, &weaker)
    },
};

/// One cache for every request.
pub const SHARED_CACHE: BreakIt = BreakIt {
    name: "shared-cache",
    package: "kv-cache",
    cites: &["KV-cache workshop", "tenstorrent/tt-xla#3899", "LMCache/LMCache#4385"],
    symptom: "with one user all is well; with two, each is told what the other wrote",
    guard: "a request's logits are the same alone and beside another",
    weaker_test: Some("one request alone decodes as the naive loop does"),
    run: |bench| {
        let places = Places {
            write: |place| Some(Place { sequence: 0, ..place }),
            read: |place, _| Place { sequence: 0, ..place },
        };
        let alone = |side| -> Result<_> {
            let store = misplaced(side, Box::new(store(&bench.model, 2)?), places);
            Ok(executor(&bench.model, store))
        };
        let decoder = |side| -> Result<Box<dyn Decoder>> {
            let beside = Beside::new(alone(side)?, other_prompt(bench)?);
            Ok(Box::new(Stepper::new(beside, bench.model.context(), usize::MAX)))
        };
        let guard = |side| {
            let beside = Beside::new(alone(side)?, other_prompt(bench)?);
            guards::same_alone_and_beside(bench, alone(side)?, beside)
        };
        let weaker = |side| guards::equals_naive(&bench.model, alone(side)?, &bench.prompt);
        Trial {
            about: &SHARED_CACHE,
            tokens: TOKENS,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: None,
        }
        .run_until_it_shows(bench)
    },
};

/// `store`, on the broken side with its places mixed up.
fn misplaced(side: Side, store: Box<dyn Store>, places: Places) -> Box<dyn Store> {
    match side {
        Side::Clean => store,
        Side::Broken => Box::new(Misplaced { store, places }),
    }
}

/// A store for the bench's model.
fn with(bench: &Bench, side: Side, places: Places) -> Result<Box<dyn Store>> {
    Ok(misplaced(side, Box::new(store(&bench.model, 1)?), places))
}

fn trial(
    bench: &Bench,
    about: &BreakIt,
    places: Places,
    guard: &dyn Fn(Side) -> Result<()>,
    weaker_test: &dyn Fn(Side) -> Result<()>,
) -> Result<Report> {
    let decoder = |side| -> Result<Box<dyn Decoder>> {
        let executor = executor(&bench.model, with(bench, side, places)?);
        Ok(Box::new(Stepper::new(executor, bench.model.context(), usize::MAX)))
    };
    let weaker_test = Some(weaker_test);
    Trial { about, tokens: TOKENS, decoder: &decoder, guard, weaker_test, recall: None }
        .run_until_it_shows(bench)
}
