//! `POST /v1/completions`

use super::App;
use super::auth::Tenant;
use super::chat::stop_reason;
use super::events::{Format, stream};
use super::pieces::{Pieces, start};
use super::prepare::{Wishes, Work};
use crate::api::answers::{CompletionChoice, Response as Answer, Usage};
use crate::api::completions::{Asked, CompletionRequest};
use crate::api::{ApiError, CompletionLogprobs, fresh_id, now, read};
use crate::engine::TokenEvent;
use crate::text::{Piece, Reason, Style, Told, Writer, Written};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// What the answers are written with.
struct Completions {
    app: Arc<App>,
    id: String,
    created: u64,
    prompts: Vec<Arc<Asked>>,
    /// Answers to each prompt.
    choices: usize,
    usage: Usage,
    tells_usage: bool,
    always_tells_usage: bool,
    tells_logprobs: bool,
    tells_tokens: bool,
    echoes: bool,
}

/// Continues texts.
#[utoipa::path(
    post, path = "/v1/completions", tag = "generation",
    request_body = CompletionRequest,
    responses(
        (status = 200, description = "The answers; with `stream`, events of the same form", body = Answer<CompletionChoice>),
        (status = 400, description = "A parameter is wrong; `param` names it", body = crate::api::Envelope),
        (status = 401, description = "No key, or a wrong one", body = crate::api::Envelope),
        (status = 404, description = "No such model", body = crate::api::Envelope),
        (status = 413, description = "The body is too large", body = crate::api::Envelope),
        (status = 429, description = "Too many requests wait", body = crate::api::Envelope),
        (status = 503, description = "The server is shutting down", body = crate::api::Envelope),
    ),
)]
pub(super) async fn completions(
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let sees = app.clone();
    let prepared = spawn_blocking(move || prepare(&sees, tenant, &body)).await;
    let (completions, work, streams) = prepared.map_err(ApiError::failed)??;
    let pieces = start(&app, work)?;
    match streams {
        true => Ok(stream(pieces, completions)),
        false => Ok(Json(completions.whole(pieces).await?).into_response()),
    }
}

fn prepare(
    app: &Arc<App>,
    tenant: Tenant,
    body: &[u8],
) -> Result<(Completions, Work, bool), ApiError> {
    let request: CompletionRequest = read(body, |request: &CompletionRequest| &request.unknown)?;
    let generation = &request.generation;
    let streams = generation.streaming()?;
    let likeliest = request.likeliest()?;
    let echoes = request.echo.unwrap_or(false);
    let work = app.prepare(Wishes {
        generation,
        tenant,
        param: "prompt",
        prompts: request.prompts(&app.tokenizer, app.limits().vocabulary)?,
        most_tokens: Some(request.most_tokens()),
        likeliest,
        of_prompt: echoes && likeliest.is_some(),
        form: request.form()?,
    })?;
    let options = generation.stream_options.clone().unwrap_or_default();
    let completions = Completions {
        app: app.clone(),
        id: fresh_id("cmpl"),
        created: now(),
        prompts: work.prompts.clone(),
        choices: work.choices,
        usage: Usage::default(),
        tells_usage: options.include_usage.unwrap_or(false),
        always_tells_usage: options.continuous_usage_stats.unwrap_or(false),
        tells_logprobs: likeliest.is_some(),
        tells_tokens: generation.return_token_ids.unwrap_or(false),
        echoes,
    };
    Ok((completions, work, streams))
}

impl Completions {
    fn frame(
        &self,
        choices: Vec<CompletionChoice>,
        usage: Option<Usage>,
    ) -> Answer<CompletionChoice> {
        Answer {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.app.name.clone(),
            choices,
            usage,
            prompt_token_ids: None,
        }
    }

    fn prompt(&self, index: usize) -> &Asked {
        &self.prompts[index / self.choices]
    }

    /// An answer to which nothing has been said yet, but for the prompt if it is echoed.
    fn opening(&self, index: usize) -> CompletionChoice {
        let prompt = self.prompt(index);
        CompletionChoice {
            index,
            text: if self.echoes { prompt.text.clone() } else { String::new() },
            logprobs: self.tells_logprobs.then(CompletionLogprobs::default),
            finish_reason: None,
            stop_reason: None,
            prompt_token_ids: self.tells_tokens.then(|| prompt.tokens.clone()),
            token_ids: self.tells_tokens.then(Vec::new),
        }
    }

    /// What a piece comes to.
    fn take(&mut self, index: usize, piece: Piece) -> Result<CompletionChoice, ApiError> {
        let mut choice =
            CompletionChoice { text: String::new(), prompt_token_ids: None, ..self.opening(index) };
        let written = match piece {
            Piece::Prompt(tokens) => {
                let tokens = self.prompt_told(index, tokens)?;
                choice.logprobs = Some(CompletionLogprobs::of(&self.app.tokenizer, &tokens, 0));
                return Ok(choice);
            }
            Piece::Text(written) => written,
            Piece::End(ending) => {
                self.usage.add(&ending, index.is_multiple_of(self.choices));
                choice.finish_reason = Some(match ending.reason {
                    Reason::Stop => "stop",
                    Reason::Length => "length",
                });
                choice.stop_reason = stop_reason(ending.stopper.as_ref());
                ending.last
            }
        };
        let Written { text, tokens, .. } = written;
        let before = if self.echoes { self.prompt(index).text.chars().count() } else { 0 };
        choice.text = text;
        choice.token_ids =
            self.tells_tokens.then(|| tokens.iter().map(|told| told.token).collect());
        let logprobs = || CompletionLogprobs::of(&self.app.tokenizer, &tokens, before);
        choice.logprobs = self.tells_logprobs.then(logprobs);
        Ok(choice)
    }

    /// The prompt's tokens with what is known of them; of the first, which nothing comes before, nothing.
    fn prompt_told(&self, index: usize, events: Vec<TokenEvent>) -> Result<Vec<Told>, ApiError> {
        let first = self.prompt(index).tokens.first().copied();
        let first = first.map(|token| TokenEvent { token, logprob: None, top: Vec::new() });
        let mut writer = Writer::new(&self.app.tokenizer, &[], &Style::default());
        let mut told = Vec::new();
        for TokenEvent { token, logprob, top } in first.into_iter().chain(events) {
            let written = writer.write(Told { token, logprob, top, offset: 0 });
            told.extend(written.map_err(ApiError::failed)?.tokens);
        }
        told.extend(writer.finish().tokens);
        Ok(told)
    }

    /// All answers, once they are done.
    async fn whole(mut self, mut pieces: Pieces) -> Result<Answer<CompletionChoice>, ApiError> {
        let answers = self.prompts.len() * self.choices;
        let mut whole: Vec<_> = (0..answers).map(|index| self.opening(index)).collect();
        while let Some((index, piece)) = pieces.recv().await {
            let more = self.take(index, piece?)?;
            let choice = &mut whole[index];
            choice.text += &more.text;
            choice.finish_reason = more.finish_reason;
            choice.stop_reason = more.stop_reason;
            if let (Some(all), Some(more)) = (&mut choice.logprobs, more.logprobs) {
                all.extend(more);
            }
            if let (Some(all), Some(more)) = (&mut choice.token_ids, more.token_ids) {
                all.extend(more);
            }
        }
        if whole.iter().any(|choice| choice.finish_reason.is_none()) {
            return Err(ApiError::failed("an answer has no end"));
        }
        Ok(self.frame(whole, Some(self.usage)))
    }
}

impl Format for Completions {
    type Event = Answer<CompletionChoice>;

    fn first(&mut self) -> Vec<Self::Event> {
        if !self.echoes && !self.tells_tokens {
            return Vec::new();
        }
        let answers = self.prompts.len() * self.choices;
        (0..answers).map(|index| self.frame(vec![self.opening(index)], None)).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Result<Vec<Self::Event>, ApiError> {
        let choice = self.take(index, piece)?;
        let tells_tokens = self.tells_logprobs || self.tells_tokens;
        if choice.text.is_empty() && choice.finish_reason.is_none() && !tells_tokens {
            return Ok(Vec::new());
        }
        let usage = self.always_tells_usage.then_some(self.usage);
        Ok(vec![self.frame(vec![choice], usage)])
    }

    fn last(&mut self) -> Vec<Self::Event> {
        let told = self.tells_usage || self.always_tells_usage;
        let usage = self.frame(Vec::new(), Some(self.usage));
        if told { vec![usage] } else { Vec::new() }
    }
}
