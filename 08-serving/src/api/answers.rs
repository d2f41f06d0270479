//! What is answered to chat completions and completions: whole, or in pieces.

use super::tools::{Called, ToolCall};
use super::{ChatLogprobs, CompletionLogprobs, PromptLogprob, PromptLogprobs};
use crate::text::{Found, Spoken};
use serde::Serialize;
use utoipa::ToSchema;

/// What a request came to, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// Of the prompts.
    pub prompt_tokens: usize,
    /// Of the answers.
    pub completion_tokens: usize,
    /// Of both.
    pub total_tokens: usize,
    /// More about those of the prompts.
    pub prompt_tokens_details: PromptDetails,
}

/// More about the tokens of prompts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptDetails {
    /// Those that were known from earlier requests.
    pub cached_tokens: usize,
}

impl Usage {
    /// Of prompts of so many tokens, to which nothing has been answered yet.
    pub fn of_prompts(tokens: usize) -> Self {
        Usage { prompt_tokens: tokens, total_tokens: tokens, ..Usage::default() }
    }

    /// Takes in more tokens of answers.
    pub fn add(&mut self, tokens: usize) {
        self.completion_tokens += tokens;
        self.total_tokens += tokens;
    }
}

/// An answer, whole or a piece of one, with what both have in common.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Response<C> {
    /// Its name, the same in every piece.
    pub id: String,
    /// What it is.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// Which model answers.
    pub model: String,
    /// The answers.
    pub choices: Vec<C>,
    /// What it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The prompt's tokens, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// How likely the prompt's tokens were, if that was asked for in a conversation; null for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<BTreeMap<String, PromptLogprob>>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
}

impl<C> Response<C> {
    /// Tokens that are told in it, at most: a prompt may be told again with each answer.
    pub fn tokens(&self) -> usize {
        let usage = self.usage.unwrap_or_default();
        usage.completion_tokens + self.choices.len() * usage.prompt_tokens
    }
}

/// One answer in a conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatChoice {
    /// Which answer.
    pub index: usize,
    /// The answer.
    pub message: AnswerMessage,
    /// Log-probabilities of its tokens, if they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `"stop"`, `"length"` or `"tool_calls"`.
    pub finish_reason: &'static str,
    /// The string or token that ended it, if the request named it.
    pub stop_reason: Option<StopReason>,
    /// All tokens generated for it, those that ended it included, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What the request named that ended an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// A string.
    Text(String),
    /// A token.
    Token(u32),
}

/// What the assistant says.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerMessage {
    /// `"assistant"`
    pub role: &'static str,
    /// Its text; none if it calls functions, or thinks, and says nothing.
    pub content: Option<String>,
    /// What it thought before it said that, if its model writes thoughts between marks. Those are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// What it declines to say; here it declines nothing.
    pub refusal: Option<String>,
    /// Functions that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A piece of one answer in a conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatDelta {
    /// Which answer.
    pub index: usize,
    /// What is new.
    pub delta: Delta,
    /// Log-probabilities of its tokens, if they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended, in its last piece.
    pub finish_reason: Option<&'static str>,
    /// The string or token that ended it, if the request named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// All tokens generated for it, those that ended it included, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new in a piece.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Delta {
    /// `"assistant"`, in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// More of what it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Functions that it calls: first what is called, then more and more of the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallDelta>,
}

/// A call in a piece, or more of its arguments.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallDelta {
    /// Which call of the answer's.
    pub index: usize,
    /// What the answer to it is to name, where it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `"function"`, where it begins.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// What is called.
    pub function: CalledDelta,
}

/// What is called, and what is new of its arguments.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CalledDelta {
    /// The function, where the call begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of the JSON of its arguments.
    pub arguments: String,
}

impl CallDelta {
    /// Those of a piece of an answer that has had so many calls before.
    pub fn of(said: Found, calls_before: usize) -> Vec<Self> {
        let mut begun = calls_before;
        let one = |spoken: Spoken| match spoken {
            Spoken::Text(_) => None,
            Spoken::Call(ToolCall { id, function: Called { name, arguments }, .. }) => {
                begun += 1;
                let function = CalledDelta { name: Some(name), arguments };
                Some(CallDelta { index: begun - 1, id: Some(id), kind: Some("function"), function })
            }
            Spoken::More(arguments) => {
                let function = CalledDelta { name: None, arguments };
                Some(CallDelta { index: begun.saturating_sub(1), id: None, kind: None, function })
            }
        };
        said.0.into_iter().filter_map(one).collect()
    }
}

/// One completion, or a piece of one.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CompletionChoice {
    /// Which answer.
    pub index: usize,
    /// Its text.
    pub text: String,
    /// Log-probabilities of its tokens, if they were asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// `"stop"` or `"length"`, in its last piece.
    pub finish_reason: Option<&'static str>,
    /// The string or token that ended it, if the request named it.
    pub stop_reason: Option<StopReason>,
    /// How likely the prompt's tokens were, if that was asked for; null for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<BTreeMap<String, PromptLogprob>>>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The prompt's tokens, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// All tokens generated for it, those that ended it included, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}
