//! What a message is, whole and as it comes.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// An answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnthropicAnswer {
    /// Its name.
    pub id: String,
    /// `"message"`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `"assistant"`
    pub role: &'static str,
    /// Which model answers.
    pub model: String,
    /// What it says: thoughts, text and calls, in order.
    pub content: Vec<AnswerBlock>,
    /// How it ended.
    #[serde(flatten)]
    pub end: MessageEnd,
    /// What it came to.
    pub usage: AnthropicUsage,
}

/// A part of what an answer says.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerBlock {
    /// What the model thought.
    Thinking {
        /// The thoughts.
        thinking: String,
        /// What Anthropic would know them again by: empty.
        signature: &'static str,
    },
    /// What it says.
    Text {
        /// The text.
        text: String,
    },
    /// A function that it calls.
    ToolUse {
        /// What the answer to the call is to name.
        id: String,
        /// The function.
        name: String,
        /// Its arguments; none where the answer was cut off before their end.
        #[schema(value_type = Object)]
        input: Map<String, Value>,
    },
}

/// How an answer ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageEnd {
    /// `end_turn`, `max_tokens`, `stop_sequence`, `tool_use`, or `model_context_window_exceeded` where there was no room for as
    /// many tokens as there might have been; none before the end.
    pub stop_reason: Option<&'static str>,
    /// The string that ended it, if one did.
    pub stop_sequence: Option<String>,
}

/// What a message came to, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct AnthropicUsage {
    /// Of the conversation, those that were not known from earlier requests; before the end, all of them.
    pub input_tokens: usize,
    /// Those that Anthropic would bill for having kept; here none.
    pub cache_creation_input_tokens: usize,
    /// Those that were known.
    pub cache_read_input_tokens: usize,
    /// Of the answer.
    pub output_tokens: usize,
    /// More about those.
    pub output_tokens_details: ThinkingTokens,
}

/// More about the tokens of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ThinkingTokens {
    /// Those that it was thought in: all before the first of what is said, if there are thoughts.
    pub thinking_tokens: usize,
}

/// What has happened to an answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnthropicEvent {
    /// It has begun.
    MessageStart {
        /// As it is: empty.
        message: Box<AnthropicAnswer>,
    },
    /// A block has begun.
    ContentBlockStart {
        /// Blocks before it.
        index: usize,
        /// As it is: empty.
        content_block: AnswerBlock,
    },
    /// More of a block.
    ContentBlockDelta {
        /// Blocks before it.
        index: usize,
        /// What.
        delta: BlockDelta,
    },
    /// A block has ended.
    ContentBlockStop {
        /// Blocks before it.
        index: usize,
    },
    /// How it ended, and what it came to.
    MessageDelta {
        /// How.
        delta: MessageEnd,
        /// What.
        usage: AnthropicUsage,
    },
    /// Nothing more comes.
    MessageStop {},
}

impl AnthropicEvent {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            AnthropicEvent::MessageStart { .. } => "message_start",
            AnthropicEvent::ContentBlockStart { .. } => "content_block_start",
            AnthropicEvent::ContentBlockDelta { .. } => "content_block_delta",
            AnthropicEvent::ContentBlockStop { .. } => "content_block_stop",
            AnthropicEvent::MessageDelta { .. } => "message_delta",
            AnthropicEvent::MessageStop {} => "message_stop",
        }
    }
}

/// More of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    /// Of thoughts.
    ThinkingDelta {
        /// The thoughts.
        thinking: String,
    },
    /// Of a text.
    TextDelta {
        /// The text.
        text: String,
    },
    /// Of a call's arguments.
    InputJsonDelta {
        /// Their JSON.
        partial_json: String,
    },
}

/// How many tokens a conversation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct InputTokens {
    /// With all that the template writes around it.
    pub input_tokens: usize,
}
