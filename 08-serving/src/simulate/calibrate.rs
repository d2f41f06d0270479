//! Times passes of a real engine, for the simulator to fit.

use super::drive::{Task, drive};
use crate::engine::{Engine, EngineOptions, PassRecord, SpanRecord};
use crate::simulator::{SimulatedModel, SpanWork, TimedPass};
use anyhow::Result;
use indicatif::ProgressBar;
use naive_decode::Model;
use std::collections::HashMap;
use std::sync::Arc;

/// Tokens of each answer: as many passes of each kind.
const ANSWER: usize = 9;

/// Tokens of a short prompt.
const SHORT: usize = 8;

/// How often each load is run.
const REPEATS: usize = 5;

/// Requests that are there at once: their prompts, and tokens of each answer.
struct Load {
    prompts: Vec<usize>,
    answer: usize,
}

/// Loads that show what a pass takes: texts side by side, at the beginning and `depth` tokens on, and prompts of
/// several lengths.
fn loads(options: &EngineOptions, depth: usize) -> Vec<Load> {
    let powers =
        |most: usize| (0..).map(|power| 1 << power).take_while(move |&count| count <= most);
    let mut loads = Vec::new();
    for texts in powers(options.running) {
        loads.push(Load { prompts: vec![SHORT; texts], answer: ANSWER });
        // Reading so far takes its time; a few of them show what it adds.
        if texts == 1 || texts == 4 {
            loads.push(Load { prompts: vec![depth; texts], answer: ANSWER });
        }
    }
    // With one token of an answer a prompt is all there is.
    for rows in powers(options.rows).filter(|&rows| rows > SHORT && rows <= depth) {
        loads.push(Load { prompts: vec![rows], answer: 1 });
    }
    loads
}

// ANCHOR: calibrate
/// What passes of an engine take that is set up like this, for texts of up to `depth` tokens. Guesses are left
/// out: how many rows there are is all that they change.
///
/// # Errors
/// If the engine cannot be set up, or a text does not fit into its pool.
pub fn calibrate(
    model: &Arc<Model>,
    counted: &SimulatedModel,
    options: &EngineOptions,
    depth: usize,
    bar: &ProgressBar,
) -> Result<Vec<TimedPass>> {
    let options = EngineOptions { draft: 0, prefixes: false, kv_file: None, ..options.clone() };
    let loads = loads(&options, depth);
    bar.inc_length(loads.len() as u64);
    let mut engine = Engine::new(model.clone(), options)?;
    let mut passes = Vec::new();
    for load in &loads {
        // The first time around, memory is new.
        run(&mut engine, counted, load)?;
        let repeats = (0..REPEATS).map(|_| run(&mut engine, counted, load));
        let runs: Vec<Vec<TimedPass>> = repeats.collect::<Result<_>>()?;
        // The same passes in each.
        passes.extend((0..runs[0].len()).map(|pass| {
            let seconds = runs.iter().flat_map(|run| run[pass].seconds.iter().copied()).collect();
            TimedPass { seconds, ..runs[0][pass].clone() }
        }));
        bar.inc(1);
    }
    Ok(passes)
}
// ANCHOR_END: calibrate

/// Runs a load to its end and times each step.
fn run(engine: &mut Engine, counted: &SimulatedModel, load: &Load) -> Result<Vec<TimedPass>> {
    let vocabulary = engine.limits().vocabulary;
    let token = |request: usize, place: usize| ((request * 31 + place * 37) % vocabulary) as u32;
    let task = |(request, &length): (usize, &usize)| Task {
        prompt: (0..length).map(|place| token(request, place)).collect(),
        answer: load.answer,
    };
    let tasks: Vec<Task> = load.prompts.iter().enumerate().map(task).collect();
    let driven = drive(engine, &tasks, tasks.len())?;
    let mut held: HashMap<u64, usize> = HashMap::new();
    let mut timed = |(record, seconds): (PassRecord, f64)| {
        for id in &record.preempted {
            held.remove(id);
        }
        let span = |span: &SpanRecord| {
            let held = held.entry(span.id).or_default();
            *held += span.rows;
            SpanWork { cached: *held - span.rows, rows: span.rows, logits: span.tokens.min(1) }
        };
        let spans: Vec<SpanWork> = record.spans.iter().map(span).collect();
        TimedPass { work: counted.work(spans), seconds: vec![seconds] }
    };
    Ok(driven.steps.into_iter().map(&mut timed).collect())
}
