//! What became of a run.

use super::deployment::Deployment;
use serde::Serialize;

/// One request, in seconds from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RequestOutcome {
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens that were generated.
    pub answer: usize,
    /// When it came.
    pub came: f64,
    /// When its first pass began.
    pub started: f64,
    /// When its first token was known.
    pub first_token: f64,
    /// When it was done.
    pub finished: f64,
    /// How often it gave up its place.
    pub preemptions: usize,
}

impl RequestOutcome {
    /// Seconds from coming to the first token.
    pub fn ttft(&self) -> f64 {
        self.first_token - self.came
    }

    /// Seconds for each token after the first; none if there is no other.
    pub fn tpot(&self) -> Option<f64> {
        let others = self.answer.checked_sub(1).filter(|&others| others > 0)?;
        Some((self.finished - self.first_token) / others as f64)
    }
}

/// How a figure lies over all requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quantiles {
    /// Half of them have no more.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
}

impl Quantiles {
    /// Of some values; all are 0 if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Quantiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }
}

/// Counted while it ran.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Totals {
    pub(super) passes: usize,
    pub(super) rows: usize,
    pub(super) spans: usize,
    pub(super) busy: f64,
    pub(super) preemptions: usize,
    pub(super) drafted: usize,
    pub(super) accepted: usize,
    pub(super) peak_blocks: usize,
}

/// A run as a whole. Times are seconds, sizes are bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Who decided: "continuous", "static".
    pub policy: &'static str,
    /// Where pass times are from: "roofline", "measured".
    pub pass_times: &'static str,
    /// From the first request's coming to the last one's end.
    pub seconds: f64,
    /// The part of that in which a pass ran.
    pub busy: f64,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Tokens generated a second.
    pub tokens_per_second: f64,
    /// Requests done a second.
    pub requests_per_second: f64,
    /// Time to the first token.
    pub ttft: Quantiles,
    /// Time for each token after the first.
    pub tpot: Quantiles,
    /// Passes.
    pub passes: usize,
    /// Rows of a pass, on average.
    pub rows_per_pass: f64,
    /// Requests in a pass, on average.
    pub requests_per_pass: f64,
    /// How often somebody gave up a place.
    pub preemptions: usize,
    /// Guesses that were run.
    pub drafted_tokens: usize,
    /// Those that came true.
    pub accepted_tokens: usize,
    /// What it had at most in memory.
    pub memory: MemoryOutcome,
    /// What a million generated tokens cost, if the hardware has a price.
    pub cost_per_million_tokens: Option<f64>,
    /// Each request, in the order in which they were done.
    pub requests: Vec<RequestOutcome>,
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryOutcome {
    /// Of the weights.
    pub weights: f64,
    /// Of the pool of keys and values.
    pub pool: f64,
    /// Of the blocks of the pool that were held at once, at most.
    pub peak_kv: f64,
    /// That there are.
    pub of: f64,
}

impl Outcome {
    pub(super) fn new(
        deployment: &Deployment,
        requests: Vec<RequestOutcome>,
        totals: Totals,
    ) -> Self {
        let first = requests.iter().map(|request| request.came).fold(f64::INFINITY, f64::min);
        let last = requests.iter().map(|request| request.finished).fold(0.0, f64::max);
        let seconds = (last - first).max(0.0);
        let per_second = |count: usize| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let generated_tokens = requests.iter().map(|request| request.answer).sum();
        let tokens_per_second = per_second(generated_tokens);
        let cost = |price: f64| price / 3600.0 / tokens_per_second * 1e6;
        let Deployment { model, hardware, policy, pass_time, block, .. } = deployment;
        let bytes = |blocks: usize| blocks as f64 * *block as f64 * model.kv_bytes_per_token();
        let mean = |sum: usize| sum as f64 / totals.passes.max(1) as f64;
        Outcome {
            policy: policy.name(),
            pass_times: pass_time.name(),
            seconds,
            busy: if seconds > 0.0 { totals.busy / seconds } else { 0.0 },
            prompt_tokens: requests.iter().map(|request| request.prompt).sum(),
            generated_tokens,
            tokens_per_second,
            requests_per_second: per_second(requests.len()),
            ttft: Quantiles::of(requests.iter().map(RequestOutcome::ttft)),
            tpot: Quantiles::of(requests.iter().filter_map(RequestOutcome::tpot)),
            passes: totals.passes,
            rows_per_pass: mean(totals.rows),
            requests_per_pass: mean(totals.spans),
            preemptions: totals.preemptions,
            drafted_tokens: totals.drafted,
            accepted_tokens: totals.accepted,
            memory: MemoryOutcome {
                weights: model.weight_bytes,
                pool: bytes(deployment.blocks().unwrap_or(0)),
                peak_kv: bytes(totals.peak_blocks),
                of: hardware.memory_bytes,
            },
            cost_per_million_tokens: hardware
                .price_per_hour
                .filter(|_| tokens_per_second > 0.0)
                .map(cost),
            requests,
        }
    }
}
