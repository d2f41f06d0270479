//! What the page shows.

use crate::simulator::{MemoryOutcome, PassBound, Quantiles, simulate};
use crate::{Result, Settings};
use serde::Serialize;

/// What the page shows. Times are seconds, sizes are bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Bytes of the weights.
    weight_bytes: f64,
    /// Bytes of all memory.
    memory_bytes: f64,
    /// Bytes that a token adds to the cache.
    kv_bytes_per_token: f64,
    /// Reading a prompt of mean length, under the roofline.
    prefill: PassBound,
    /// A step of as many texts as may run at once, under the roofline.
    decode: PassBound,
    /// What guesses ought to bring.
    speed_up: f64,
    /// The run, or why there is none.
    run: std::result::Result<Run, String>,
}

/// A run, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Run {
    ttft: Quantiles,
    tpot: Quantiles,
    tokens_per_second: f64,
    requests_per_second: f64,
    busy: f64,
    passes: usize,
    rows_per_pass: f64,
    requests_per_pass: f64,
    preemptions: usize,
    memory: MemoryOutcome,
    cost_per_million_tokens: Option<f64>,
}

/// What becomes of a deployment.
///
/// # Errors
/// Names and numbers that mean nothing. A deployment that does not fit is an answer.
pub fn answer(settings: &Settings) -> Result<Answer> {
    let deployment = settings.deployment()?;
    let (prompt, answer) = settings.lengths();
    let bounds = deployment.bounds(prompt, answer)?;
    let run = || -> Result<Run> {
        let workload = settings.workload(deployment.longest()?)?;
        let outcome = simulate(&deployment, &workload)?;
        Ok(Run {
            ttft: outcome.ttft,
            tpot: outcome.tpot,
            tokens_per_second: outcome.tokens_per_second,
            requests_per_second: outcome.requests_per_second,
            busy: outcome.busy,
            passes: outcome.passes,
            rows_per_pass: outcome.rows_per_pass,
            requests_per_pass: outcome.requests_per_pass,
            preemptions: outcome.preemptions,
            memory: outcome.memory,
            cost_per_million_tokens: outcome.cost_per_million_tokens,
        })
    };
    Ok(Answer {
        weight_bytes: bounds.weight_bytes,
        memory_bytes: deployment.hardware.memory_bytes,
        kv_bytes_per_token: bounds.kv_bytes_per_token,
        prefill: bounds.prefill,
        decode: deployment.decode_step(settings.running(), prompt + answer / 2),
        speed_up: bounds.speculative_speed_up,
        run: run().map_err(|error| error.to_string()),
    })
}
