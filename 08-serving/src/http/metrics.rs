//! `GET /metrics`: what Prometheus collects, by vLLM's names, so that dashboards made for it work.

use super::App;
use crate::engine::{Counters, EngineState, Event, Usage};
use crate::text::{Ending, Reason};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::formatting::sanitize_label_value;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::debug;

/// Upper ends of the histograms' buckets, in seconds: two to each octave, from half a millisecond to two minutes.
const FIRST_BUCKET: f64 = 0.0005;
const BUCKETS: usize = 37;

/// Upper ends of the buckets of lengths: a power of two each, up to 1,048,576 tokens.
const LENGTH_BUCKETS: u32 = 21;

/// Requests whose times the page shows.
const RECENT: usize = 60;

/// What is measured here; what the engine counts is asked of it.
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    prometheus: PrometheusHandle,
    labels: [(&'static str, String); 2],
    ended: [Counter; 4],
    running: Gauge,
    waiting: Gauge,
    cache_usage: Gauge,
    counted: [Counter; 13],
    first_token: Histogram,
    between_tokens: Histogram,
    end_to_end: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    per_token: Histogram,
    prompt_tokens: Histogram,
    answer_tokens: Histogram,
    longest_answer: Histogram,
    recent: Mutex<Recent>,
}

/// Times of the last requests, oldest first.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Recent {
    /// Times to the first token (TTFT), ms.
    pub(super) ttft_ms: VecDeque<f64>,
    /// Times per token after it (TPOT), ms.
    tpot_ms: VecDeque<f64>,
}

/// Names of what the engine counts.
const COUNTED: [&str; 13] = [
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:external_prefix_cache_queries_total",
    "vllm:external_prefix_cache_hits_total",
    "ladder:kv_received_tokens_total",
    "ladder:kv_received_bytes_total",
    "ladder:kv_sent_bytes_total",
    "vllm:num_preemptions_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
];

fn counts(of: &Counters) -> [u64; 13] {
    [
        of.prompt_tokens,
        of.generated_tokens,
        of.prefix_queries,
        of.prefix_hits,
        of.tier_queries,
        of.tier_hits,
        of.brought_tokens,
        of.brought_bytes,
        of.lent_bytes,
        of.preemptions,
        of.drafts,
        of.drafted_tokens,
        of.accepted_tokens,
    ]
}

impl Metrics {
    /// Nothing measured yet. `model` is the label `model_name`.
    pub fn new(model: &str) -> Self {
        let ends: Vec<f64> = (0..BUCKETS).map(|i| FIRST_BUCKET * (i as f64 / 2.0).exp2()).collect();
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &ends);
        let lengths: Vec<f64> = (0..LENGTH_BUCKETS).map(|i| f64::from(1 << i)).collect();
        let builder = builder.expect("there are buckets");
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_tokens".into()), &lengths);
        let recorder = Arc::new(builder.expect("there are buckets").build_recorder());
        let labels = [("model_name", model.to_owned()), ("engine", "0".to_owned())];
        with_local_recorder(&*recorder, || Metrics {
            recorder: recorder.clone(),
            prometheus: recorder.handle(),
            ended: ["stop", "length", "abort", "error"].map(|reason| {
                let mut labels: Vec<Label> = labels.iter().map(Label::from).collect();
                labels.push(Label::new("finished_reason", reason));
                counter!("vllm:request_success_total", labels)
            }),
            running: gauge!("vllm:num_requests_running", &labels),
            waiting: gauge!("vllm:num_requests_waiting", &labels),
            cache_usage: gauge!("vllm:kv_cache_usage_perc", &labels),
            counted: COUNTED.map(|name| counter!(name, &labels)),
            first_token: histogram!("vllm:time_to_first_token_seconds", &labels),
            between_tokens: histogram!("vllm:inter_token_latency_seconds", &labels),
            end_to_end: histogram!("vllm:e2e_request_latency_seconds", &labels),
            queue: histogram!("vllm:request_queue_time_seconds", &labels),
            prefill: histogram!("vllm:request_prefill_time_seconds", &labels),
            decode: histogram!("vllm:request_decode_time_seconds", &labels),
            per_token: histogram!("vllm:request_time_per_output_token_seconds", &labels),
            prompt_tokens: histogram!("vllm:request_prompt_tokens", &labels),
            answer_tokens: histogram!("vllm:request_generation_tokens", &labels),
            longest_answer: histogram!("vllm:request_max_num_generation_tokens", &labels),
            recent: Mutex::default(),
            labels,
        })
    }

    /// Sums up what was measured since the last time. Until then each measurement is kept by itself, so a server whose
    /// metrics nobody collects would grow without end.
    pub(super) fn sum_up(&self) {
        self.prometheus.run_upkeep();
    }

    /// Counts a request by its route, none if nothing is there, and the status that it was answered with. Streams begin
    /// with 200, whatever becomes of them.
    pub(super) fn answered(&self, route: Option<&str>, status: StatusCode) {
        let labels = [
            ("handler", route.unwrap_or("none").to_owned()),
            ("status", status.as_str().to_owned()),
        ];
        let count = || counter!("http_requests_total", &labels).increment(1);
        with_local_recorder(&*self.recorder, count);
    }

    /// Times one answer that the engine has now taken. Its request was here at a moment before, from which on it is late.
    pub(super) fn clock(&self, come: Instant) -> Clock<'_> {
        Clock {
            metrics: self,
            come,
            taken: Instant::now(),
            started: None,
            first: None,
            last: None,
            tokens: 0,
            usage: None,
        }
    }

    /// Finds out how long the longest of so many answers to one prompt is.
    pub(super) fn longest_of(&self, answers: usize) -> Longest {
        let longest = self.longest_answer.clone();
        Longest { left: AtomicUsize::new(answers), most: AtomicUsize::new(0), longest }
    }

    /// All of it as Prometheus reads it, with what the engine counts.
    fn text(&self, state: &EngineState) -> String {
        self.running.set(state.running as f64);
        self.waiting.set(state.waiting as f64);
        self.cache_usage.set(state.blocks.used() as f64 / state.blocks.total.max(1) as f64);
        let blocks = [("block_size", state.blocks.tokens), ("num_gpu_blocks", state.blocks.total)];
        let blocks = blocks.map(|(name, count)| (name, count.to_string()));
        let labels = [&self.labels[..], &blocks].concat();
        let configured = || gauge!("vllm:cache_config_info", &labels).set(1.0);
        with_local_recorder(&*self.recorder, configured);
        for (counter, count) in self.counted.iter().zip(counts(&state.counters)) {
            counter.absolute(count);
        }
        let mut text = self.prometheus.render();
        // The engine keeps a sum and a count of these; one bucket holds them all. Labels are written as in all others.
        let label =
            |(name, value): &(_, String)| format!("{name}=\"{}\"", sanitize_label_value(value));
        let [model, engine] = self.labels.each_ref().map(label);
        let name = "vllm:iteration_tokens_total";
        let Counters { passes, rows, .. } = state.counters;
        let _ = write!(
            text,
            "# TYPE {name} histogram\n{name}_bucket{{{model},{engine},le=\"+Inf\"}} {passes}\n\
             {name}_sum{{{model},{engine}}} {rows}\n{name}_count{{{model},{engine}}} {passes}\n\n"
        );
        text
    }

    /// Times of the last requests.
    pub(super) fn recent(&self) -> Recent {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The longest answer to one prompt, once all of them have ended.
pub(super) struct Longest {
    left: AtomicUsize,
    most: AtomicUsize,
    longest: Histogram,
}

impl Longest {
    /// One has ended after so many tokens.
    pub(super) fn ended(&self, tokens: usize) {
        self.most.fetch_max(tokens, Ordering::AcqRel);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.longest.record(self.most.load(Ordering::Acquire) as f64);
        }
    }
}

/// Times one answer. Moments are those at which the engine sent what has happened: how fast a client reads is no matter
/// of the engine's, until it holds the answer back.
pub(super) struct Clock<'a> {
    metrics: &'a Metrics,
    /// When its request was here: to prepare it takes time, too.
    come: Instant,
    /// When the engine took it.
    taken: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    tokens: usize,
    /// What the engine says that it took; it does not if a stop string ended it.
    usage: Option<Usage>,
}

impl Clock<'_> {
    /// Something has happened to it, and was sent at a moment.
    pub(super) fn see(&mut self, event: &Event, sent: Instant) {
        match event {
            Event::Started { .. } => self.started = Some(sent),
            Event::Token(_) => {
                self.tokens += 1;
                match self.last {
                    None => {
                        self.first = Some(sent);
                        self.metrics.first_token.record(sent.saturating_duration_since(self.come));
                    }
                    // A pass brings several tokens at once where guesses come true.
                    Some(last) if last == sent => {}
                    Some(last) => self.metrics.between_tokens.record(sent - last),
                }
                self.last = Some(sent);
            }
            Event::Finished { usage, .. } => self.usage = Some(*usage),
            Event::Prompt(_) | Event::Embedding(_) | Event::Failed(_) => {}
        }
    }

    /// It has ended.
    pub(super) fn ended(&self, ending: &Ending) {
        let [stop, length, ..] = &self.metrics.ended;
        match ending.reason {
            Reason::Stop => stop.increment(1),
            Reason::Length => length.increment(1),
        }
        self.took(ending.prompt_tokens);
        self.metrics.answer_tokens.record(ending.tokens as f64);
        debug!(
            prompt_tokens = ending.prompt_tokens,
            cached_tokens = ending.cached_tokens,
            tokens = ending.tokens,
            ttft_ms = self
                .first
                .map(|first| { first.saturating_duration_since(self.come).as_millis() as u64 }),
            ms = self.come.elapsed().as_millis() as u64,
            "an answer has ended"
        );
        let (Some(started), Some(first), Some(last)) = (self.started, self.first, self.last) else {
            return;
        };
        let since = |moment: Instant| moment.saturating_duration_since(self.taken);
        let (queued, to_first, total) = match self.usage {
            Some(Usage { queued, first_token: Some(to_first), total, .. }) => {
                (queued, to_first, total)
            }
            _ => (since(started), since(first), since(last)),
        };
        self.metrics.queue.record(queued);
        self.metrics.prefill.record(to_first.saturating_sub(queued));
        self.metrics.decode.record(total.saturating_sub(to_first));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut recent = self.metrics.recent.lock().unwrap_or_else(PoisonError::into_inner);
        push(&mut recent.ttft_ms, ms(first.saturating_duration_since(self.come)));
        if self.tokens > 1 {
            let per_token = (last - first).as_secs_f64() / (self.tokens - 1) as f64;
            self.metrics.per_token.record(per_token);
            push(&mut recent.tpot_ms, per_token * 1e3);
        }
    }

    /// A text has been embedded. It counts as stopped, as vLLM has it.
    pub(super) fn embedded(&self) {
        let [stop, ..] = &self.metrics.ended;
        stop.increment(1);
        let Some(Usage { prompt_tokens, queued, total, .. }) = self.usage else { return };
        self.took(prompt_tokens);
        self.metrics.queue.record(queued);
        self.metrics.prefill.record(total.saturating_sub(queued));
    }

    /// What anything that has ended is measured by.
    fn took(&self, prompt_tokens: usize) {
        self.metrics.end_to_end.record(self.come.elapsed());
        self.metrics.prompt_tokens.record(prompt_tokens as f64);
    }

    /// Its client is gone.
    pub(super) fn gone(&self) {
        debug!(tokens = self.tokens, "a client has gone before its answer was done");
        let [_, _, abort, _] = &self.metrics.ended;
        abort.increment(1);
    }

    /// It has failed.
    pub(super) fn failed(&self) {
        let [.., error] = &self.metrics.ended;
        error.increment(1);
    }
}

fn push(times: &mut VecDeque<f64>, time: f64) {
    times.push_back(time);
    if times.len() > RECENT {
        times.pop_front();
    }
}

/// What Prometheus collects.
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Prometheus' text format", content_type = "text/plain")),
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let text = app.metrics.text(&app.engine.state());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_s_name_is_written_the_same_everywhere_and_as_prometheus_reads_it() {
        for (name, written) in
            [("e\u{301}", "e\u{301}"), ("a \"b\"\n\t\\c", "a \\\"b\\\"\\n\t\\\\c")]
        {
            let text = Metrics::new(name).text(&EngineState::default());
            let mut labelled = text.lines().filter(|line| line.contains("model_name="));
            let label = format!("model_name=\"{written}\"");
            assert!(labelled.all(|line| line.contains(&label)), "{label} is not in all of {text}");
            assert!(text.contains("vllm:iteration_tokens_total_count{"), "{text}");
        }
    }

    #[test]
    fn a_failure_is_an_error_and_not_a_client_that_has_gone() {
        let metrics = Metrics::new("a model");
        metrics.clock(Instant::now()).failed();
        metrics.clock(Instant::now()).failed();
        metrics.clock(Instant::now()).gone();
        let text = metrics.text(&EngineState::default());
        for (reason, times) in [("error", 2), ("abort", 1), ("stop", 0), ("length", 0)] {
            assert!(text.contains(&format!("finished_reason=\"{reason}\"}} {times}")), "{text}");
        }
    }

    #[test]
    fn the_longest_answer_is_known_when_all_have_ended() {
        let metrics = Metrics::new("a model");
        let longest = metrics.longest_of(3);
        let sum = || {
            let text = metrics.text(&EngineState::default());
            let line = text.lines().find(|line| line.contains("max_num_generation_tokens_sum"));
            line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
        };
        [5, 9].into_iter().for_each(|tokens| longest.ended(tokens));
        assert_ne!(sum().as_deref(), Some("9"));
        longest.ended(2);
        assert_eq!(sum().as_deref(), Some("9"));
    }
}
