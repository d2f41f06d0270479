//! A request that had to wait begins its random numbers again.

use super::scene::{engine, read, same_text, submit};
use crate::engine::{Engine, EngineRequest, Step};
use naive_decode::break_it::{Bench, BreakIt, Side, Written};
use naive_decode::{Error, Result, Sampling};

/// Tokens that are asked for, and those after which the request has to wait.
const TOKENS: usize = 80;
const BEFORE: usize = 20;

// ANCHOR: fault
/// The request has to wait and comes back. On the clean side the engine does it: somebody of a higher priority
/// comes. On the broken side somebody has found a simpler way: the request is cancelled, and its text so far is
/// handed in as a new prompt. The sampler is new then, and throws the same dice again.
fn waits_and_comes_back(
    engine: &mut Engine,
    request: &dyn Fn(Vec<u32>, usize) -> EngineRequest,
    prompt: &[u32],
    side: Side,
) -> Result<Vec<u32>> {
    let mut ticket = submit(engine, request(prompt.to_vec(), TOKENS))?;
    let mut text = Vec::new();
    while text.len() < BEFORE {
        engine.step()?;
        text.extend(read(&mut ticket));
    }
    if side == Side::Broken {
        let so_far = [prompt, &text].concat();
        ticket = submit(engine, request(so_far, TOKENS - text.len()))?;
    }
    let urgent = EngineRequest { priority: 1, ..EngineRequest::new(prompt.to_vec(), 5) };
    let _urgent = submit(engine, urgent)?;
    while let Step::Ran(_) = engine.step()? {
        text.extend(read(&mut ticket));
    }
    Ok(text)
}
// ANCHOR_END: fault

/// A preempted request loses its sampler's state.
pub const LOST_SAMPLER: BreakIt = BreakIt {
    name: "lost-sampler",
    package: "serving",
    cites: &["vllm-project/vllm#19940"],
    symptom: "fluent, and never the same twice under load: a seed no longer gives its text",
    guard: "a sampled text is the one that its seed gives alone, preempted or not",
    weaker_test: Some("a greedy text is the one that it is alone, preempted or not"),
    run: |bench| {
        let prompt = bench.tokenizer.encode(&Bench::tale(0))?;
        let guard = |side| as_alone(bench, &prompt, 1.0, side);
        let weaker = |side| as_alone(bench, &prompt, 0.0, side);
        Written {
            about: &LOST_SAMPLER,
            prompt: &prompt,
            clean: &text(bench, &prompt, 1.0, Side::Clean)?,
            broken: &text(bench, &prompt, 1.0, Side::Broken)?,
            guard: &guard,
            weaker_test: Some(&weaker),
        }
        .report(bench)
    },
};

fn request(temperature: f32) -> impl Fn(Vec<u32>, usize) -> EngineRequest {
    let sampling = Sampling { temperature, seed: 7, ..Sampling::default() };
    move |prompt, tokens| EngineRequest {
        sampling: sampling.clone(),
        ..EngineRequest::new(prompt, tokens)
    }
}

/// The text of a request that had to wait once.
fn text(bench: &Bench, prompt: &[u32], temperature: f32, side: Side) -> Result<Vec<u32>> {
    let mut engine = engine(bench, bench.model.context(), 1)?;
    let text = waits_and_comes_back(&mut engine, &request(temperature), prompt, side)?;
    match (side, engine.state().counters.preemptions) {
        (Side::Clean, 0) => Err(Error::invalid("preemptions", 0, "at least 1")),
        _ => Ok(text),
    }
}

fn as_alone(bench: &Bench, prompt: &[u32], temperature: f32, side: Side) -> Result<()> {
    let mut engine = engine(bench, bench.model.context(), 1)?;
    let mut ticket = submit(&engine, request(temperature)(prompt.to_vec(), TOKENS))?;
    let mut alone = Vec::new();
    while let Step::Ran(_) = engine.step()? {
        alone.extend(read(&mut ticket));
    }
    same_text("the text", &text(bench, prompt, temperature, side)?, &alone)
}
