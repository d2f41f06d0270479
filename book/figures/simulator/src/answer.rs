//! What the page shows: figures in words, so that nobody has to write them a second time.

use crate::Result;
use crate::settings::Settings;
use crate::simulator::words::{bytes, money, three_digits, time};
use crate::simulator::{Deployment, Limit, Outcome, PassBound, Quantiles, simulate};
use serde::Serialize;

/// What the page shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// What the roofline allows.
    roofline: Vec<Row>,
    /// What became of the run; empty if there is none.
    run: Vec<Row>,
    /// Why there is no run.
    problem: Option<String>,
    /// The part of all memory that the weights take, and that keys and values took at most, in per cent.
    memory: [f64; 2],
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    name: &'static str,
    text: String,
}

fn row(name: &'static str, text: String) -> Row {
    Row { name, text }
}

/// What becomes of a deployment.
///
/// # Errors
/// Names and numbers that mean nothing. A deployment that does not fit is an answer.
pub fn answer(settings: &Settings) -> Result<Answer> {
    let deployment = settings.deployment()?;
    let outcome = run(&deployment, settings);
    let kv = outcome.as_ref().map_or(0.0, |outcome| outcome.memory.peak_kv);
    let part = |bytes: f64| 100.0 * bytes / deployment.hardware.memory_bytes;
    Ok(Answer {
        roofline: roofline(&deployment, settings)?,
        memory: [part(deployment.model.weight_bytes), part(kv)],
        problem: outcome.as_ref().err().map(ToString::to_string),
        run: outcome.map(|outcome| rows(&outcome)).unwrap_or_default(),
    })
}

fn run(deployment: &Deployment, settings: &Settings) -> Result<Outcome> {
    simulate(deployment, &settings.workload(deployment.longest()?)?)
}

fn roofline(deployment: &Deployment, settings: &Settings) -> Result<Vec<Row>> {
    let (prompt, answer) = settings.lengths();
    let bounds = deployment.bounds(prompt, answer)?;
    let bound = |pass: &PassBound| {
        let by = match pass.limit {
            Limit::Memory => "memory",
            Limit::Arithmetic => "arithmetic",
        };
        format!("{}, by {by}", time(pass.seconds))
    };
    let step = |requests| deployment.decode_step(requests, prompt + answer / 2);
    let mut rows = vec![
        row("weights", bytes(bounds.weight_bytes)),
        row("cache of a token", bytes(bounds.kv_bytes_per_token)),
        row("requests that fit", bounds.requests_that_fit.to_string()),
        row("the prompt alone", bound(&bounds.prefill)),
        row("a step of one text", bound(&step(1))),
    ];
    // More than memory holds cannot run at once, whatever the limit is; if it holds nobody, there is no such step.
    let together = settings.running.min(bounds.requests_that_fit);
    if together > 0 {
        let full = step(together);
        rows.push(row("a step of all that may run", bound(&full)));
        rows.push(row("tokens a second, then", three_digits(full.tokens_per_second)));
    }
    if settings.draft > 0 {
        let faster = three_digits(bounds.speculative_speed_up);
        rows.push(row("guesses, one text", format!("{faster} times as fast")));
    }
    Ok(rows)
}

fn rows(outcome: &Outcome) -> Vec<Row> {
    let middle = |of: Quantiles| format!("{} (p95 {})", time(of.p50), time(of.p95));
    let mut rows = vec![
        row("time to first token", middle(outcome.ttft)),
        row("time per token", middle(outcome.tpot)),
        row("tokens a second", three_digits(outcome.tokens_per_second)),
        row("requests a second", three_digits(outcome.requests_per_second)),
        row("requests in a pass", three_digits(outcome.requests_per_pass)),
        row("gave up a place", outcome.preemptions.to_string()),
        row("keys and values, at most", bytes(outcome.memory.peak_kv)),
    ];
    if outcome.drafted_tokens > 0 {
        let kept = 100.0 * outcome.accepted_tokens as f64 / outcome.drafted_tokens as f64;
        rows.push(row("kept of all guesses", format!("{} %", three_digits(kept))));
    }
    if outcome.cost_per_million_tokens.is_some() {
        rows.push(row("a million tokens cost", money(outcome.cost_per_million_tokens)));
    }
    rows
}
