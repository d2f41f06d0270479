//! What all ways of asking for text have in common: how a request is answered, and what stands around the answers.

use super::App;
use super::auth::Tenant;
use super::events::{Format, stream};
use super::pieces::{Pieces, start};
use super::prepare::Work;
use crate::api::answers::{Response as Answer, Usage};
use crate::api::{ApiError, Generation, fresh_id, now};
use crate::text::Piece;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::spawn_blocking;

/// Tokens from which on an answer is a large one: with the twenty likeliest of each it has several megabytes.
const LARGE: usize = 4096;

/// Bytes of a request from which on it is a large one.
const LARGE_BODY: usize = 256 << 10;

/// A way to ask for text, and what its answers are written with.
pub(super) trait Writes: Format + Sized {
    /// All answers, whole.
    type Whole: Serialize + Send + 'static;

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
    fn whole(self, pieces: Pieces) -> impl Future<Output = Result<Self::Whole, ApiError>> + Send;

    /// Tokens that are told in them, at most.
    fn tokens(whole: &Self::Whole) -> usize;
}

/// Answers a request.
pub(super) async fn answer<W: Writes>(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    // Before anything is waited for.
    let (come, asked) = (Instant::now(), body.len());
    let deadline = app.deadline(come);
    let prepare = move |app: &Arc<App>, body: &[u8]| W::prepare(app, tenant, body);
    let (writes, mut work, streams) = app.work(body, prepare).await?;
    work.requests.iter_mut().for_each(|request| request.deadline = deadline);
    let pieces = start(&app, work, come)?;
    match streams {
        true => stream(pieces, writes).await,
        false => {
            let whole = writes.whole(pieces).await?;
            // What was asked may be told again.
            let is_large = W::tokens(&whole) >= LARGE || asked >= LARGE_BODY;
            written(whole, is_large).await
        }
    }
}

/// Writes an answer down: aside, if that takes long enough for streams on the threads of the connections to halt.
///
/// # Errors
/// 500 if writing it panics.
pub(super) async fn written<T: Serialize + Send + 'static>(
    answer: T,
    is_large: bool,
) -> Result<Response, ApiError> {
    let write = || Json(answer).into_response();
    match is_large {
        true => spawn_blocking(write).await.map_err(ApiError::failed),
        false => Ok(write()),
    }
}

/// What stands around a request's answers, the same in every piece.
pub(super) struct Frame {
    pub(super) app: Arc<App>,
    pub(super) id: String,
    pub(super) created: u64,
    /// What the answers have come to so far.
    pub(super) usage: Usage,
    /// Tokens of each answer that are in it.
    counted: Vec<usize>,
    /// Answers to each prompt.
    choices: usize,
    /// Whether a last event tells the usage, and whether every event does besides.
    tells_usage: bool,
    always_tells_usage: bool,
}

impl Frame {
    /// A frame of its own for each request; `kind` begins its name.
    pub(super) fn new(app: &Arc<App>, kind: &str, generation: &Generation, work: &Work) -> Self {
        let options = generation.stream_options.clone().unwrap_or_default();
        let prompts = work.prompts.iter().map(|asked| asked.tokens.len());
        let wants_all = options.continuous_usage_stats.unwrap_or(false);
        let tells_usage = options.include_usage.unwrap_or(wants_all);
        Frame {
            app: app.clone(),
            id: fresh_id(kind),
            created: now(),
            usage: Usage::of_prompts(prompts.sum()),
            counted: vec![0; work.requests.len()],
            choices: work.choices,
            tells_usage,
            always_tells_usage: tells_usage && wants_all,
        }
    }

    /// Counts the tokens of a piece of an answer.
    pub(super) fn count(&mut self, index: usize, piece: &Piece) {
        let before = self.counted[index];
        let now = match piece {
            Piece::Prompt(_) => before,
            Piece::Text(written) => before + written.tokens.len(),
            // With those that are no part of the text, such as an end token.
            Piece::End(ending) => {
                // Several answers have one prompt.
                if index.is_multiple_of(self.choices) {
                    self.usage.prompt_tokens_details.cached_tokens += ending.cached_tokens;
                }
                ending.tokens
            }
        };
        self.usage.add(now - before);
        self.counted[index] = now;
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
            prompt_logprobs: None,
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
        self.tells_usage.then(|| self.whole(object, Vec::new())).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::completions::completions;
    use super::*;
    use crate::engine::{Engine, EngineHandle, EngineOptions};
    use axum::body::to_bytes;
    use axum::http::{HeaderMap, StatusCode};
    use embedded_models::TARGET;
    use futures_util::poll;
    use model_files::ModelFiles;
    use naive_decode::LoadOptions;
    use serde_json::json;
    use std::sync::mpsc;
    use std::time::Duration;

    fn app(answer_in: Option<Duration>) -> Arc<App> {
        let files = ModelFiles::embedded(&TARGET).unwrap();
        let model = Arc::new(files.load(LoadOptions::default()).unwrap());
        let options = EngineOptions::for_model(&model).unwrap();
        let engine = EngineHandle::start(Engine::new(model, options).unwrap()).unwrap();
        let app = App::new("target", files.tokenizer, None, vec![], engine).unwrap();
        Arc::new(app.with_answers_in(answer_in))
    }

    /// A body that has its turn for as long as it is not told to go on.
    fn busy(app: &Arc<App>) -> (mpsc::Sender<()>, impl Future<Output = ()> + use<>) {
        let (app, (go, wait)) = (app.clone(), mpsc::channel::<()>());
        let large = Bytes::from(vec![b' '; 1 << 20]);
        let work = async move { app.work(large, move |_, _| Ok(wait.recv())).await };
        (go, async move { work.await.unwrap().unwrap() })
    }

    /// A request that waits behind it.
    async fn ask(app: &Arc<App>) -> Result<Response, ApiError> {
        let tenant = app.keys.tenant(&HeaderMap::new()).unwrap();
        let body = json!({"prompt": "Once", "max_tokens": 8, "user": "x".repeat(1 << 20)});
        let body = Bytes::from(body.to_string());
        completions(State(app.clone()), Extension(tenant), body).await
    }

    #[tokio::test]
    async fn a_large_answer_is_what_a_small_one_is() {
        let answer: Vec<f32> = (0..1000).map(|i| i as f32 / 7.0).collect();
        let mut bodies = Vec::new();
        for is_large in [false, true] {
            let response = written(answer.clone(), is_large).await.unwrap();
            assert_eq!(response.headers()["content-type"], "application/json");
            bodies.push(to_bytes(response.into_body(), usize::MAX).await.unwrap());
        }
        assert_eq!(bodies[0], bodies[1]);
        assert_eq!(serde_json::from_slice::<Vec<f32>>(&bodies[1]).unwrap(), answer);
    }

    #[tokio::test]
    async fn an_answer_s_time_runs_while_its_request_waits_for_its_turn() {
        let answer_in = Duration::from_millis(300);
        let app = app(Some(answer_in));
        let (go, first) = busy(&app);
        let mut first = Box::pin(first);
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(ask(&app));
        assert!(poll!(&mut second).is_pending());
        tokio::time::sleep(answer_in + Duration::from_millis(20)).await;
        go.send(()).unwrap();
        first.await;
        let refused = second.await.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{refused:?}");
    }

    #[tokio::test]
    async fn the_time_to_the_first_token_begins_when_the_request_is_here() {
        let app = app(None);
        let (go, first) = busy(&app);
        let mut first = Box::pin(first);
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(ask(&app));
        assert!(poll!(&mut second).is_pending());
        // Longer than a first token takes here by far.
        let waits = Duration::from_secs(2);
        tokio::time::sleep(waits).await;
        go.send(()).unwrap();
        first.await;
        second.await.unwrap();
        let took = app.metrics.recent().ttft_ms;
        assert!(took.iter().all(|&ms| ms >= waits.as_secs_f64() * 1e3), "{took:?}");
        assert_eq!(took.len(), 1);
    }
}
