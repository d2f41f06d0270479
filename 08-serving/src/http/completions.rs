//! `POST /v1/completions`

use super::App;
use super::answer::{Frame, Writes, answer};
use super::auth::Tenant;
use super::events::Format;
use super::pieces::Pieces;
use super::prepare::{Wishes, Work};
use super::talk::stop_reason;
use crate::api::answers::{CompletionChoice, Response as Answer};
use crate::api::completions::{Asked, CompletionRequest};
use crate::api::{ApiError, CompletionLogprobs, PromptLogprobs, read};
use crate::engine::TokenEvent;
use crate::text::{Piece, Reason, Style, Told, Writer, Written};
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use std::sync::Arc;

/// What the answers are written with.
struct Completions {
    frame: Frame,
    prompts: Vec<Arc<Asked>>,
    /// Answers to each prompt.
    choices: usize,
    /// How many likeliest tokens are told, if any log-probabilities.
    likeliest: Option<usize>,
    /// The same of the prompts' tokens (`prompt_logprobs`), and what is told of each prompt once it is known.
    of_prompts: Option<usize>,
    told_of_prompts: Vec<Option<PromptLogprobs>>,
    tells_tokens: bool,
    echoes: bool,
}

/// What answers call themselves, whole and in pieces.
const OBJECT: &str = "text_completion";

/// Continues texts.
#[utoipa::path(
    post, path = "/v1/completions", tag = "generation",
    request_body = CompletionRequest,
    responses(
        (status = 200, description = "The answers; with `stream`, events of the same form", content(
            (Answer<CompletionChoice> = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(super) async fn completions(
    app: State<Arc<App>>,
    tenant: Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer::<Completions>(app, tenant, body).await
}

impl Completions {
    fn prompt(&self, index: usize) -> &Asked {
        &self.prompts[index / self.choices]
    }

    /// An answer to which nothing has been said yet, but for the prompt if it is echoed.
    fn opening(&self, index: usize) -> CompletionChoice {
        let prompt = self.prompt(index);
        CompletionChoice {
            index,
            text: if self.echoes { prompt.text.clone() } else { String::new() },
            logprobs: self.likeliest.map(|_| CompletionLogprobs::default()),
            finish_reason: None,
            stop_reason: None,
            prompt_logprobs: None,
            prompt_token_ids: self.tells_tokens.then(|| prompt.tokens.clone()),
            token_ids: self.tells_tokens.then(Vec::new),
        }
    }

    /// What a piece comes to.
    fn take(&mut self, index: usize, piece: Piece) -> Result<CompletionChoice, ApiError> {
        let mut choice =
            CompletionChoice { text: String::new(), prompt_token_ids: None, ..self.opening(index) };
        self.frame.count(index, &piece);
        let written = match piece {
            Piece::Prompt(tokens) => {
                let tokenizer = &self.frame.app.tokenizer;
                // Of the first answer: where the prompt is echoed, others bring what the echo tells.
                let is_first = index.is_multiple_of(self.choices);
                if let Some(most) = self.of_prompts.filter(|_| is_first) {
                    let told = PromptLogprobs::of(tokenizer, &tokens, most)?;
                    self.told_of_prompts[index / self.choices] = Some(told);
                }
                if let Some(most) = self.likeliest.filter(|_| self.echoes) {
                    let tokens = self.prompt_told(index, tokens, most)?;
                    choice.logprobs = Some(CompletionLogprobs::of(tokenizer, &tokens, 0));
                }
                return Ok(choice);
            }
            Piece::Text(written) => written,
            Piece::End(ending) => {
                choice.finish_reason = Some(match ending.reason {
                    Reason::Stop => "stop",
                    Reason::Length => "length",
                });
                choice.stop_reason = stop_reason(ending.stopper.as_ref());
                ending.last
            }
        };
        let Written { text, tokens, hidden, .. } = written;
        let before = if self.echoes { self.prompt(index).text.chars().count() } else { 0 };
        choice.text = text;
        let token_ids = tokens.iter().map(|told| told.token).chain(hidden);
        choice.token_ids = self.tells_tokens.then(|| token_ids.collect());
        let logprobs = || CompletionLogprobs::of(&self.frame.app.tokenizer, &tokens, before);
        choice.logprobs = self.likeliest.map(|_| logprobs());
        Ok(choice)
    }

    /// The prompt's tokens with what is known of them, and the `most` likeliest in the place of each; of the first, which
    /// nothing comes before, nothing.
    fn prompt_told(
        &self,
        index: usize,
        events: Vec<TokenEvent>,
        most: usize,
    ) -> Result<Vec<Told>, ApiError> {
        let (prompt, tokenizer) = (self.prompt(index), &self.frame.app.tokenizer);
        let first = prompt.tokens.first().copied();
        let first =
            first.map(|token| TokenEvent { token, logprob: None, rank: None, top: Vec::new() });
        // Special tokens that the text has are part of it; one that the tokenizer has set before it is not.
        let is_text = |tokens: &&[u32]| {
            tokenizer.decode_with_special(tokens).is_ok_and(|text| text == prompt.text)
        };
        let whole = [0, 1].into_iter().filter_map(|from| prompt.tokens.get(from..)).find(is_text);
        let marks = whole.unwrap_or_default().iter().copied();
        let marks = marks.filter(|&token| tokenizer.is_silent(token)).collect();
        let style = Style { marks, ..Style::default() };
        let mut writer = Writer::new(tokenizer, &[], &style);
        let mut told = Vec::new();
        for TokenEvent { token, logprob, mut top, .. } in first.into_iter().chain(events) {
            top.truncate(most);
            let written = writer.write(Told { token, logprob, top, offset: 0 });
            told.extend(written.map_err(ApiError::failed)?.tokens);
        }
        told.extend(writer.finish().tokens);
        Ok(told)
    }
}

impl Writes for Completions {
    type Whole = Answer<CompletionChoice>;

    fn prepare(
        app: &Arc<App>,
        tenant: Tenant,
        body: &[u8],
    ) -> Result<(Self, Work, bool), ApiError> {
        let request: CompletionRequest =
            read(body, |request: &CompletionRequest| &request.unknown)?;
        let generation = &request.generation;
        app.check_model(generation.model.as_deref())?;
        let streams = generation.streaming()?;
        let likeliest = request.likeliest()?;
        request.check_best_of()?;
        let echoes = request.echo.unwrap_or(false);
        let prompts = request.prompts(&app.tokenizer, app.limits().vocabulary)?;
        request.check_told(&prompts)?;
        let work = app.prepare(Wishes {
            generation,
            tenant,
            param: "prompt",
            prompts,
            most_tokens: Some(request.most_tokens()),
            most_tokens_param: "max_tokens",
            takes_what_fits: false,
            likeliest,
            echoed: likeliest.filter(|_| echoes),
            form: request.form()?,
            marks: Vec::new(),
        })?;
        let completions = Completions {
            frame: Frame::new(app, "cmpl-", generation, &work),
            prompts: work.prompts.clone(),
            choices: work.choices,
            likeliest,
            of_prompts: generation.prompt_logprobs,
            told_of_prompts: vec![None; work.prompts.len()],
            tells_tokens: generation.return_token_ids.unwrap_or(false),
            echoes,
        };
        Ok((completions, work, streams))
    }

    fn tokens(whole: &Self::Whole) -> usize {
        whole.tokens()
    }

    async fn whole(mut self, mut pieces: Pieces) -> Result<Answer<CompletionChoice>, ApiError> {
        let answers = self.prompts.len() * self.choices;
        let mut whole: Vec<_> = (0..answers).map(|index| self.opening(index)).collect();
        while let Some((index, piece)) = pieces.next().await? {
            let more = self.take(index, piece)?;
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
        for (index, choice) in whole.iter_mut().enumerate() {
            choice.prompt_logprobs = self.told_of_prompts[index / self.choices].clone();
        }
        Ok(self.frame.whole(OBJECT, whole))
    }
}

impl Format for Completions {
    type Event = Answer<CompletionChoice>;

    fn first(&mut self) -> Vec<Self::Event> {
        if !self.echoes && !self.tells_tokens {
            return Vec::new();
        }
        let answers = self.prompts.len() * self.choices;
        (0..answers).map(|index| self.frame.piece(OBJECT, self.opening(index))).collect()
    }

    fn piece(&mut self, index: usize, piece: Piece) -> Result<Vec<Self::Event>, ApiError> {
        let choice = self.take(index, piece)?;
        let tells_tokens = self.likeliest.is_some() || self.tells_tokens;
        if choice.text.is_empty() && choice.finish_reason.is_none() && !tells_tokens {
            return Ok(Vec::new());
        }
        Ok(vec![self.frame.piece(OBJECT, choice)])
    }

    fn last(&mut self) -> Vec<Self::Event> {
        self.frame.last(OBJECT)
    }
}
