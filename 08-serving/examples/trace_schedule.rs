//! Writes the trace behind chapter 8's stepper: the same eight requests under three ways to share passes.
//!
//!     cargo run --release -p serving --example trace_schedule > 08-serving/traces/schedule.json

use anyhow::{Result, ensure};
use embedded_models::TARGET;
use naive_decode::{LoadOptions, Model};
use serde::Serialize;
use serving::engine::policy::{Continuous, Policy, StaticBatches};
use serving::engine::{Engine, EngineOptions, EngineRequest, Event, Kind, Step, Ticket};
use std::sync::Arc;

/// Tokens of each request's prompt, and of its answer.
const REQUESTS: [(usize, usize); 8] =
    [(12, 20), (40, 5), (6, 28), (20, 6), (56, 8), (8, 18), (10, 10), (30, 4)];

/// Requests that run at once.
const RUNNING: usize = 3;

/// Each way: what it is called, who decides, and rows of a pass.
fn ways() -> [(&'static str, Arc<dyn Policy>, usize); 3] {
    [
        ("a batch at a time", Arc::new(StaticBatches), 256),
        ("continuous, prompts whole", Arc::new(Continuous), 256),
        ("continuous, 16 rows a pass", Arc::new(Continuous), 16),
    ]
}

#[derive(Serialize)]
struct Trace {
    kind: &'static str,
    command: &'static str,
    /// Tokens of prompt and answer.
    requests: [(usize, usize); 8],
    ways: Vec<Way>,
}

#[derive(Serialize)]
struct Way {
    name: &'static str,
    /// For each pass, whose rows ran.
    passes: Passes,
}

#[derive(Serialize)]
struct Rows {
    request: usize,
    kind: Kind,
    rows: usize,
}

/// The trace as JSON.
///
/// # Errors
/// If a way gives other tokens than the first.
pub(crate) fn trace() -> Result<String> {
    let options = LoadOptions::default();
    let model = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options)?;
    let model = Arc::new(model);
    let mut first = None;
    let mut run = Vec::new();
    for (name, policy, rows) in ways() {
        let (passes, answers) = passes(&model, policy, rows)?;
        let expected = first.get_or_insert_with(|| answers.clone());
        ensure!(*expected == answers, "{name}: other tokens");
        run.push(Way { name, passes });
    }
    let command =
        "cargo run --release -p serving --example trace_schedule > 08-serving/traces/schedule.json";
    let trace = Trace { kind: "schedule", command, requests: REQUESTS, ways: run };
    Ok(serde_json::to_string(&trace)? + "\n")
}

type Passes = Vec<Vec<Rows>>;
type Answers = Vec<Vec<u32>>;

/// Runs the requests; gives each pass, and each request's tokens.
fn passes(model: &Arc<Model>, policy: Arc<dyn Policy>, rows: usize) -> Result<(Passes, Answers)> {
    let usual = EngineOptions::for_model(model)?;
    // Guesses depend on the clock, and what is known on who came before: neither is the point here.
    let options =
        EngineOptions { policy, rows, running: RUNNING, draft: 0, prefixes: false, ..usual };
    let mut engine = Engine::new(model.clone(), options)?;
    let request = |(number, (prompt, answer)): (usize, (usize, usize))| {
        let prompt = (0..prompt).map(|i| (5 + (i * 37 + number * 101) % 2000) as u32).collect();
        EngineRequest::new(prompt, answer)
    };
    let mut tickets: Vec<Ticket> = Vec::new();
    for numbered in REQUESTS.into_iter().enumerate() {
        tickets.push(engine.submit(request(numbered))?);
    }
    let mut passes = Vec::new();
    let mut answers = vec![Vec::new(); REQUESTS.len()];
    while let Step::Ran(record) = engine.step()? {
        let of = |id| tickets.iter().position(|ticket| ticket.id() == id).expect("one of ours");
        let rows = |span: &serving::engine::SpanRecord| Rows {
            request: of(span.id),
            kind: span.kind,
            rows: span.rows,
        };
        passes.push(record.spans.iter().map(rows).collect());
        for (ticket, answer) in tickets.iter_mut().zip(&mut answers) {
            while let Ok(event) = ticket.try_recv() {
                if let Event::Token(token) = event {
                    answer.push(token.token);
                }
            }
        }
    }
    Ok((passes, answers))
}

#[allow(dead_code, reason = "the test of the kept trace uses the rest of this file")]
fn main() -> Result<()> {
    print!("{}", trace()?);
    Ok(())
}
