//! `POST /v1/chat/completions`

use super::App;
use super::answer::{Frame, Writes, answer};
use super::auth::Tenant;
use super::events::Format;
use super::pieces::Pieces;
use super::prepare::Work;
use super::talk::{Talk, Turn, Turned};
use crate::api::answers::{AnswerMessage, ChatChoice, ChatDelta, Response as Answer};
use crate::api::chat::ChatRequest;
use crate::api::completions::Asked;
use crate::api::{ApiError, ChatLogprobs, PromptLogprobs, read};
use crate::text::Piece;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use std::sync::Arc;

/// What the answers are written with.
struct Chat {
    frame: Frame,
    turns: Vec<Turn>,
    tells_logprobs: bool,
    /// How many likeliest tokens are told in the place of each of the prompt's, if anything of those.
    of_prompt: Option<usize>,
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

impl Chat {
    fn take(&mut self, index: usize, piece: Piece) -> Turned {
        self.frame.count(index, &piece);
        self.turns[index].take(piece)
    }

    fn logprobs(&self, turned: &Turned) -> Option<ChatLogprobs> {
        self.tells_logprobs.then(|| ChatLogprobs::of(&self.frame.app.tokenizer, &turned.tokens))
    }

    fn token_ids(&self, turned: &Turned) -> Option<Vec<u32>> {
        let all = turned.tokens.iter().map(|told| told.token).chain(turned.hidden.iter().copied());
        self.prompt.as_ref().map(|_| all.collect())
    }
}

impl Writes for Chat {
    type Whole = Answer<ChatChoice>;

    fn prepare(
        app: &Arc<App>,
        tenant: Tenant,
        body: &[u8],
    ) -> Result<(Self, Work, bool), ApiError> {
        let request: ChatRequest = read(body, |request: &ChatRequest| &request.unknown)?;
        let generation = request.generation.clone();
        app.check_model(generation.model.as_deref())?;
        let streams = generation.streaming()?;
        let Talk { work, turns, tells_logprobs } = Talk::of(app, tenant, request)?;
        let tells_tokens = generation.return_token_ids.unwrap_or(false);
        let chat = Chat {
            frame: Frame::new(app, "chatcmpl-", &generation, &work),
            turns,
            tells_logprobs,
            of_prompt: generation.prompt_logprobs,
            prompt: tells_tokens.then(|| work.prompts[0].clone()),
        };
        Ok((chat, work, streams))
    }

    fn tokens(whole: &Self::Whole) -> usize {
        whole.tokens()
    }

    async fn whole(mut self, mut pieces: Pieces) -> Result<Answer<ChatChoice>, ApiError> {
        let mut whole: Vec<Turned> = self.turns.iter().map(|_| Turned::default()).collect();
        let mut prompt_logprobs = None;
        while let Some((index, piece)) = pieces.next().await? {
            if let (Piece::Prompt(tokens), Some(most)) = (&piece, self.of_prompt) {
                let tokenizer = &self.frame.app.tokenizer;
                prompt_logprobs = Some(PromptLogprobs::of(tokenizer, tokens, most)?);
            }
            let turned = self.take(index, piece);
            whole[index].extend(turned);
        }
        let mut choices = Vec::new();
        for (index, turned) in whole.into_iter().enumerate() {
            let (logprobs, token_ids) = (self.logprobs(&turned), self.token_ids(&turned));
            let end = turned.end.ok_or_else(|| ApiError::failed("the answer has no end"))?;
            // Whoever calls functions may say nothing besides, and whoever thinks may not have come to it.
            let (content, calls) = (turned.said.text(), turned.said.calls());
            let says_else = !calls.is_empty() || !turned.thoughts.is_empty();
            let is_silent = content.is_empty() && says_else;
            let message = AnswerMessage {
                role: "assistant",
                content: (!is_silent).then_some(content),
                reasoning_content: (!turned.thoughts.is_empty()).then_some(turned.thoughts),
                refusal: None,
                tool_calls: calls,
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
        answer.prompt_logprobs = prompt_logprobs;
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
        let calls_before = self.turns[index].calls() - turned.said.calls().len();
        let deltas = turned.deltas(index, calls_before, logprobs, token_ids);
        Ok(deltas.into_iter().map(|delta| self.frame.piece(PIECE, delta)).collect())
    }

    fn last(&mut self) -> Vec<Self::Event> {
        self.frame.last(PIECE)
    }
}
