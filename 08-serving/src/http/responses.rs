//! `POST /v1/responses`

use super::App;
use super::answer::{Frame, Writes, answer};
use super::auth::Tenant;
use super::events::Format;
use super::pieces::Pieces;
use super::prepare::Work;
use super::talk::{Talk, Turn};
use crate::api::responses::{
    Choice, Echo, Failure, Incomplete, InputDetails, OutputDetails, Reasoning, ResponseAnswer,
    ResponseEvent, ResponseRequest, ResponseUsage, Status, TextConfig, TextFormat, Truncation,
    What,
};
use crate::api::tools::ToolWord;
use crate::api::{ApiError, ChatLogprobs, TOO_LONG, now, read};
use crate::text::Piece;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use output::Output;
use serde_json::json;
use shortened::shortened;
use std::sync::Arc;

mod output;
mod shortened;

/// What a response is written with.
struct Responses {
    frame: Frame,
    turn: Turn,
    tells_logprobs: bool,
    /// As it is now, but for what it says.
    answer: ResponseAnswer,
    output: Output,
    /// Events so far.
    events: usize,
}

/// A conversation goes on: the newer way to say what chat completions say. Nothing is kept; the whole conversation is sent.
#[utoipa::path(
    post, path = "/v1/responses", tag = "generation",
    request_body = ResponseRequest,
    responses(
        (status = 200, description = "The answer; with `stream`, events of `ResponseEvent`", content(
            (ResponseAnswer = "application/json"),
            (String = "text/event-stream"),
        )),
    ),
)]
pub(super) async fn responses(
    app: State<Arc<App>>,
    tenant: Extension<Tenant>,
    body: Bytes,
) -> Result<Response, ApiError> {
    answer::<Responses>(app, tenant, body).await
}

/// What chat completions call a parameter, and what it is called here.
const NAMES: [(&str, &str); 6] = [
    ("messages", "input"),
    ("max_completion_tokens", "max_output_tokens"),
    ("max_tokens", "max_output_tokens"),
    ("response_format", "text"),
    ("reasoning_effort", "reasoning"),
    ("logprobs", "include"),
];

/// What the answer says of the request, before anything has come of it.
///
/// # Errors
/// 500 if it cannot be written.
fn asked(request: &ResponseRequest) -> Result<ResponseAnswer, ApiError> {
    let text = match &request.text {
        Some(text) if text.format.is_some() => Echo::of(text)?,
        text => {
            let verbosity = text.as_ref().and_then(|text| text.verbosity.clone());
            Echo::of(&TextConfig { format: Some(TextFormat::Text {}), verbosity })?
        }
    };
    Ok(ResponseAnswer {
        id: String::new(),
        object: "response",
        created_at: 0,
        completed_at: None,
        status: Status::InProgress,
        error: None,
        incomplete_details: None,
        model: String::new(),
        output: Vec::new(),
        usage: None,
        instructions: Echo::of(&request.instructions)?,
        max_output_tokens: request.max_output_tokens,
        parallel_tool_calls: request.parallel_tool_calls.unwrap_or(true),
        tools: Echo::of(request.tools.as_deref().unwrap_or_default())?,
        tool_choice: Echo::of(
            request.tool_choice.as_ref().unwrap_or(&Choice::Word(ToolWord::Auto)),
        )?,
        text,
        reasoning: Echo::of(request.reasoning.as_ref().unwrap_or(&Reasoning::default()))?,
        temperature: 1.0,
        top_p: 1.0,
        top_logprobs: request.top_logprobs.unwrap_or(0),
        truncation: request.truncation.unwrap_or_default(),
        background: false,
        store: false,
        previous_response_id: None,
        metadata: Echo::of(request.generation.metadata.as_ref().unwrap_or(&json!({})))?,
    })
}

impl Responses {
    /// Takes a piece in; what it comes to.
    fn take(&mut self, piece: Piece) -> Vec<(&'static str, What)> {
        self.frame.count(0, &piece);
        let turned = self.turn.take(piece);
        let of = |tokens| ChatLogprobs::of(&self.frame.app.tokenizer, tokens).content;
        let logprobs = self.tells_logprobs.then(|| of(&turned.tokens));
        let is_whole = turned.end.as_ref().map(|end| end.reason != "length");
        let events = self.output.take(turned, logprobs);
        match is_whole {
            None => {}
            Some(true) => {
                self.answer.status = Status::Completed;
                self.answer.completed_at = Some(now());
            }
            Some(false) => {
                self.answer.status = Status::Incomplete;
                self.answer.incomplete_details = Some(Incomplete { reason: "max_output_tokens" });
            }
        }
        events
    }

    /// As it is now.
    fn now(&self) -> ResponseAnswer {
        let usage = self.frame.usage;
        let is_done = self.answer.status != Status::InProgress;
        let usage = is_done.then(|| ResponseUsage {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: self.turn.thought() },
            total_tokens: usage.total_tokens,
        });
        ResponseAnswer { output: self.output.items().to_vec(), usage, ..self.answer.clone() }
    }

    fn event(&mut self, (kind, what): (&'static str, What)) -> ResponseEvent {
        self.events += 1;
        ResponseEvent { kind, sequence_number: self.events - 1, what }
    }

    /// That it has come so far.
    fn says(&mut self, kind: &'static str) -> ResponseEvent {
        let response = Box::new(self.now());
        self.event((kind, What::Response { response }))
    }
}

impl Writes for Responses {
    type Whole = ResponseAnswer;

    fn prepare(
        app: &Arc<App>,
        tenant: Tenant,
        body: &[u8],
    ) -> Result<(Self, Work, bool), ApiError> {
        let request: ResponseRequest = read(body, |request: &ResponseRequest| &request.unknown)?;
        let generation = request.generation.clone();
        app.check_model(generation.model.as_deref())?;
        let streams = generation.streaming()?;
        let mut answer = asked(&request)?;
        let truncated = request.truncation == Some(Truncation::Auto);
        let whole = truncated.then(|| request.clone());
        let mut talk = Talk::of(app, tenant, request.into_chat()?);
        if let Err(refused) = &talk
            && refused.error.code == Some(TOO_LONG)
            && let Some(shorter) = whole.and_then(|whole| shortened(app, whole))
        {
            talk = Talk::of(app, tenant, shorter);
        }
        let Talk { mut work, mut turns, tells_logprobs } =
            talk.map_err(|refused| refused.by_names(&NAMES))?;
        work.param = "input";
        work.form = work.form.map(|param| if param == "response_format" { "text" } else { param });
        let frame = Frame::new(app, "resp_", &generation, &work);
        let sampling = &work.requests[0].sampling;
        (answer.temperature, answer.top_p) = (sampling.temperature, sampling.top_p);
        (answer.id, answer.created_at) = (frame.id.clone(), frame.created);
        answer.model = app.name.clone();
        let turn = turns.remove(0);
        let output = Output::default();
        let responses = Responses { frame, turn, tells_logprobs, answer, output, events: 0 };
        Ok((responses, work, streams))
    }

    async fn whole(mut self, mut pieces: Pieces) -> Result<ResponseAnswer, ApiError> {
        while let Some((_, piece)) = pieces.next().await? {
            self.take(piece);
        }
        Ok(self.now())
    }

    fn tokens(whole: &ResponseAnswer) -> usize {
        whole.usage.unwrap_or_default().output_tokens
    }
}

impl Format for Responses {
    type Event = ResponseEvent;

    const END: Option<&'static str> = None;

    fn name(event: &ResponseEvent) -> Option<&'static str> {
        Some(event.kind)
    }

    fn first(&mut self) -> Vec<ResponseEvent> {
        vec![self.says("response.created"), self.says("response.in_progress")]
    }

    fn piece(&mut self, _: usize, piece: Piece) -> Result<Vec<ResponseEvent>, ApiError> {
        let events = self.take(piece);
        Ok(events.into_iter().map(|event| self.event(event)).collect())
    }

    fn last(&mut self) -> Vec<ResponseEvent> {
        let kind = match self.answer.status {
            Status::Incomplete => "response.incomplete",
            _ => "response.completed",
        };
        vec![self.says(kind)]
    }

    fn broken(&mut self, problem: &ApiError) -> (Option<&'static str>, String) {
        let code = match problem.status {
            StatusCode::BAD_REQUEST => "invalid_prompt",
            _ => "server_error",
        };
        self.output.break_off();
        self.answer.status = Status::Failed;
        self.answer.error = Some(Failure { code, message: problem.error.message.clone() });
        let event = self.says("response.failed");
        (Some(event.kind), serde_json::to_string(&event).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_kept_once_and_as_text() {
        let empty = vec![json!([]); 10_000];
        let schema = json!({"type": "object", "enum": empty});
        let body = json!({
            "input": "a", "instructions": "Be brief.", "metadata": {"a": "b"}, "reasoning": {"effort": "low"},
            "tools": [{"type": "function", "name": "now", "description": null, "parameters": schema, "strict": null}],
            "tool_choice": {"type": "function", "name": "now"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}},
        });
        let request = serde_json::from_value(body.clone()).unwrap();
        let answer = asked(&request).unwrap();
        let again = answer.clone();
        let echoes = |answer: ResponseAnswer| {
            let ResponseAnswer {
                instructions, metadata, reasoning, tools, tool_choice, text, ..
            } = answer;
            [instructions, metadata, reasoning, tools, tool_choice, text]
        };
        let (kept, same) = (echoes(answer), echoes(again));
        assert!(kept.iter().zip(&same).all(|(one, other)| Arc::ptr_eq(&one.0, &other.0)));
        let bytes: usize = kept.iter().map(|echo| echo.0.get().len()).sum();
        assert!(bytes < body.to_string().len(), "{bytes} bytes");
        let said: serde_json::Value = serde_json::from_str(kept[3].0.get()).unwrap();
        assert_eq!(said, body["tools"]);
    }
}
