//! What both ways of asking for text have in common: how a request is answered, and what stands around the answers.

use super::App;
use super::auth::Tenant;
use super::events::{Format, stream};
use super::pieces::{Pieces, start};
use super::prepare::Work;
use crate::api::answers::{Response as Answer, Usage};
use crate::api::{ApiError, Generation, fresh_id, now};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;

/// A way to ask for text, and what its answers are written with.
pub(super) trait Writes: Format + Sized {
    /// One answer, whole.
    type Choice: Serialize + Send;

    /// From a body to what the engine is asked, and whether the answers are streamed.
    ///
    /// # Errors
    /// 400 or 404, naming the parameter that is wrong.
    fn prepare(app: &Arc<App>, tenant: Tenant, body: &[u8])
    -> Result<(Self, Work, bool), ApiError>;

    /// All answers, once they are done.
    ///
    /// # Errors
    /// Whatever ended one of them.
    fn whole(
        self,
        pieces: Pieces,
    ) -> impl Future<Output = Result<Answer<Self::Choice>, ApiError>> + Send;
}

/// Answers a request.
pub(super) async fn answer<W: Writes>(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let prepare = move |app: &Arc<App>, body: &[u8]| W::prepare(app, tenant, body);
    let (writes, work, streams) = app.work(body, prepare).await?;
    let pieces = start(&app, work)?;
    match streams {
        true => Ok(stream(pieces, writes)),
        false => Ok(Json(writes.whole(pieces).await?).into_response()),
    }
}

/// What stands around a request's answers, the same in every piece.
pub(super) struct Frame {
    pub(super) app: Arc<App>,
    id: String,
    created: u64,
    /// What the answers have come to so far.
    pub(super) usage: Usage,
    /// Whether a last event tells the usage, and whether every event does.
    tells_usage: bool,
    always_tells_usage: bool,
}

impl Frame {
    /// A frame of its own for each request; `kind` begins its name.
    pub(super) fn new(app: &Arc<App>, kind: &str, generation: &Generation) -> Self {
        let options = generation.stream_options.clone().unwrap_or_default();
        Frame {
            app: app.clone(),
            id: fresh_id(kind),
            created: now(),
            usage: Usage::default(),
            tells_usage: options.include_usage.unwrap_or(false),
            always_tells_usage: options.continuous_usage_stats.unwrap_or(false),
        }
    }

    fn around<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<Usage>) -> Answer<C> {
        Answer {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.app.name.clone(),
            choices,
            usage,
            prompt_token_ids: None,
        }
    }

    /// All answers.
    pub(super) fn whole<C>(&self, object: &'static str, choices: Vec<C>) -> Answer<C> {
        self.around(object, choices, Some(self.usage))
    }

    /// A piece of one of them.
    pub(super) fn piece<C>(&self, object: &'static str, choice: C) -> Answer<C> {
        self.around(object, vec![choice], self.always_tells_usage.then_some(self.usage))
    }

    /// What comes after all pieces: the usage, if it was asked for.
    pub(super) fn last<C>(&self, object: &'static str) -> Vec<Answer<C>> {
        let told = self.tells_usage || self.always_tells_usage;
        told.then(|| self.whole(object, Vec::new())).into_iter().collect()
    }
}
