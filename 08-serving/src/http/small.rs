//! Small answers: models, tokens of a text, health, version.

use super::App;
use super::conversation::Conversation;
use crate::api::calling::Calling;
use crate::api::tokens::*;
use crate::api::{ApiError, Envelope, read};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

impl App {
    fn card(&self) -> ModelCard {
        ModelCard {
            id: self.name.clone(),
            object: "model",
            created: self.started,
            owned_by: "ladder",
            max_model_len: self.limits().context,
        }
    }
}

/// The models that there are.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, body = ModelList)))]
pub(super) async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![app.card()] })
}

/// One model. Its name may have slashes in it.
#[utoipa::path(
    get, path = "/v1/models/{model}", tag = "models",
    params(("model" = String, Path, description = "Its name")),
    responses((status = 200, body = ModelCard), (status = 404, body = Envelope)),
)]
pub(super) async fn model(
    name: Result<Path<String>, PathRejection>,
    State(app): State<Arc<App>>,
) -> Result<Json<ModelCard>, ApiError> {
    let Ok(Path(name)) = name else {
        return Err(ApiError::no_model("not UTF-8", &format!("\"{}\"", app.name)));
    };
    app.check_model(Some(&name))?;
    Ok(Json(app.card()))
}

/// Tokens of a text, or of a conversation.
#[utoipa::path(
    post, path = "/tokenize", tag = "tokens", request_body = TokenizeRequest,
    responses((status = 200, body = Tokenized), (status = 400, body = Envelope)),
)]
pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<Json<Tokenized>, ApiError> {
    let work = |app: &Arc<App>, body: &[u8]| {
        let request: TokenizeRequest = read(body, |request: &TokenizeRequest| &request.unknown)?;
        app.check_model(request.model.as_deref())?;
        let tokens = tokens(app, &request)?;
        let strings = || tokens.iter().map(|&token| app.tokenizer.decode_with_special(&[token]));
        let told = request.return_token_strs.unwrap_or(false);
        let token_strs = told.then(|| strings().collect()).transpose().map_err(ApiError::failed)?;
        let max_model_len = app.limits().context;
        Ok(Json(Tokenized { count: tokens.len(), max_model_len, tokens, token_strs }))
    };
    app.work(body, work).await
}

fn tokens(app: &App, request: &TokenizeRequest) -> Result<Vec<u32>, ApiError> {
    match (&request.prompt, &request.messages) {
        (Some(text), None) => {
            let tokens = match request.add_special_tokens.unwrap_or(true) {
                true => app.tokenizer.encode_with_special(text),
                false => app.tokenizer.encode(text),
            };
            tokens.map_err(|problem| ApiError::caused_by("prompt", &problem))
        }
        (None, Some(messages)) => {
            let calling = Calling::new(request.tools.clone(), None)?;
            let conversation = Conversation {
                messages: Some(messages),
                tools: &calling.tools,
                values: request.chat_template_kwargs.clone().unwrap_or_default(),
                add_generation_prompt: request.add_generation_prompt,
                continue_final_message: request.continue_final_message,
            };
            conversation.tokens(app)
        }
        _ => Err(ApiError::parameter("prompt", "expected either prompt or messages")),
    }
}

/// Text of tokens, special ones written out.
#[utoipa::path(
    post, path = "/detokenize", tag = "tokens", request_body = DetokenizeRequest,
    responses((status = 200, body = Detokenized), (status = 400, body = Envelope)),
)]
pub(super) async fn detokenize(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<Json<Detokenized>, ApiError> {
    let work = |app: &Arc<App>, body: &[u8]| {
        let request: DetokenizeRequest =
            read(body, |request: &DetokenizeRequest| &request.unknown)?;
        app.check_model(request.model.as_deref())?;
        let Some(tokens) = request.tokens else {
            return Err(ApiError::parameter("tokens", "tokens are missing"));
        };
        crate::api::known("tokens", &tokens, app.limits().vocabulary)?;
        let prompt = app.tokenizer.decode_with_special(&tokens).map_err(ApiError::failed)?;
        Ok(Json(Detokenized { prompt }))
    };
    app.work(body, work).await
}

/// Whether the server takes requests. Needs no key.
#[utoipa::path(
    get, path = "/health", tag = "server", security(()),
    responses((status = 200, description = "It does"), (status = 503, description = "Its engine has ended, or it is shutting down and this came before its last answers were sent; whoever connects later is refused by the system")),
)]
pub(super) async fn health(State(app): State<Arc<App>>) -> StatusCode {
    // An engine whose device has failed ends by itself; whoever watches the server is to start it again.
    match app.is_draining() || app.engine.is_drained() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    }
}

/// The same by the name that SageMaker and load balancers like it ask for, as in vLLM.
#[utoipa::path(
    get, path = "/ping", tag = "server", security(()),
    responses((status = 200, description = "As of `/health`"), (status = 503, description = "As of `/health`")),
)]
pub(super) async fn ping(app: State<Arc<App>>) -> StatusCode {
    health(app).await
}

/// The same for whoever asks with POST. What is sent is not looked at.
#[utoipa::path(
    post, path = "/ping", tag = "server", security(()),
    responses((status = 200, description = "As of `/health`"), (status = 503, description = "As of `/health`")),
)]
pub(super) async fn posted_ping(app: State<Arc<App>>) -> StatusCode {
    health(app).await
}

/// The server's version.
#[utoipa::path(get, path = "/version", tag = "server", responses((status = 200, body = Object)))]
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}
