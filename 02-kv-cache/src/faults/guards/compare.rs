//! Comparisons: with the naive loop, with other chunks, alone and beside another. And the counts
//! that look as if they were enough.

use super::{STEPS, walk};
use crate::faults::{Stepper, executor};
use crate::{KvCache, Place, Store};
use naive_decode::break_it::{Bench, same_logits};
use naive_decode::{Decoder, Error, Executor, Model, NaiveDecoder, Result};
use std::sync::Arc;

/// The logits after prefill and after a few steps are the naive loop's, bit for bit.
///
/// # Errors
/// Names the step and the logit.
pub fn equals_naive<E: Executor>(model: &Arc<Model>, executor: E, tokens: &[u32]) -> Result<()> {
    let mut naive = NaiveDecoder::new(Arc::clone(model));
    let mut cached = Stepper::new(executor, model.context(), usize::MAX);
    let (prefill, steps) = tokens.split_at(tokens.len() - STEPS);
    for (step, tokens) in std::iter::once(prefill).chain(steps.chunks(1)).enumerate() {
        let expected = naive.feed(tokens)?;
        let found = cached.feed(tokens)?;
        same_logits(
            &format!("logits at step {step}"),
            &found,
            &expected,
            "as the naive loop has it",
        )?;
    }
    Ok(())
}

/// Prefill in chunks of `chunk` gives the logits of prefill in one.
///
/// # Errors
/// Names the first logit that differs.
pub fn any_chunk_gives_the_same<E: Executor>(
    bench: &Bench,
    executor: impl Fn() -> Result<E>,
    chunk: usize,
) -> Result<()> {
    let feed = |chunk| Stepper::new(executor()?, bench.model.context(), chunk).feed(&bench.prompt);
    let what = format!("logits after chunks of {chunk}");
    same_logits(&what, &feed(chunk)?, &feed(usize::MAX)?, "as after the prompt in one pass")
}

/// A request's logits are the same whether `alone` or `beside` another runs it.
///
/// # Errors
/// Names the first logit that differs.
pub fn same_alone_and_beside(
    bench: &Bench,
    alone: impl Executor,
    beside: impl Executor,
) -> Result<()> {
    let context = bench.model.context();
    let expected = Stepper::new(alone, context, usize::MAX).feed(&bench.prompt)?;
    let found = Stepper::new(beside, context, usize::MAX).feed(&bench.prompt)?;
    same_logits("logits beside another request", &found, &expected, "as alone")
}

/// Weaker test: the cache says that it is as long as what was fed.
///
/// # Errors
/// If it does not.
pub fn length_is_tokens_fed(bench: &Bench, store: Box<dyn Store>) -> Result<()> {
    let mut executor = executor(&bench.model, store);
    walk(bench, &mut executor)?;
    let (found, fed) = (executor.attention.len(0), bench.prompt.len());
    match found == fed {
        true => Ok(()),
        false => Err(Error::invalid("length of the cache", found, format!("{fed}, as fed"))),
    }
}

/// Weaker test: as many slots of the cache hold something as tokens were fed.
///
/// # Errors
/// If it is another number.
pub fn as_many_keys_as_tokens(bench: &Bench, store: Box<dyn Store>) -> Result<()> {
    let mut executor = executor(&bench.model, store);
    walk(bench, &mut executor)?;
    let store = executor.attention.store();
    let found = (0..store.capacity()).filter(|&slot| holds_a_key(store, 0, slot)).count();
    match found == bench.prompt.len() {
        true => Ok(()),
        false => Err(Error::invalid("number of keys", found, bench.prompt.len().to_string())),
    }
}

/// Weaker test: no slot of any layer is empty up to the cache's length.
///
/// # Errors
/// Names the first that is.
pub fn every_slot_is_filled(bench: &Bench, store: Box<dyn Store>) -> Result<()> {
    let mut executor = executor(&bench.model, store);
    walk(bench, &mut executor)?;
    let store = executor.attention.store();
    for layer in 0..store.shape().layers {
        if let Some(slot) = (0..bench.prompt.len()).find(|&slot| !holds_a_key(store, layer, slot)) {
            let what = format!("key in slot {slot} of layer {layer}");
            return Err(Error::invalid(what, "zeros", "something"));
        }
    }
    Ok(())
}

fn holds_a_key(store: &dyn Store, layer: usize, slot: usize) -> bool {
    let mut key = vec![0.0; store.shape().key_dim];
    store.key(Place { sequence: 0, layer, kv_head: 0, slot }, &mut key);
    key.iter().any(|&number| number != 0.0)
}
