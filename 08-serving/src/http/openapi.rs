//! The OpenAPI document, drawn from the types that requests are read into.

use super::{chat, completions, embeddings, metrics, small, watch};
use crate::api::answers::{ChatDelta, Response};
use axum::Json;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(title = "ladder", description = "OpenAI's API, with vLLM's extensions"),
    paths(
        chat::chat_completions,
        completions::completions,
        embeddings::embeddings,
        small::models,
        small::model,
        small::tokenize,
        small::detokenize,
        small::health,
        small::version,
        metrics::metrics,
        watch::state,
    ),
    components(schemas(Response<ChatDelta>)),
    security(("key" = [])),
    modifiers(&Keys),
)]
struct Api;

struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut Document) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

pub(super) async fn document() -> Json<Document> {
    Json(Api::openapi())
}
