//! `POST /v1/messages`, Anthropic's way to hold a conversation, and `POST /v1/messages/count_tokens`

use super::App;
use super::answer::{Frame, Writes, answer};
use super::auth::Tenant;
use super::events::Format;
use super::pieces::Pieces;
use super::prepare::Work;
use super::talk::{Talk, Turn, Turned, prompt_tokens};
use crate::api::answers::StopReason;
use crate::api::anthropic::{
    AnthropicAnswer, AnthropicEvent, AnthropicRequest, AnthropicUsage, InputTokens, MessageEnd,
    ThinkingTokens, like_anthropic,
};
use crate::api::chat::ChatRequest;
use crate::api::{ApiError, read};
use crate::text::Piece;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::Response;
use content::Content;
use std::sync::Arc;

mod content;

/// What its paths begin with.
const PATH: &str = "/v1/messages";

/// What a message is written with.
struct Messages {
    frame: Frame,
    turn: Turn,
    /// Whether there was no room for as many tokens as there might have been.
    is_cramped: bool,
    content: Content,
    end: MessageEnd,
}

/// A conversation goes on, as Anthropic's clients say it. Nothing is kept; the whole conversation is sent.
#[utoipa::path(
    post, path = "/v1/messages", tag = "generation",
    request_body = AnthropicRequest,
    responses(
        (status = 200, description = "The answer; with `stream`, events of `AnthropicEvent`", content(
            (AnthropicAnswer = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(super) async fn messages(
    app: State<Arc<App>>,
    tenant: Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer::<Messages>(app, tenant, body).await
}

/// How many tokens a conversation has, as the model would read it.
#[utoipa::path(
    post, path = "/v1/messages/count_tokens", tag = "tokens", request_body = AnthropicRequest,
    responses((status = 200, body = InputTokens)),
)]
pub(super) async fn count_tokens(
    State(app): State<Arc<App>>,
    body: Bytes,
) -> Result<Json<InputTokens>, ApiError> {
    let work = |app: &Arc<App>, body: &[u8]| {
        let input_tokens = prompt_tokens(app, &read_request(app, body)?);
        let input_tokens = input_tokens.map_err(|refused| refused.by_names(&NAMES))?;
        Ok(Json(InputTokens { input_tokens }))
    };
    app.work(body, work).await
}

/// What chat completions call a parameter, and what it is called here.
const NAMES: [(&str, &str); 3] = [
    ("stop", "stop_sequences"),
    ("response_format", "output_config"),
    ("reasoning_effort", "output_config"),
];

fn read_request(app: &App, body: &[u8]) -> Result<ChatRequest, ApiError> {
    let request: AnthropicRequest = read(body, |request: &AnthropicRequest| &request.unknown)?;
    app.check_model(request.generation.model.as_deref())?;
    request.into_chat()
}

/// Whether a path is one of these.
pub(super) fn is_ours(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What is refused on these paths, wherever that is decided, is told as Anthropic tells it.
pub(super) async fn refuses_in_kind(request: Request, next: Next) -> Response {
    let is_ours = is_ours(request.uri().path());
    let response = next.run(request).await;
    let problem = response.extensions().get::<ApiError>().filter(|_| is_ours);
    let Some(Ok(told)) = problem.map(|problem| serde_json::to_vec(&like_anthropic(problem))) else {
        return response;
    };
    let (mut head, _) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(told))
}

impl Messages {
    /// Takes a piece in; what it comes to.
    fn take(&mut self, piece: Piece) -> Vec<AnthropicEvent> {
        self.frame.count(0, &piece);
        let Turned { thoughts, said, end, .. } = self.turn.take(piece);
        if let Some(end) = &end {
            let stopped = match end.stop_reason() {
                Some(StopReason::Text(text)) => Some(text),
                Some(StopReason::Token(_)) | None => None,
            };
            let stop_reason = match (end.reason, self.is_cramped) {
                ("length", true) => "model_context_window_exceeded",
                ("length", false) => "max_tokens",
                _ if self.turn.calls() > 0 => "tool_use",
                _ if stopped.is_some() => "stop_sequence",
                _ => "end_turn",
            };
            let stop_sequence = stopped.filter(|_| stop_reason == "stop_sequence");
            self.end = MessageEnd { stop_reason: Some(stop_reason), stop_sequence };
        }
        self.content.take(thoughts, said, end.is_some())
    }

    fn usage(&self) -> AnthropicUsage {
        let usage = self.frame.usage;
        let known = usage.prompt_tokens_details.cached_tokens;
        AnthropicUsage {
            input_tokens: usage.prompt_tokens - known,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: known,
            output_tokens: usage.completion_tokens,
            output_tokens_details: ThinkingTokens { thinking_tokens: self.turn.thought() },
        }
    }

    /// As it is now.
    fn now(&self) -> AnthropicAnswer {
        AnthropicAnswer {
            id: self.frame.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.frame.app.name.clone(),
            content: self.content.blocks(),
            end: self.end.clone(),
            usage: self.usage(),
        }
    }
}

impl Writes for Messages {
    type Whole = AnthropicAnswer;

    fn prepare(
        app: &Arc<App>,
        tenant: Tenant,
        body: &[u8],
    ) -> Result<(Self, Work, bool), ApiError> {
        let request = read_request(app, body)?;
        let generation = request.generation.clone();
        let streams = generation.streaming()?;
        let talk = Talk::of(app, tenant, request).map_err(|refused| refused.by_names(&NAMES))?;
        let Talk { mut work, mut turns, .. } = talk;
        let room = work.requests[0].max_tokens;
        let is_cramped = generation.max_tokens.is_none_or(|asked| room < asked);
        work.form = work.form.map(|param| match param {
            "response_format" => "output_config",
            param => param,
        });
        let frame = Frame::new(app, "msg_", &generation, &work);
        let turn = turns.remove(0);
        let (content, end) = (Content::default(), MessageEnd::default());
        Ok((Messages { frame, turn, is_cramped, content, end }, work, streams))
    }

    async fn whole(mut self, mut pieces: Pieces) -> Result<AnthropicAnswer, ApiError> {
        while let Some((_, piece)) = pieces.next().await? {
            self.take(piece);
        }
        Ok(self.now())
    }

    fn tokens(whole: &AnthropicAnswer) -> usize {
        whole.usage.output_tokens
    }
}

impl Format for Messages {
    type Event = AnthropicEvent;

    const END: Option<&'static str> = None;

    fn name(event: &AnthropicEvent) -> Option<&'static str> {
        Some(event.name())
    }

    fn first(&mut self) -> Vec<AnthropicEvent> {
        vec![AnthropicEvent::MessageStart { message: Box::new(self.now()) }]
    }

    fn piece(&mut self, _: usize, piece: Piece) -> Result<Vec<AnthropicEvent>, ApiError> {
        Ok(self.take(piece))
    }

    fn last(&mut self) -> Vec<AnthropicEvent> {
        let (delta, usage) = (self.end.clone(), self.usage());
        vec![AnthropicEvent::MessageDelta { delta, usage }, AnthropicEvent::MessageStop {}]
    }

    fn broken(&mut self, problem: &ApiError) -> (Option<&'static str>, String) {
        (Some("error"), serde_json::to_string(&like_anthropic(problem)).unwrap_or_default())
    }
}
