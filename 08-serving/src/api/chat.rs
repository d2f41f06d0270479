//! A chat completion, as it is asked for.

use super::calling::Calling;
use super::formats::{Form, ResponseFormat, one_form};
use super::messages::ChatMessage;
use super::messages::ends;
use super::read::{each_without_nulls, without_nulls};
use super::tools::{Tool, ToolChoice};
use super::{ApiError, Generation, MOST_LOGPROBS};
use model_files::Ends;
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of `POST /v1/chat/completions`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct ChatRequest {
    /// The conversation so far. At least one message.
    #[schema(required = true, nullable = false, min_items = 1)]
    pub messages: Option<Vec<ChatMessage>>,
    /// Most tokens to generate: the new name of `max_tokens`. Where both are given, they must be equal.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<usize>,
    /// Whether to tell tokens' log-probabilities.
    pub logprobs: Option<bool>,
    /// How many of the likeliest tokens to tell with each; only with `logprobs`.
    #[schema(maximum = 20)]
    pub top_logprobs: Option<usize>,
    /// Functions that the model may call.
    #[serde(default, deserialize_with = "each_without_nulls")]
    pub tools: Option<Vec<Tool>>,
    /// Whether it may, must, or must not.
    pub tool_choice: Option<ToolChoice>,
    /// Whether it may call several at once. Where a call is demanded, there is one.
    pub parallel_tool_calls: Option<bool>,
    /// A form that the answer is held to. Where the model may call functions, it may do so instead, and where it must, it
    /// does.
    #[serde(default, deserialize_with = "without_nulls")]
    pub response_format: Option<ResponseFormat>,
    /// Whether the conversation goes up to where the assistant is to speak; it does if not given, unless
    /// `continue_final_message` is true.
    pub add_generation_prompt: Option<bool>,
    /// Whether the answer goes on with the last message, which must be the assistant's, and not with
    /// `add_generation_prompt`.
    pub continue_final_message: Option<bool>,
    /// How long a model may think before it answers. Handed to the chat template under this name; whether it asks for it is
    /// the model's matter.
    pub reasoning_effort: Option<String>,
    /// Values that the chat template asks for by name; they go before `reasoning_effort`.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether there may be fewer tokens than are asked for, where there is no room for more. Said by other ways of asking.
    #[serde(skip)]
    #[schema(ignore)]
    pub takes_what_fits: bool,
    /// What chat completions and completions have in common.
    #[serde(flatten)]
    pub generation: Generation,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

impl ChatRequest {
    /// Where the conversation ends that the model goes on with.
    ///
    /// # Errors
    /// 400: see [`ends`].
    pub fn ends(&self) -> Result<Ends, ApiError> {
        let last = self.messages.iter().flatten().last();
        ends(last, self.add_generation_prompt, self.continue_final_message)
    }

    /// Most tokens to generate; none if as many as fit.
    ///
    /// # Errors
    /// 400: none, or two that are not the same.
    pub fn most_tokens(&self) -> Result<Option<usize>, ApiError> {
        let (new, old) = (self.max_completion_tokens, self.generation.max_tokens);
        if let (Some(new), Some(old)) = (new, old)
            && new != old
        {
            let expected = format!("{old}, which max_tokens is");
            return Err(ApiError::value("max_completion_tokens", new, &expected));
        }
        match new.or(old) {
            Some(0) => Err(ApiError::value(self.most_tokens_param(), 0, "at least 1")),
            most => Ok(most),
        }
    }

    /// The parameter that says how many tokens to generate at most: by OpenAI's new name or by the old one.
    pub fn most_tokens_param(&self) -> &'static str {
        match self.max_completion_tokens {
            Some(_) => "max_completion_tokens",
            None => "max_tokens",
        }
    }

    /// How many of the likeliest tokens to tell with each; none if no log-probabilities at all.
    ///
    /// # Errors
    /// 400: more than there may be, or some without `logprobs`.
    pub fn likeliest(&self) -> Result<Option<usize>, ApiError> {
        let told = self.logprobs.unwrap_or(false);
        match self.top_logprobs {
            Some(top) if top > MOST_LOGPROBS => {
                Err(ApiError::value("top_logprobs", top, &format!("at most {MOST_LOGPROBS}")))
            }
            Some(top) if top > 0 && !told => Err(ApiError::parameter(
                "top_logprobs",
                format!("top_logprobs is {top} although logprobs is not true"),
            )),
            top => Ok(told.then(|| top.unwrap_or(0))),
        }
    }

    /// What the answer is held to, and the parameter that says so. Where a call is demanded, `response_format` is for the
    /// messages that come after it.
    ///
    /// # Errors
    /// 400: two forms at once.
    pub fn form(&self, calling: &Calling) -> Result<Option<(&'static str, Form)>, ApiError> {
        let called = calling.form();
        let asked = self.response_format.as_ref().filter(|_| called.is_none());
        let asked = asked.and_then(ResponseFormat::form);
        one_form([
            ("response_format", asked),
            ("structured_outputs", self.generation.structured_form()?),
            ("tools", called),
        ])
    }
}
