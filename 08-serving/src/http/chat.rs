//! `POST /v1/chat/completions`

use super::App;
use super::answer::{Frame, Writes, answer};
use super::auth::Tenant;
use super::conversation::Conversation;
use super::events::Format;
use super::pieces::Pieces;
use super::prepare::{Wishes, Work};
use crate::api::answers::{AnswerMessage, ChatChoice, ChatDelta, Response as Answer};
use crate::api::calling::Calling;
use crate::api::chat::ChatRequest;
use crate::api::completions::Asked;
use crate::api::{ApiError, ChatLogprobs, read};
use crate::text::{Piece, THOUGHTS, Thinking};
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use model_files::Ends;
use serde_json::Map;
use std::sync::Arc;

mod turn;

pub(super) use turn::stop_reason;
use turn::{Turn, Turned};

/// What the answers are written with.
struct Chat {
    frame: Frame,
    turns: Vec<Turn>,
    tells_logprobs: bool,
    /// The prompt's tokens, if tokens are told.
    prompt: Option<Arc<Asked>>,
}

/// What answers call themselves, whole and in pieces.
const WHOLE: &str = "chat.completion";
const PIECE: &str = "chat.completion.chunk";

/// Answers in a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "generation",
    request_body = ChatRequest,
    responses(
        (status = 200, description = "The answers; with `stream`, events of `ChatDelta`", content(
            (Answer<ChatChoice> = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(super) async fn chat_completions(
    app: State<Arc<App>>,
    tenant: Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer::<Chat>(app, tenant, body).await
}

/// The conversation as the model is to see it.
fn prompt(app: &App, request: &ChatRequest, calling: &Calling) -> Result<Asked, ApiError> {
    let effort = request.reasoning_effort.iter();
    let mut values: Map<_, _> =
        effort.map(|effort| ("reasoning_effort".to_owned(), effort.as_str().into())).collect();
    values.extend(request.chat_template_kwargs.clone().unwrap_or_default());
    let conversation = Conversation {
        messages: request.messages.as_deref(),
        tools: &calling.tools,
        values,
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: request.continue_final_message,
    };
    Ok(Asked { text: String::new(), tokens: conversation.tokens(app)? })
}

/// Tokens that a mark of thoughts and the white space after it take, at most.
const MARK_TOKENS: usize = 32;

/// What the prompt leaves open of the model's thinking.
fn thinking(app: &App, request: &ChatRequest, prompt: &Asked) -> Result<Thinking, ApiError> {
    if !app.dialect.thinks {
        return Ok(Thinking::Over);
    }
    if let (Ends::InLastMessage, Some(last)) =
        (request.ends()?, request.messages.iter().flatten().last())
    {
        // What the assistant has begun goes on as what it is.
        let said = last.text()?;
        let (open, close) = THOUGHTS;
        let is_open = said.trim_start().starts_with(open) && !said.contains(close);
        return Ok(if is_open { Thinking::UnderWay } else { Thinking::Over });
    }
    let end = &prompt.tokens[prompt.tokens.len().saturating_sub(MARK_TOKENS)..];
    let end = app.tokenizer.decode_with_special(end).map_err(ApiError::failed)?;
    Ok(app.dialect.thinking(&end))
}

impl Chat {
    fn take(&mut self, index: usize, piece: Piece) -> Turned {
        self.frame.count(index, &piece);
        self.turns[index].take(piece)
    }

    fn logprobs(&self, turned: &Turned) -> Option<ChatLogprobs> {
        self.tells_logprobs.then(|| ChatLogprobs::of(&self.frame.app.tokenizer, &turned.tokens))
    }

    fn token_ids(&self, turned: &Turned) -> Option<Vec<u32>> {
        self.prompt.as_ref().map(|_| turned.tokens.iter().map(|told| told.token).collect())
    }
}

impl Writes for Chat {
    type Choice = ChatChoice;

    fn prepare(
        app: &Arc<App>,
        tenant: Tenant,
        body: &[u8],
    ) -> Result<(Self, Work, bool), ApiError> {
        let mut request: ChatRequest = read(body, |request: &ChatRequest| &request.unknown)?;
        let mut generation = request.generation.clone();
        app.check_model(generation.model.as_deref())?;
        let streams = generation.streaming()?;
        let calling = Calling::new(request.tools.take(), request.tool_choice.take())?;
        if !calling.demanded.is_empty() {
            // They are for text. Half a call is none, and would look like an answer that is done.
            generation.stop = None;
            generation.stop_token_ids = None;
        }
        let prompt = prompt(app, &request, &calling)?;
        let likeliest = request.likeliest()?;
        let thinking = thinking(app, &request, &prompt)?;
        let one_call = request.parallel_tool_calls == Some(false);
        let around = |(param, form)| {
            let form = app.dialect.around(form, thinking, &calling, one_call);
            Ok::<_, ApiError>((param, form.checked(param)?))
        };
        let form = request.form(&calling)?.map(around).transpose()?;
        let marks = app.dialect.marks(&calling);
        let work = app.prepare(Wishes {
            generation: &generation,
            tenant,
            param: "messages",
            prompts: vec![prompt],
            most_tokens: request.most_tokens()?,
            most_tokens_param: request.most_tokens_param(),
            likeliest,
            of_prompt: false,
            form,
            marks: marks.iter().map(|mark| mark.token).collect(),
        })?;
        let hidden = if work.style.special_written { Vec::new() } else { marks };
        let hidden: Vec<_> = hidden.iter().map(|mark| mark.text).collect();
        let turn = |_| Turn::new(&calling, one_call, thinking, hidden.clone());
        let tells_tokens = generation.return_token_ids.unwrap_or(false);
        let chat = Chat {
            frame: Frame::new(app, "chatcmpl", &generation, &work),
            turns: (0..work.choices).map(turn).collect(),
            tells_logprobs: likeliest.is_some(),
            prompt: tells_tokens.then(|| work.prompts[0].clone()),
        };
        Ok((chat, work, streams))
    }

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
            // Whoever calls functions may say nothing besides, and whoever thinks may not have come to it.
            let says_else = !turned.calls.is_empty() || !turned.thoughts.is_empty();
            let is_silent = turned.content.is_empty() && says_else;
            let message = AnswerMessage {
                role: "assistant",
                content: (!is_silent).then_some(turned.content),
                reasoning_content: (!turned.thoughts.is_empty()).then_some(turned.thoughts),
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
        let mut answer = self.frame.whole(WHOLE, choices);
        answer.prompt_token_ids = self.prompt.map(|asked| asked.tokens.clone());
        Ok(answer)
    }
}

impl Format for Chat {
    type Event = Answer<ChatDelta>;

    fn first(&mut self) -> Vec<Self::Event> {
        let one = |index| {
            let mut event = self.frame.piece(PIECE, Turned::opening(index));
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
        Ok(deltas.into_iter().map(|delta| self.frame.piece(PIECE, delta)).collect())
    }

    fn last(&mut self) -> Vec<Self::Event> {
        self.frame.last(PIECE)
    }
}
