//! Paths and what answers them.

use super::{
    App, auth, chat, completions, embeddings, hosts, kv_events, metrics, openapi, origins, page,
    prefill, small, watch,
};
use crate::api::{ApiError, MOST_BODY_BYTES};
use axum::body::HttpBody;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter, get};
use axum::{Router, body};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

/// Every path there is. All but `/health` want a key, if there are keys; what is answered to a path that is
/// not there does as well.
pub fn router(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/models", get(small::models))
        .route("/v1/models/{*model}", get(small::model))
        .route("/tokenize", post(small::tokenize))
        .route("/detokenize", post(small::detokenize))
        .route("/health", get(small::health))
        .route("/version", get(small::version))
        .route("/metrics", get(metrics::metrics))
        .route("/state", get(watch::state))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::index))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script));
    let router = match app.reads_for_others {
        true => router.route(prefill::PATH, post(prefill::prefill)),
        false => router,
    };
    let router = match app.tells_kv_events {
        true => router.route(kv_events::PATH, get(kv_events::kv_events)),
        false => router,
    };
    let router = router
        .fallback(nothing_there)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), auth::check))
        .layer(from_fn_with_state(app.clone(), hosts::check))
        .layer(from_fn(close_after_unread));
    // Outside the check for keys: a browser sends none when it asks what a page may ask.
    pages_and_log(router, app)
}

/// What is answered on a connection for which there is no place: whether the server is alive, and nothing else.
pub(super) fn crowded(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/health", get(small::health))
        .fallback(async || ApiError::crowded())
        .layer(from_fn(close));
    pages_and_log(router, app)
}

/// What is outside of all else: who may ask from a page, and what is noted of requests.
fn pages_and_log(router: Router<Arc<App>>, app: Arc<App>) -> Router {
    let router = match origins::layer(&app.origins) {
        Some(layer) => router.layer(layer),
        None => router,
    };
    router.layer(from_fn_with_state(app.clone(), log)).with_state(app)
}

async fn close(request: Request, next: Next) -> Response {
    ended_by(next.run(request).await)
}

/// Says that the connection ends with this answer.
fn ended_by(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Answers `POST`, once the whole body is there.
fn post<H: Handler<T, Arc<App>>, T: 'static>(handler: H) -> MethodRouter<Arc<App>> {
    routing::post(handler).route_layer(from_fn(whole_body))
}

async fn nothing_there(request: Request) -> ApiError {
    let message =
        format!("there is nothing at {}; /openapi.json lists what is", request.uri().path());
    ApiError::refused(StatusCode::NOT_FOUND, message)
}

async fn wrong_method(request: Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    let message = format!("{path} does not answer {method}");
    ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// Reads a request's body, as much as may come, and no longer than it may take.
async fn whole_body(request: Request, next: Next) -> Result<Response, ApiError> {
    if !is_json(request.headers()) {
        let found = kind(request.headers()).unwrap_or("missing");
        let message = format!("content-type is {found}, expected application/json");
        return Err(ApiError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let (parts, sent) = request.into_parts();
    let whole = tokio::time::timeout(BODY_IN, read(sent)).await.map_err(|_| {
        let message = format!("the body did not come within {} seconds", BODY_IN.as_secs());
        ApiError::refused(StatusCode::REQUEST_TIMEOUT, message)
    })??;
    let mut response = next.run(Request::from_parts(parts, whole.into())).await;
    response.extensions_mut().insert(BodyRead);
    Ok(response)
}

/// The request's body was read to its end.
#[derive(Clone, Copy)]
struct BodyRead;

/// Ends the connection where a request was refused before its body was read, and says so: otherwise the client sends
/// its next request on a connection that is being closed, and has no answer.
async fn close_after_unread(request: Request, next: Next) -> Response {
    let has_body = !request.body().is_end_stream();
    let response = next.run(request).await;
    match has_body && response.extensions().get::<BodyRead>().is_none() {
        true => ended_by(response),
        false => response,
    }
}

/// All of a body.
///
/// # Errors
/// 413 if it is too large, 400 if it breaks off or is none that HTTP knows.
async fn read(sent: body::Body) -> Result<Vec<u8>, ApiError> {
    let mut chunks = sent.into_data_stream();
    let (mut whole, mut bytes) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|problem| {
            let message = format!("the body could not be read to its end: {problem}");
            ApiError::refused(StatusCode::BAD_REQUEST, message)
        })?;
        bytes += chunk.len();
        if bytes <= MOST_BODY_BYTES {
            whole.extend_from_slice(&chunk);
        } else {
            // Many clients read no answer before they have sent everything.
            whole = Vec::new();
        }
        if bytes > MOST_BYTES_PASSED_OVER {
            break;
        }
    }
    match bytes <= MOST_BODY_BYTES {
        true => Ok(whole),
        false => {
            let message = format!("the body is larger than {MOST_BODY_BYTES} bytes");
            Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
    }
}

/// Bytes of a body that is too large that are read all the same, and forgotten.
const MOST_BYTES_PASSED_OVER: usize = 4 * MOST_BODY_BYTES;

/// How long a client may take to send a body.
const BODY_IN: Duration = Duration::from_secs(30);

/// Other kinds a page of somebody else's may send without asking (CSRF).
fn is_json(headers: &HeaderMap) -> bool {
    kind(headers).is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// What a body says that it is.
fn kind(headers: &HeaderMap) -> Option<&str> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(kind.split(';').next().unwrap_or_default().trim())
}

/// Writes a line for each answer, and counts it.
async fn log(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let begun = Instant::now();
    let response = next.run(request).await.into_response();
    app.metrics.answered(route.as_ref().map(MatchedPath::as_str), response.status());
    let (status, ms) = (response.status().as_u16(), begun.elapsed().as_millis() as u64);
    info!(%method, path, status, ms, "answered");
    response
}
