//! `POST /v1/chat/completions`

use super::App;
use super::auth::Tenant;
use super::events::{Format, stream};
use super::pieces::{Pieces, start};
use super::prepare::{Wishes, Work};
use crate::api::answers::{AnswerMessage, ChatChoice, ChatDelta, Response as Answer, Usage};
use crate::api::chat::ChatRequest;
use crate::api::completions::Asked;
use crate::api::messages::for_template;
use crate::api::tools::Calling;
use crate::api::{ApiError, ChatLogprobs, fresh_id, now, read};
use crate::text::Piece;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use model_files::Extras;
use std::sync::Arc;
use tokio::task::spawn_blocking;

mod turn;

pub(super) use turn::stop_reason;
use turn::{Turn, Turned};

/// What the answers are written with.
struct Chat {
    app: Arc<App>,
    id: String,
    created: u64,
    turns: Vec<Turn>,
    usage: Usage,
    /// Whether a last event tells the usage, and whether every event does.
    tells_usage: bool,
    always_tells_usage: bool,
    tells_logprobs: bool,
    /// The prompt's tokens, if tokens are told.
    prompt: Option<Arc<Asked>>,
}

/// Answers in a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "generation",
    request_body = ChatRequest,
    responses(
        (status = 200, description = "The answers; with `stream`, events of `ChatDelta`", body = Answer<ChatChoice>),
        (status = 400, description = "A parameter is wrong; `param` names it", body = crate::api::Envelope),
        (status = 401, description = "No key, or a wrong one", body = crate::api::Envelope),
        (status = 404, description = "No such model", body = crate::api::Envelope),
        (status = 413, description = "The body is too large", body = crate::api::Envelope),
        (status = 429, description = "Too many requests wait", body = crate::api::Envelope),
        (status = 503, description = "The server is shutting down", body = crate::api::Envelope),
    ),
)]
pub(super) async fn chat_completions(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let sees = app.clone();
    // Texts to tokens and schemas to grammars: work of its own, which may take a while.
    let prepared = spawn_blocking(move || prepare(&sees, tenant, &body)).await;
    let (chat, work, streams) = prepared.map_err(ApiError::failed)??;
    let pieces = start(&app, work)?;
    match streams {
        true => Ok(stream(pieces, chat)),
        false => Ok(Json(chat.whole(pieces).await?).into_response()),
    }
}

fn prepare(app: &Arc<App>, tenant: Tenant, body: &[u8]) -> Result<(Chat, Work, bool), ApiError> {
    let mut request: ChatRequest = read(body, |request: &ChatRequest| &request.unknown)?;
    let generation = request.generation.clone();
    let streams = generation.streaming()?;
    let calling = Calling::new(request.tools.take(), request.tool_choice.take())?;
    let prompt = prompt(app, &request, &calling)?;
    let likeliest = request.likeliest()?;
    let work = app.prepare(Wishes {
        generation: &generation,
        tenant,
        param: "messages",
        prompts: vec![prompt],
        most_tokens: request.most_tokens()?,
        likeliest,
        of_prompt: false,
        form: request.form(&calling)?,
    })?;
    let one_call = request.parallel_tool_calls == Some(false);
    let options = generation.stream_options.clone().unwrap_or_default();
    let tells_tokens = generation.return_token_ids.unwrap_or(false);
    let chat = Chat {
        app: app.clone(),
        id: fresh_id("chatcmpl"),
        created: now(),
        turns: (0..work.choices).map(|_| Turn::new(&calling, one_call)).collect(),
        usage: Usage::default(),
        tells_usage: options.include_usage.unwrap_or(false),
        always_tells_usage: options.continuous_usage_stats.unwrap_or(false),
        tells_logprobs: likeliest.is_some(),
        prompt: tells_tokens.then(|| work.prompts[0].clone()),
    };
    Ok((chat, work, streams))
}

/// The conversation as the model is to see it.
fn prompt(app: &App, request: &ChatRequest, calling: &Calling) -> Result<Asked, ApiError> {
    let Some(template) = &app.template else {
        let message = "this model has no chat template; /v1/completions continues texts";
        return Err(ApiError::parameter("messages", message));
    };
    let Some(messages) = &request.messages else {
        return Err(ApiError::parameter("messages", "messages are missing"));
    };
    let messages = for_template(messages)?;
    let tools: Vec<_> = calling
        .tools
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()
        .map_err(ApiError::failed)?;
    let extras = Extras {
        tools: (!tools.is_empty()).then_some(tools),
        values: request.chat_template_kwargs.clone().unwrap_or_default(),
    };
    let tokens = template.encode_with(&app.tokenizer, &messages, &extras, true);
    let param = match &tokens {
        Err(naive_decode::Error::Invalid { what, .. }) if what.contains("value") => {
            "chat_template_kwargs"
        }
        _ => "messages",
    };
    let tokens = tokens.map_err(|problem| ApiError::caused_by(param, &problem))?;
    Ok(Asked { text: String::new(), tokens })
}

impl Chat {
    fn frame<C>(&self, object: &'static str, choices: Vec<C>, usage: Option<Usage>) -> Answer<C> {
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

    fn take(&mut self, index: usize, piece: Piece) -> Turned {
        let turned = self.turns[index].take(piece);
        if let Some(end) = &turned.end {
            self.usage.add(&end.ending, index == 0);
        }
        turned
    }

    fn logprobs(&self, turned: &Turned) -> Option<ChatLogprobs> {
        self.tells_logprobs.then(|| ChatLogprobs::of(&self.app.tokenizer, &turned.tokens))
    }

    fn token_ids(&self, turned: &Turned) -> Option<Vec<u32>> {
        self.prompt.as_ref().map(|_| turned.tokens.iter().map(|told| told.token).collect())
    }

    /// All answers, once they are done.
    async fn whole(mut self, mut pieces: Pieces) -> Result<Answer<ChatChoice>, ApiError> {
        let mut whole: Vec<Turned> = self.turns.iter().map(|_| Turned::default()).collect();
        while let Some((index, piece)) = pieces.recv().await {
            let turned = self.take(index, piece?);
            whole[index].extend(turned);
        }
        let mut choices = Vec::new();
        for (index, turned) in whole.into_iter().enumerate() {
            let (logprobs, token_ids) = (self.logprobs(&turned), self.token_ids(&turned));
            let end = turned.end.ok_or_else(|| ApiError::failed("the answer has no end"))?;
            // Whoever calls functions may say nothing besides.
            let is_silent = turned.content.is_empty() && !turned.calls.is_empty();
            let message = AnswerMessage {
                role: "assistant",
                content: (!is_silent).then_some(turned.content),
                refusal: None,
                tool_calls: turned.calls,
            };
            let (finish_reason, stop_reason) = (end.reason, end.stop_reason());
            choices.push(ChatChoice {
                index,
                message,
                logprobs,
                finish_reason,
                stop_reason,
                token_ids,
            });
        }
        let mut answer = self.frame("chat.completion", choices, Some(self.usage));
        answer.prompt_token_ids = self.prompt.map(|asked| asked.tokens.clone());
        Ok(answer)
    }

    fn event(&self, choice: ChatDelta) -> Answer<ChatDelta> {
        let usage = self.always_tells_usage.then_some(self.usage);
        self.frame("chat.completion.chunk", vec![choice], usage)
    }
}

impl Format for Chat {
    type Event = Answer<ChatDelta>;

    fn first(&mut self) -> Vec<Self::Event> {
        let one = |index| {
            let mut event = self.event(Turned::opening(index));
            event.prompt_token_ids = self.prompt.as_ref().map(|asked| asked.tokens.clone());
            event
        };
        (0..self.turns.len()).map(one).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Result<Vec<Self::Event>, ApiError> {
        let turned = self.take(index, piece);
        let (logprobs, token_ids) = (self.logprobs(&turned), self.token_ids(&turned));
        let calls_before = self.turns[index].calls() - turned.calls.len();
        let deltas = turned.deltas(index, calls_before, logprobs, token_ids);
        Ok(deltas.into_iter().map(|delta| self.event(delta)).collect())
    }

    fn last(&mut self) -> Vec<Self::Event> {
        let told = self.tells_usage || self.always_tells_usage;
        let usage = self.frame("chat.completion.chunk", Vec::new(), Some(self.usage));
        if told { vec![usage] } else { Vec::new() }
    }
}
