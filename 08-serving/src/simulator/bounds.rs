//! What can be said before anything runs: the roofline's figures for a deployment.

use super::deployment::Deployment;
use super::model::SpanWork;
use naive_decode::Result;
use serde::Serialize;
use speculative::expected;

/// Sizes of a batch that are shown.
const BATCHES: [usize; 6] = [1, 4, 16, 64, 256, 1024];

/// Which of the two limits decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Bytes a second.
    Memory,
    /// FLOPs a second.
    Arithmetic,
}

/// One pass under the roofline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PassBound {
    /// Requests in it.
    pub requests: usize,
    /// Rows of it.
    pub rows: usize,
    /// The least seconds that it can take.
    pub seconds: f64,
    /// What decides that.
    pub limit: Limit,
    /// Bytes of weights and of these requests' keys and values.
    pub memory_bytes: f64,
    /// Whether that is there.
    pub fits: bool,
    /// Tokens a second of all requests, with what guesses ought to bring.
    pub tokens_per_second: f64,
    /// What a million of them cost, if the hardware has a price.
    pub cost_per_million_tokens: Option<f64>,
}

/// The roofline's figures for a deployment and requests of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bounds {
    /// FLOPs that can be done in the time of a byte.
    pub ridge: f64,
    /// Bytes of the weights.
    pub weight_bytes: f64,
    /// Bytes that a token adds to the cache.
    pub kv_bytes_per_token: f64,
    /// Bytes of one request's cache at its end.
    pub kv_bytes_per_request: f64,
    /// Requests whose caches fit beside the weights at their end.
    pub requests_that_fit: usize,
    /// The prompt, alone and in one pass: the least that the first token waits.
    pub prefill: PassBound,
    /// A step of requests in the middle of their answers, for several sizes of the batch.
    pub decode: Vec<PassBound>,
    /// Tokens of a step of one text, with what guesses ought to bring.
    pub tokens_per_step: f64,
    /// How many times as fast that makes it, if wider passes take no longer.
    pub speculative_speed_up: f64,
}

impl Deployment {
    // ANCHOR: bounds
    /// The roofline's figures for requests of these lengths, whatever passes have been measured to take. Also of
    /// a deployment that does not fit: it says so.
    ///
    /// # Errors
    /// Numbers that nothing can be computed with.
    pub fn bounds(&self, prompt: usize, answer: usize) -> Result<Bounds> {
        self.check()?;
        let model = &self.model;
        let middle = prompt + answer / 2;
        let longest = prompt + answer;
        let fit = (self.room() / model.kv_bytes(longest.max(1))).floor().max(0.0);
        let read = SpanWork { cached: 0, rows: prompt, logits: 1 };
        let speculation = self.speculation;
        let (draft, acceptance) = (speculation.draft, speculation.acceptance);
        Ok(Bounds {
            ridge: self.hardware.machine().ridge(),
            weight_bytes: model.weight_bytes,
            kv_bytes_per_token: model.kv_bytes_per_token(),
            kv_bytes_per_request: model.kv_bytes(longest),
            requests_that_fit: fit.min(usize::MAX as f64) as usize,
            prefill: self.pass(1, read, 1.0, 0.0),
            decode: BATCHES.map(|batch| self.decode_step(batch, middle)).into(),
            tokens_per_step: expected::tokens_per_cycle(acceptance, draft),
            speculative_speed_up: expected::speed_up(acceptance, draft, speculation.cost),
        })
    }
    // ANCHOR_END: bounds

    /// A step of `batch` requests with `tokens` tokens each, the new one included.
    pub fn decode_step(&self, batch: usize, tokens: usize) -> PassBound {
        let Deployment { speculation, .. } = self;
        let rows = 1 + speculation.draft;
        let span = SpanWork { cached: tokens.saturating_sub(1), rows, logits: rows };
        let each = expected::tokens_per_cycle(speculation.acceptance, speculation.draft);
        let plain = SpanWork { rows: 1, logits: 1, ..span };
        let (flops, bytes) = self.seconds(batch, plain);
        let drafting = speculation.draft as f64 * speculation.cost * flops.max(bytes);
        self.pass(batch, span, each, drafting)
    }

    /// Seconds that so many spans that are alike take, by arithmetic and by memory.
    fn seconds(&self, requests: usize, span: SpanWork) -> (f64, f64) {
        let work = self.model.work(std::iter::repeat_n(span, requests));
        let machine = self.hardware.machine();
        (work.flops / machine.peak_flops, work.bytes / machine.bandwidth)
    }

    /// So many spans that are alike, each of which brings `each` tokens, after `drafting` seconds of guessing.
    fn pass(&self, requests: usize, span: SpanWork, each: f64, drafting: f64) -> PassBound {
        let (flops, bytes) = self.seconds(requests, span);
        let seconds = flops.max(bytes) + drafting;
        let tokens_per_second = requests as f64 * each / seconds;
        let held = self.model.kv_bytes(span.cached + span.rows);
        let memory_bytes = self.model.weight_bytes + requests as f64 * held;
        let price = self.hardware.price_per_hour;
        PassBound {
            requests,
            rows: requests * span.rows,
            seconds,
            limit: if flops > bytes { Limit::Arithmetic } else { Limit::Memory },
            memory_bytes,
            fits: memory_bytes <= self.hardware.memory_bytes,
            tokens_per_second,
            cost_per_million_tokens: price.map(|price| price / 3600.0 / tokens_per_second * 1e6),
        }
    }
}
