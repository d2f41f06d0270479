//! `POST /v1/embeddings`

use super::App;
use super::answer::written;
use super::auth::Tenant;
use super::metrics::Clock;
use super::pieces::refusal;
use super::share::{Taken, Text, submit};
use crate::api::completions::Asked;
use crate::api::embeddings::*;
use crate::api::{ApiError, read};
use crate::engine::{Event, FinishReason, Refused};
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Instant;

/// Numbers from which on an answer is a large one, of several megabytes.
const LARGE: usize = 1 << 18;

/// Texts as points: the final hidden state of each one's last token, which has seen all of it, at length 1. How near
/// two are is for the model to say; one that was trained to continue texts, and not for this, says it roughly.
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "embeddings", request_body = EmbeddingRequest,
    responses((status = 200, description = "One embedding for each input, in order", body = Embeddings)),
)]
pub(super) async fn embeddings(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let come = Instant::now();
    let deadline = app.deadline(come);
    let prepare = move |app: &Arc<App>, body: &[u8]| prepare(app, tenant, deadline, body);
    // A large body keeps its place until its texts' turn has come: otherwise any number of them could wait.
    let place = body.clone();
    let (texts, encoding) = app.work(body, prepare).await?;
    let prompt_tokens = texts.iter().map(|text| text.tokens.len()).sum();
    let _begun = app.share.begin(deadline).await?;
    drop(place);
    // Once the first is taken, the others wait for room, and are taken after the server is told to end, too: what is done
    // already is not to be thrown away.
    let series = app.engine.begin_series().map_err(|refused| refusal(refused, "input"))?;
    let series = Arc::new(series);
    let taken = stream::iter(texts.into_iter().enumerate())
        .then(|(index, text)| submit(app.clone(), series.clone(), text, index > 0));
    let hidden = taken.map(|taken| hidden(app.clone(), come, taken)).buffered(app.share.at_once());
    let numbers = hidden.map_ok(|hidden| Numbers::of(&hidden, encoding));
    let numbers: Vec<Numbers> = numbers.try_collect().await?;
    drop(series);
    let is_large = numbers.len() * app.limits().hidden >= LARGE;
    let one = |(index, embedding)| Embedding { object: "embedding", index, embedding };
    let data = numbers.into_iter().enumerate().map(one).collect();
    let usage = EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens };
    written(Embeddings { object: "list", data, model: app.name.clone(), usage }, is_large).await
}

fn prepare(
    app: &App,
    tenant: Tenant,
    deadline: Option<Instant>,
    body: &[u8],
) -> Result<(Vec<Text>, Encoding), ApiError> {
    let request: EmbeddingRequest = read(body, |request: &EmbeddingRequest| &request.unknown)?;
    app.check_model(request.model.as_deref())?;
    let limits = app.limits();
    request.check_dimensions(limits.hidden)?;
    let inputs = request.inputs(&app.tokenizer, limits.vocabulary)?;
    for input in &inputs {
        let length = limits.check_length(input.tokens.len(), 0);
        length.map_err(|refused| refusal(refused, "input"))?;
    }
    let salt = tenant.salt(request.cache_salt.as_deref());
    let priority = app.priority(request.priority)?;
    let text = |input: Asked| Text { tokens: input.tokens, salt, priority, deadline };
    Ok((inputs.into_iter().map(text).collect(), request.encoding_format.unwrap_or_default()))
}

/// Times a text. If this is dropped before the text's end, nobody waits for it any more.
struct Timed<'a> {
    clock: Clock<'a>,
    has_ended: bool,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.clock.gone();
        }
    }
}

/// What the engine makes of one text, whose request was here at a moment.
async fn hidden(
    app: Arc<App>,
    come: Instant,
    taken: Result<Taken, ApiError>,
) -> Result<Vec<f32>, ApiError> {
    let Taken { mut ticket, _place } = taken?;
    let mut timed = Timed { clock: app.metrics.clock(come), has_ended: false };
    let mut found = None;
    let result = loop {
        let event = ticket.recv().await;
        if let Some(event) = &event {
            timed.clock.see(event, ticket.sent_at());
        }
        match event {
            Some(Event::Embedding(hidden)) => found = Some(hidden),
            Some(Event::Finished { reason: FinishReason::Deadline, .. }) => {
                break Err(app.not_done());
            }
            Some(Event::Finished { .. }) => {
                break found.ok_or_else(|| ApiError::failed("an input has no embedding"));
            }
            Some(Event::Failed(error)) => break Err(ApiError::failed(error)),
            Some(Event::Started { .. } | Event::Prompt(_) | Event::Token(_)) => {}
            None => break Err(ApiError::failed(Refused::Ended)),
        }
    };
    timed.has_ended = true;
    match &result {
        Ok(_) => timed.clock.embedded(),
        Err(_) => timed.clock.failed(),
    }
    result
}
