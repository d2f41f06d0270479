//! Paths and what answers them.

use super::request_id::REQUEST_ID;
use super::{
    App, anthropic, auth, bodies, chat, completions, embeddings, hosts, kv_events, metrics,
    openapi, origins, page, prefill, request_id, responses, small, watch,
};
use crate::api::ApiError;
use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Instrument, debug_span, info};

/// Every path there is. All but `/health` and `/ping` want a key, if there are keys; what is answered to a path that is
/// not there does as well.
pub fn router(app: Arc<App>) -> Router {
    let whole_body = |handler: MethodRouter<_>| {
        handler.route_layer(from_fn_with_state(app.clone(), bodies::whole))
    };
    let router = Router::new()
        .route("/v1/chat/completions", whole_body(post(chat::chat_completions)))
        .route("/v1/completions", whole_body(post(completions::completions)))
        .route("/v1/responses", whole_body(post(responses::responses)))
        .route("/v1/messages", whole_body(post(anthropic::messages)))
        .route("/v1/messages/count_tokens", whole_body(post(anthropic::count_tokens)))
        .route("/v1/embeddings", whole_body(post(embeddings::embeddings)))
        .route("/v1/models", get(small::models))
        .route("/v1/models/{*model}", get(small::model))
        .route("/tokenize", whole_body(post(small::tokenize)))
        .route("/detokenize", whole_body(post(small::detokenize)))
        .merge(alive())
        .route("/version", get(small::version))
        .route("/metrics", get(metrics::metrics))
        .route("/state", get(watch::state))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::index))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script));
    let router = match app.reads_for_others {
        true => router.route(prefill::PATH, whole_body(post(prefill::prefill))),
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
        .layer(from_fn(anthropic::refuses_in_kind))
        .layer(from_fn(close_after_unread));
    // Outside the check for keys: a browser sends none when it asks what a page may ask.
    pages_and_log(router, app)
}

/// What is answered on a connection for which there is no place: whether the server is alive, and nothing else.
pub(super) fn crowded(app: Arc<App>) -> Router {
    let router = alive().fallback(async || ApiError::crowded()).layer(from_fn(close));
    pages_and_log(router, app)
}

/// Whether the server is alive.
fn alive() -> Router<Arc<App>> {
    Router::new()
        .route("/health", get(small::health))
        .route("/ping", get(small::ping).post(small::posted_ping))
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

/// Ends the connection where a request was refused before its body was read, and says so: otherwise the client sends
/// its next request on a connection that is being closed, and has no answer.
async fn close_after_unread(request: Request, next: Next) -> Response {
    let has_body = bodies::is_there(&request);
    let response = next.run(request).await;
    match has_body && !bodies::was_read(&response) {
        true => ended_by(response),
        false => response,
    }
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

/// Writes a line for each answer, and counts it. Line and answer have the request's name, and so has whatever is noted on the
/// way.
async fn log(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = request_id::of_request(request.headers());
    let begun = Instant::now();
    let way = debug_span!("request", id);
    let mut response = next.run(request).instrument(way).await.into_response();
    response.headers_mut().insert(REQUEST_ID, request_id::value(&id));
    app.metrics.answered(route.as_ref().map(MatchedPath::as_str), response.status());
    let (status, ms) = (response.status().as_u16(), begun.elapsed().as_millis() as u64);
    info!(%method, path, status, ms, id, "answered");
    response
}
