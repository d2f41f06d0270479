//! The OpenAPI document, drawn from the types that requests are read into.

use super::{anthropic, chat, completions, embeddings, metrics, responses, small, watch};
use crate::api::Envelope;
use crate::api::answers::{ChatDelta, Response};
use crate::api::anthropic::{AnthropicEvent, AnthropicRefusal};
use crate::api::responses::ResponseEvent;
use axum::Json;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "ladder", description = "OpenAI's API, with vLLM's extensions, and Anthropic's messages"),
    paths(
        chat::chat_completions,
        completions::completions,
        responses::responses,
        anthropic::messages,
        anthropic::count_tokens,
        embeddings::embeddings,
        small::models,
        small::model,
        small::tokenize,
        small::detokenize,
        small::health,
        small::ping,
        small::posted_ping,
        small::version,
        metrics::metrics,
        watch::state,
    ),
    components(schemas(
        Envelope,
        Response<ChatDelta>,
        ResponseEvent,
        AnthropicRefusal,
        AnthropicEvent
    )),
    security(("key" = [])),
    modifiers(&Keys, &Refusals),
)]
struct Api;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

/// What any operation of its kind may be refused with: it is decided before, or below, what answers it.
struct Refusals;

/// By the check for keys.
const OF_KEYS: &[(&str, &str)] = &[("401", "No key, or a wrong one")];

/// By the check for names.
const OF_NAMES: &[(&str, &str)] =
    &[("403", "The server is called by a name that it does not have")];

/// Where a body is read.
const OF_BODIES: &[(&str, &str)] = &[
    ("400", "The body is not JSON, or a parameter is wrong; `param` names it"),
    ("404", "No such model"),
    ("408", "The body did not come in time"),
    ("413", "The body is too large"),
    ("415", "The body does not say that it is JSON"),
    ("429", "Too many requests wait, or too many large bodies are here"),
];

/// By the engine.
const OF_THE_ENGINE: &[(&str, &str)] =
    &[("503", "The server is shutting down, or it took too long")];

impl Modify for Refusals {
    fn modify(&self, document: &mut Document) {
        for (path, item) in &mut document.paths.paths {
            let envelope = match anthropic::is_ours(path) {
                true => "AnthropicRefusal",
                false => "Envelope",
            };
            for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
                refuses(operation, envelope);
            }
        }
    }
}

fn refuses(operation: &mut Operation, envelope: &str) {
    let is_open = operation.security.as_deref() == Some(&[SecurityRequirement::default()]);
    let is_of_the_engine =
        operation.tags.iter().flatten().any(|tag| tag == "generation" || tag == "embeddings");
    let lists = [
        (!is_open, OF_KEYS),
        (true, OF_NAMES),
        (operation.request_body.is_some(), OF_BODIES),
        (is_of_the_engine, OF_THE_ENGINE),
    ];
    for (_, list) in lists.into_iter().filter(|(applies, _)| *applies) {
        for (status, description) in list {
            let envelope = ContentBuilder::new().schema(Some(Ref::from_schema_name(envelope)));
            let response = ResponseBuilder::new()
                .description(*description)
                .content("application/json", envelope.build());
            let responses = &mut operation.responses.responses;
            responses.entry((*status).to_owned()).or_insert_with(|| response.build().into());
        }
    }
}

pub(super) async fn document() -> Json<Document> {
    Json(Api::openapi())
}
