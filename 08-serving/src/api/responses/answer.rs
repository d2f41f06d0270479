//! What a response is.

use super::{Choice, Echo, FunctionTool, Reasoning, TextConfig, Truncation};
use crate::api::TokenLogprob;
use serde::Serialize;
use utoipa::ToSchema;

/// An answer, whole or as far as it has come, and what was asked for.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResponseAnswer {
    /// Its name.
    pub id: String,
    /// `"response"`
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created_at: u64,
    /// When it was complete.
    pub completed_at: Option<u64>,
    /// How far it is.
    pub status: Status,
    /// Why it failed, if it did.
    pub error: Option<Failure>,
    /// Why it is not whole, if it is not.
    pub incomplete_details: Option<Incomplete>,
    /// Which model answers.
    pub model: String,
    /// What it says: thoughts, text and calls, in order.
    pub output: Vec<OutputItem>,
    /// What it came to, once it is done.
    pub usage: Option<ResponseUsage>,
    /// As asked for, or as it is without being asked for; so are all that follow.
    #[schema(value_type = Option<String>)]
    pub instructions: Echo,
    /// Most tokens.
    pub max_output_tokens: Option<usize>,
    /// Whether several functions may be called at once.
    pub parallel_tool_calls: bool,
    /// The functions.
    #[schema(value_type = Vec<FunctionTool>)]
    pub tools: Echo,
    /// Whether they may be called.
    #[schema(value_type = Choice)]
    pub tool_choice: Echo,
    /// What the text is like.
    #[schema(value_type = TextConfig)]
    pub text: Echo,
    /// How the model thinks.
    #[schema(value_type = Reasoning)]
    pub reasoning: Echo,
    /// What scores are divided by.
    pub temperature: f32,
    /// The probability that the likeliest tokens reach together.
    pub top_p: f32,
    /// How many of the likeliest tokens are told.
    pub top_logprobs: usize,
    /// What becomes of a conversation that is too long.
    pub truncation: Truncation,
    /// Whether it is made while nobody waits: it is not.
    pub background: bool,
    /// Whether it is kept: it is not.
    pub store: bool,
    /// The answer before, which nobody has kept.
    pub previous_response_id: Option<String>,
    /// The client's own notes.
    #[schema(value_type = Object)]
    pub metadata: Echo,
}

/// How far an answer is, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// More is to come.
    InProgress,
    /// It is whole.
    Completed,
    /// It ends before its end.
    Incomplete,
    /// It broke off.
    Failed,
}

/// Why an answer failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Failure {
    /// `"server_error"`, or `"invalid_prompt"` where the request is to blame.
    pub code: &'static str,
    /// What happened.
    pub message: String,
}

/// Why an answer is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Incomplete {
    /// `"max_output_tokens"`
    pub reason: &'static str,
}

/// A part of what an answer says.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// What the model thought.
    Reasoning {
        /// Its name.
        id: String,
        /// A summary of it; there is none.
        #[schema(value_type = Vec<Object>)]
        summary: [(); 0],
        /// Its text.
        content: Vec<Part>,
        /// How far it is.
        status: Status,
    },
    /// What it says.
    Message {
        /// Its name.
        id: String,
        /// `"assistant"`
        role: &'static str,
        /// Its text.
        content: Vec<Part>,
        /// How far it is.
        status: Status,
    },
    /// A function that it calls.
    FunctionCall {
        /// Its name.
        id: String,
        /// What the answer to the call is to name.
        call_id: String,
        /// The function.
        name: String,
        /// Its arguments as JSON.
        arguments: String,
        /// How far it is.
        status: Status,
    },
}

/// A text in an item.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = OutputPart)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// What is said.
    OutputText {
        /// The text.
        text: String,
        /// What it quotes: nothing.
        #[schema(value_type = Vec<Object>)]
        annotations: [(); 0],
        /// Log-probabilities of its tokens, if they were asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// What is thought.
    ReasoningText {
        /// The text.
        text: String,
    },
}

/// What a response came to, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResponseUsage {
    /// Of the conversation.
    pub input_tokens: usize,
    /// More about those.
    pub input_tokens_details: InputDetails,
    /// Of the answer.
    pub output_tokens: usize,
    /// More about those.
    pub output_tokens_details: OutputDetails,
    /// Of both.
    pub total_tokens: usize,
}

/// More about the tokens of the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct InputDetails {
    /// Those that were known from earlier requests.
    pub cached_tokens: usize,
    /// Those that OpenAI would bill for having kept; here none.
    pub cache_write_tokens: usize,
}

/// More about the tokens of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputDetails {
    /// Those that it was thought in: all before the first of what is said, if there are thoughts.
    pub reasoning_tokens: usize,
}

impl OutputItem {
    /// Its name.
    pub fn id(&self) -> &str {
        match self {
            OutputItem::Reasoning { id, .. }
            | OutputItem::Message { id, .. }
            | OutputItem::FunctionCall { id, .. } => id,
        }
    }

    /// How far it is.
    pub fn status_mut(&mut self) -> &mut Status {
        match self {
            OutputItem::Reasoning { status, .. }
            | OutputItem::Message { status, .. }
            | OutputItem::FunctionCall { status, .. } => status,
        }
    }
}
