//! What is served, and to whom.

use super::aside::Aside;
use super::dialect::Dialect;
use super::share::Share;
use super::watch::LastTold;
use super::{Grammars, Hosts, Keys, Metrics, Origin, bodies, kv_events};
use crate::api::{ApiError, now};
use crate::engine::{EngineHandle, Limits};
use axum::body::Bytes;
use model_files::{ChatTemplate, SamplingDefaults};
use naive_decode::{Result, Tokenizer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// How long requests under way may take to finish once the server is to end, if nothing is said: shorter than
/// Kubernetes waits before it kills (30 seconds).
pub const DRAIN_IN: Duration = Duration::from_secs(25);

/// What every request can see.
pub struct App {
    /// What requests call the model.
    pub name: String,
    /// Its vocabulary.
    pub tokenizer: Arc<Tokenizer>,
    /// How it wants a conversation written down, if it is for conversations.
    pub template: Option<ChatTemplate>,
    /// Tokens that end its texts.
    pub end_tokens: Vec<u32>,
    /// Who may ask.
    pub keys: Keys,
    /// How long an answer may take from when its request is here; none if as long as it likes.
    pub answer_in: Option<Duration>,
    /// Where pages come from that browsers let ask.
    pub origins: Vec<Origin>,
    /// What requests may call the server.
    pub hosts: Hosts,
    /// Whether requests may have priorities.
    pub has_priorities: bool,
    /// Sampling parameters of requests that say nothing of them.
    pub sampling: SamplingDefaults,
    /// Whether it reads prompts for other servers.
    pub reads_for_others: bool,
    /// Whether it tells which blocks are known, with their tokens.
    pub tells_kv_events: bool,
    /// How long what is under way may take to finish once the server is to end; answers then end where they are.
    pub drain_in: Duration,
    /// When the server started, in seconds since 1970.
    pub started: u64,
    pub(super) engine: EngineHandle,
    pub(super) grammars: Grammars,
    pub(super) dialect: Dialect,
    pub(super) metrics: Metrics,
    pub(super) last_told: LastTold,
    pub(super) share: Share,
    /// Places for those who listen to KV events.
    pub(super) kv_listeners: Arc<Semaphore>,
    /// Places for large bodies.
    pub(super) large_bodies: Arc<Semaphore>,
    aside: Aside,
    draining: watch::Sender<bool>,
}

impl App {
    /// Serves what the engine runs, to everybody.
    ///
    /// # Errors
    /// If the vocabulary cannot be prepared for grammars.
    pub fn new(
        name: impl Into<String>,
        tokenizer: Tokenizer,
        template: Option<ChatTemplate>,
        end_tokens: Vec<u32>,
        engine: EngineHandle,
    ) -> Result<Self> {
        let name = name.into();
        let tokenizer = Arc::new(tokenizer);
        Ok(App {
            grammars: Grammars::new(&tokenizer, engine.limits().vocabulary, &end_tokens)?,
            dialect: Dialect::of(template.as_ref(), &tokenizer),
            metrics: Metrics::new(&name),
            last_told: LastTold::default(),
            share: Share::of(engine.limits().queue),
            kv_listeners: Arc::new(Semaphore::new(kv_events::MOST_LISTENERS)),
            large_bodies: Arc::new(Semaphore::new(bodies::LARGE_AT_ONCE)),
            aside: Aside::of(engine.limits().queue.saturating_add(engine.limits().running)),
            keys: Keys::default(),
            answer_in: None,
            origins: Vec::new(),
            hosts: Hosts::default(),
            has_priorities: false,
            sampling: SamplingDefaults::default(),
            reads_for_others: false,
            tells_kv_events: false,
            drain_in: DRAIN_IN,
            started: now(),
            draining: watch::Sender::new(false),
            name,
            tokenizer,
            template,
            end_tokens,
            engine,
        })
    }

    /// To those who have one of these keys.
    pub fn with_keys(self, keys: Keys) -> Self {
        App { keys, ..self }
    }

    /// With answers that end so long after their request has come, however far they are.
    pub fn with_answers_in(self, answer_in: Option<Duration>) -> Self {
        App { answer_in, ..self }
    }

    /// To pages from there, too.
    pub fn with_origins(self, origins: Vec<Origin>) -> Self {
        App { origins, ..self }
    }

    /// To requests that call it so.
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        App { hosts, ..self }
    }

    /// With requests that may go before others.
    pub fn with_priorities(self, has_priorities: bool) -> Self {
        App { has_priorities, ..self }
    }

    /// With other sampling parameters than OpenAI's where requests say nothing of them.
    pub fn with_sampling(self, sampling: SamplingDefaults) -> Self {
        App { sampling, ..self }
    }

    /// With prompts that are read for other servers, which have their keys and values.
    pub fn with_prompts_of_others(self, reads_for_others: bool) -> Self {
        App { reads_for_others, ..self }
    }

    /// With KV events for whoever may ask.
    pub fn with_kv_events(self, tells_kv_events: bool) -> Self {
        App { tells_kv_events, ..self }
    }

    /// With so long to finish what is under way once the server is to end.
    pub fn with_drain_in(self, drain_in: Duration) -> Self {
        App { drain_in, ..self }
    }

    /// A request's priority, as the engine takes it: there higher goes first, here lower, as in vLLM.
    ///
    /// # Errors
    /// 400 where requests have none.
    pub(super) fn priority(&self, asked: Option<i32>) -> std::result::Result<i32, ApiError> {
        match asked.unwrap_or(0) {
            0 => Ok(0),
            asked if self.has_priorities => Ok(asked.saturating_neg()),
            asked => {
                let expected = "0: this server takes requests in the order in which they come \
                    (--scheduling-policy fcfs)";
                Err(ApiError::value("priority", asked, expected))
            }
        }
    }

    /// When the answer to a request ends that has come at a moment.
    pub(super) fn deadline(&self, come: Instant) -> Option<Instant> {
        self.answer_in.and_then(|time| come.checked_add(time))
    }

    /// Does what a request's body asks for on threads of its own: see [`Aside`].
    ///
    /// # Errors
    /// The work's own, 429 if too many wait, and 500 if it panics.
    pub(super) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        body: Bytes,
        work: impl FnOnce(&Arc<App>, &[u8]) -> std::result::Result<T, ApiError> + Send + 'static,
    ) -> std::result::Result<T, ApiError> {
        let app = self.clone();
        self.aside.run(body.len(), move || work(&app, &body)).await
    }

    /// What the engine can take.
    pub fn limits(&self) -> Limits {
        self.engine.limits()
    }

    /// How many compiled forms of answers are kept.
    pub fn kept_forms(&self) -> usize {
        self.grammars.kept()
    }

    /// From now on no request is taken; those there are will be finished.
    pub fn drain(&self) {
        self.engine.drain();
        self.draining.send_replace(true);
    }

    /// Whether [`App::drain`] was called.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Why an answer was ended before there was anything of it. While the server ends that is the reason, whichever time was up.
    pub(super) fn not_done(&self) -> ApiError {
        match self.is_draining() {
            true => ApiError::draining(),
            false => ApiError::late(),
        }
    }

    /// Waits until [`App::drain`] is called.
    pub async fn draining(&self) {
        // The sender lives as long as this.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Refuses a request for a model that is not here.
    ///
    /// # Errors
    /// 404.
    pub fn check_model(&self, asked: Option<&str>) -> std::result::Result<(), ApiError> {
        match asked {
            Some(asked) if asked != self.name => {
                Err(ApiError::no_model(asked, &format!("\"{}\"", self.name)))
            }
            _ => Ok(()),
        }
    }
}
