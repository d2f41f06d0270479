//! Tokens of a text, text of tokens; models that there are.

use super::messages::ChatMessage;
use super::tools::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of `POST /tokenize`: a text, or a conversation.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct TokenizeRequest {
    /// Which model; there is one.
    pub model: Option<String>,
    /// A text.
    pub prompt: Option<String>,
    /// A conversation, which the chat template writes down.
    pub messages: Option<Vec<ChatMessage>>,
    /// Functions that the model is told of in a conversation.
    pub tools: Option<Vec<Tool>>,
    /// Values that the chat template asks for by name.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Whether the tokenizer's own rules add tokens around a text; they do if not given.
    pub add_special_tokens: Option<bool>,
    /// Whether a conversation goes up to where the assistant is to speak; it does if not given, unless
    /// `continue_final_message` is true.
    pub add_generation_prompt: Option<bool>,
    /// Whether it goes up to the end of what the last message says, which must be the assistant's.
    pub continue_final_message: Option<bool>,
    /// Whether each token's text is told.
    pub return_token_strs: Option<bool>,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

/// Tokens of a text.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Tokenized {
    /// How many there are.
    pub count: usize,
    /// How many the model can take: those of a prompt, and of its answer all but the last.
    pub max_model_len: usize,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Each token's text, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_strs: Option<Vec<String>>,
}

/// The body of `POST /detokenize`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct DetokenizeRequest {
    /// Which model; there is one.
    pub model: Option<String>,
    /// Tokens.
    #[schema(required = true, nullable = false)]
    pub tokens: Option<Vec<u32>>,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

/// Text of tokens, special ones written out.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Detokenized {
    /// The text.
    pub prompt: String,
}

/// The models that there are.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModelList {
    /// `"list"`
    pub object: &'static str,
    /// One.
    pub data: Vec<ModelCard>,
}

/// A model.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModelCard {
    /// What requests call it.
    pub id: String,
    /// `"model"`
    pub object: &'static str,
    /// When the server loaded it, in seconds since 1970.
    pub created: u64,
    /// Who serves it.
    pub owned_by: &'static str,
    /// Most tokens of a text that the model runs: those of a prompt, and of its answer all but the last, which nothing
    /// comes after. So `total_tokens` may be one more.
    pub max_model_len: usize,
}
