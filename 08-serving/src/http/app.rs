//! What is served, and to whom.

use super::aside::Aside;
use super::dialect::Dialect;
use super::{Grammars, Keys, Metrics};
use crate::api::{ApiError, now};
use crate::engine::{EngineHandle, Limits};
use axum::body::Bytes;
use model_files::ChatTemplate;
use naive_decode::{Result, Tokenizer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

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
    /// When the server started, in seconds since 1970.
    pub started: u64,
    pub(super) engine: EngineHandle,
    pub(super) grammars: Grammars,
    pub(super) dialect: Dialect,
    pub(super) metrics: Metrics,
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
            aside: Aside::new(),
            keys: Keys::default(),
            answer_in: None,
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

    /// When the answer to a request that comes now ends. Asked for before anything is waited for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answer_in.and_then(|time| Instant::now().checked_add(time))
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
