//! Messages of a conversation, as they come and as chat templates read them.

use super::tools::PastCall;
use super::{ApiError, OneOrMany};
use model_files::Ends;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// Who speaks. Nobody else may: templates write roles as special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Who sets the rules.
    System,
    /// The same under a newer name.
    Developer,
    /// Who asks.
    User,
    /// Who answers.
    Assistant,
    /// What a function gave back.
    Tool,
}

/// One message.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said; may be missing from an assistant that called functions.
    #[serde(default)]
    pub content: Option<Content>,
    /// The name of whoever speaks.
    #[serde(default)]
    pub name: Option<String>,
    /// What the assistant thought before it said that; templates write it down where their model wants it.
    #[serde(default)]
    pub reasoning_content: Option<String>,
    /// Functions that the assistant called.
    #[serde(default)]
    pub tool_calls: Option<Vec<PastCall>>,
    /// The call that this is the answer to.
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

/// What is said: a text, or parts of one.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "content is no string and no list of parts with a type")]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<Part>),
}

/// A part of what is said.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct Part {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    /// What the assistant declined to say, in a part of this type.
    #[serde(default)]
    refusal: Option<String>,
}

/// The messages as templates read them: contents are texts, calls' arguments are values.
///
/// # Errors
/// 400: no messages, or a part that is no text.
pub fn for_template(messages: &[ChatMessage]) -> Result<Vec<Map<String, Value>>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::value("messages", "empty", "at least one message"));
    }
    messages.iter().map(ChatMessage::for_template).collect()
}

/// Where a conversation ends that is to be written down, and whose last message is `last`.
///
/// # Errors
/// 400: both at once, or a message to go on with that is not the assistant's or says nothing.
pub fn ends(
    last: Option<&ChatMessage>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
) -> Result<Ends, ApiError> {
    if !continue_final_message.unwrap_or(false) {
        return Ok(match add_generation_prompt.unwrap_or(true) {
            true => Ends::BeforeAnswer,
            false => Ends::AfterMessages,
        });
    }
    let refused = |problem: &str| Err(ApiError::parameter("continue_final_message", problem));
    if add_generation_prompt == Some(true) {
        return refused(
            "continue_final_message and add_generation_prompt are both true, expected one of them: the answer goes \
             on with the last message, or is one of its own",
        );
    }
    match last {
        Some(message) if message.role == Role::Assistant && !message.text()?.is_empty() => {
            Ok(Ends::InLastMessage)
        }
        _ => refused(
            "continue_final_message is true, expected the last message to be the assistant's and to say something",
        ),
    }
}

impl ChatMessage {
    /// One that says this, and nothing else.
    pub fn new(role: Role, content: Option<Content>) -> Self {
        ChatMessage {
            role,
            content,
            name: None,
            reasoning_content: None,
            tool_calls: None,
            tool_call_id: None,
        }
    }

    fn for_template(&self) -> Result<Map<String, Value>, ApiError> {
        let role = match self.role {
            Role::Developer => Role::System,
            role => role,
        };
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("role", serde_json::to_value(role).map_err(ApiError::failed)?);
        set("content", Value::String(self.text()?));
        if let Some(name) = &self.name {
            set("name", name.as_str().into());
        }
        if let Some(thoughts) = &self.reasoning_content {
            set("reasoning_content", thoughts.as_str().into());
        }
        // Templates ask whether there are any by asking whether there is a list.
        if let Some(calls) = self.tool_calls.as_ref().filter(|calls| !calls.is_empty()) {
            set("tool_calls", calls.iter().map(PastCall::for_template).collect());
        }
        if let Some(id) = &self.tool_call_id {
            set("tool_call_id", id.as_str().into());
        }
        Ok(fields)
    }

    /// What it says.
    ///
    /// # Errors
    /// 400: nothing, where something must be said, or a part that is no text.
    pub fn text(&self) -> Result<String, ApiError> {
        let parts = match &self.content {
            // An assistant that called functions need not say anything.
            None if self.role == Role::Assistant => return Ok(String::new()),
            None => {
                let role = serde_json::to_value(self.role).map_err(ApiError::failed)?;
                let problem = format!(
                    "messages have one of role {role} without content, expected a text, which may be empty"
                );
                return Err(ApiError::parameter("messages", problem));
            }
            Some(Content::Text(text)) => return Ok(text.clone()),
            Some(Content::Parts(parts)) => parts,
        };
        let text = |part: &Part| match (&*part.kind, &part.text, &part.refusal) {
            ("text", Some(text), _) => Ok(text.clone()),
            ("refusal", _, Some(text)) if self.role == Role::Assistant => Ok(text.clone()),
            (kind, ..) => {
                let problem = format!(
                    "messages have a part of type {kind:?}, expected \"text\" with a text: this model reads \
                     nothing else"
                );
                Err(ApiError::parameter("messages", problem))
            }
        };
        let texts: Vec<String> = parts.iter().map(text).collect::<Result<_, _>>()?;
        // As vLLM and llama.cpp have it: what came apart is not run together.
        Ok(texts.join("\n"))
    }
}

/// A prompt of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string, tokens, or a list of either")]
pub enum Prompt {
    /// One text, or several.
    Texts(OneOrMany),
    /// Tokens.
    Tokens(Vec<u32>),
    /// Several prompts of tokens.
    ManyTokens(Vec<Vec<u32>>),
}
