//! BREAK IT 1: one bad note in the notepad.

use super::guards::Checksummed;
use super::recall::{Search, recall, slot_in_fact};
use super::{Stepper, executor, store};
use crate::{Place, Store, forward_store};
use naive_decode::break_it::{Bench, BreakIt, Report, Side, Trial, noise, same_logits};
use naive_decode::{Decoder, NaiveDecoder, Request, Result, Sampler, Sampling, argmax, generate};
use std::ops::Range;

/// Generated tokens that are kept before the key is overwritten: it goes as soon as the key of the
/// next, the 101st, is written.
const BEFORE: usize = 100;

/// Tokens generated besides those.
const AFTER: usize = 60;

/// Facts in the prompt, enough that a hundred tokens do not go through them all.
const FACTS: usize = 8;

/// Prompts that are tried.
const WORLDS: usize = 6;

/// Tokens that the weaker test looks at: a test that takes longer is a test that nobody waits for.
const SHORT: usize = 20;

/// A store that overwrites the keys of one token when a later one arrives.
pub struct Overwriting<S> {
    store: S,
    /// When: as soon as this slot is written.
    at: usize,
    /// Which: the keys in this slot.
    slot: usize,
}

impl<S: Store> Store for Overwriting<S> {
    forward_store!(store: shape sequences capacity key value truncate allocated_bytes);

    fn write(&mut self, place: Place, key: &[f32], value: &[f32]) {
        self.store.write(place, key, value);
        let first = Place { sequence: 0, layer: 0, kv_head: 0, slot: self.at };
        if place == first {
            let layers = 0..self.store.shape().layers;
            overwrite_key(&mut self.store, self.slot, layers);
        }
    }
}

// ANCHOR: overwrite
/// Puts noise in the place of one token's keys, in every head of some layers of sequence 0. Values
/// stay. The noise has the length of the key that it replaces, so no range check would notice.
pub fn overwrite_key(store: &mut dyn Store, slot: usize, layers: Range<usize>) {
    let shape = store.shape();
    let (mut key, mut value) = (vec![0.0; shape.key_dim], vec![0.0; shape.value_dim]);
    for layer in layers {
        for kv_head in 0..shape.kv_heads {
            let place = Place { sequence: 0, layer, kv_head, slot };
            store.key(place, &mut key);
            store.value(place, &mut value);
            let seed = (slot * shape.layers + layer) * shape.kv_heads + kv_head;
            let mut other = noise(seed as u64, shape.key_dim);
            let scale = length(&key) / length(&other);
            other.iter_mut().for_each(|number| *number *= scale);
            store.write(place, &other, &value);
        }
    }
}
// ANCHOR_END: overwrite

fn length(key: &[f32]) -> f32 {
    key.iter().map(|number| number * number).sum::<f32>().sqrt()
}

/// One token's cached key becomes noise while the text goes on.
pub const OVERWRITTEN_KEY: BreakIt = BreakIt {
    name: "overwritten-key",
    package: "kv-cache",
    cites: &["KV-cache workshop, BREAK IT 1", "ikawrakow/ik_llama.cpp#2083"],
    symptom: "fluent as before, until an answer hangs on the token whose key is gone",
    guard: "a checksum of every key and value, taken when written, still holds",
    weaker_test: Some("the first 20 tokens are the naive loop's"),
    run: |bench| {
        bench.only_embedded("the recall task")?;
        let found = Search::run(bench)?;
        let (bench, slot, tried) = &text_that_runs_into_it(bench, found.offset)?;
        let at = bench.prompt.len() + BEFORE;
        let decoder = |side| decoder(bench, side, at, *slot);
        // The guard need not wait so long: the key goes with the prompt's last.
        let guard =
            |side| Checksummed::guard(bench, faulty(bench, side, bench.prompt.len() - 1, *slot)?);
        let weaker = |side| first_tokens_are_right(bench, &mut *decoder(side)?);
        let trial = Trial {
            about: &OVERWRITTEN_KEY,
            tokens: BEFORE + AFTER,
            decoder: &decoder,
            guard: &guard,
            weaker_test: Some(&weaker),
            recall: Some(recall(bench, found)?),
        };
        Ok(Report { tried: *tried, ..trial.run(bench)? })
    },
};

fn faulty(bench: &Bench, side: Side, at: usize, slot: usize) -> Result<Box<dyn Store>> {
    let store = store(&bench.model, 1)?;
    Ok(match side {
        Side::Clean => Box::new(store),
        Side::Broken => Box::new(Overwriting { store, at, slot }),
    })
}

fn decoder(bench: &Bench, side: Side, at: usize, slot: usize) -> Result<Box<dyn Decoder>> {
    let executor = executor(&bench.model, faulty(bench, side, at, slot)?);
    Ok(Box::new(Stepper::new(executor, bench.model.context(), usize::MAX)))
}

/// A prompt, a slot in it that the text needs after the key there is gone, and how many prompts were
/// tried. A text that asks about the fact in time is best; else any that changes will do.
fn text_that_runs_into_it(bench: &Bench, offset: isize) -> Result<(Bench, usize, usize)> {
    let mut tried = 0;
    loop {
        let any_will_do = tried >= WORLDS * FACTS;
        let world = Bench::world((tried / FACTS % WORLDS) as u64, FACTS, 1);
        let bench = bench.with_prompt(&(world.prompt().to_owned() + &world.question(0)))?;
        let at = bench.prompt.len() + BEFORE;
        let clean = greedy(&bench, decoder(&bench, Side::Clean, at, 0)?)?;
        for fact in 0..FACTS {
            tried += 1;
            // Before, the text says what it will later need, and could copy it from there.
            let answer = bench.tokenizer.encode(world.answer(fact))?;
            let said = clean.iter().position(|token| answer.contains(token));
            if !any_will_do && said.is_none_or(|said| said <= BEFORE) {
                continue;
            }
            let slot = slot_in_fact(&bench, &world, fact, offset)?;
            let broken = greedy(&bench, decoder(&bench, Side::Broken, at, slot)?)?;
            if broken != clean || tried == 2 * WORLDS * FACTS {
                return Ok((bench, slot, tried.div_ceil(FACTS)));
            }
        }
    }
}

fn greedy(bench: &Bench, mut decoder: Box<dyn Decoder>) -> Result<Vec<u32>> {
    let (prompt, tokens) = (bench.prompt.clone(), BEFORE + AFTER);
    let request = Request { prompt, tokens, end_tokens: Vec::new() };
    generate(&mut *decoder, Sampler::new(Sampling::default())?, request)?
        .map(|step| step.map(|step| step.token))
        .collect()
}

fn first_tokens_are_right(bench: &Bench, decoder: &mut dyn Decoder) -> Result<()> {
    let mut naive = NaiveDecoder::new(bench.model.clone());
    let mut tokens = bench.prompt.clone();
    for step in 0..SHORT {
        let (found, expected) = (decoder.feed(&tokens)?, naive.feed(&tokens)?);
        same_logits(
            &format!("logits at step {step}"),
            &found,
            &expected,
            "as the naive loop has it",
        )?;
        tokens = vec![argmax(&expected)?];
    }
    Ok(())
}
