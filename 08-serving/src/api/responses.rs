//! A response, as it is asked for: OpenAI's newer way to hold a conversation. It says what a chat completion says in other
//! words, and is made one.

mod answer;
mod beginnings;
mod echo;
mod events;
mod items;

pub use answer::{
    Failure, Incomplete, InputDetails, OutputDetails, OutputItem, Part, ResponseAnswer,
    ResponseUsage, Status,
};
pub use beginnings::beginnings;
pub use echo::Echo;
pub use events::{ResponseEvent, What};
pub use items::{Input, Item, ItemContent, ItemPart};

use super::chat::ChatRequest;
use super::formats::{NamedSchema, ResponseFormat};
use super::read::each_without_nulls;
use super::tools::{
    Allowed, AllowedKind, AllowedMode, Function, FunctionName, NamedTool, Tool, ToolChoice,
    ToolKind, ToolWord,
};
use super::{ApiError, Generation, MOST_NOTE, MOST_NOTE_NAME, MOST_NOTES};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of `POST /v1/responses`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct ResponseRequest {
    /// What the model is to answer: a text, or the conversation so far, item by item.
    #[schema(required = true, nullable = false)]
    pub input: Option<Input>,
    /// What a system message before all of it would say.
    pub instructions: Option<String>,
    /// Most tokens to generate, thoughts included; as many as fit if not given.
    #[schema(minimum = 1)]
    pub max_output_tokens: Option<usize>,
    /// Functions that the model may call.
    #[serde(default, deserialize_with = "each_without_nulls")]
    pub tools: Option<Vec<FunctionTool>>,
    /// Whether it may, must, or must not.
    pub tool_choice: Option<Choice>,
    /// Whether it may call several at once. Where a call is demanded, there is one.
    pub parallel_tool_calls: Option<bool>,
    /// How long OpenAI's list of calls of its own tools may be; there are no such tools here.
    pub max_tool_calls: Option<usize>,
    /// What the text of an answer is to be like.
    pub text: Option<TextConfig>,
    /// How the model is to think.
    pub reasoning: Option<Reasoning>,
    /// What is to be told besides.
    pub include: Option<Vec<Include>>,
    /// How many of the likeliest tokens to tell with each; only where `include` asks for log-probabilities.
    #[schema(maximum = 20)]
    pub top_logprobs: Option<usize>,
    /// What becomes of a conversation that is too long for the model: it is refused, if nothing is said.
    pub truncation: Option<Truncation>,
    /// Values that the chat template asks for by name, as in chat completions.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// What the client tells of itself; not looked at.
    #[schema(value_type = Option<Object>)]
    pub client_metadata: Option<Value>,
    /// Whether the answer is made while nobody waits for it; it is not.
    pub background: Option<bool>,
    /// The answer that this goes on from. None is kept here: a conversation is sent whole.
    pub previous_response_id: Option<String>,
    /// Where OpenAI would keep the conversation. None is kept here.
    #[schema(value_type = Option<Object>)]
    pub conversation: Option<Value>,
    /// What all ways of asking have in common, but for `n`, `max_tokens`, `return_token_ids` and `prompt_logprobs`.
    #[serde(flatten)]
    pub generation: Generation,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

/// A function that the model may call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionTool {
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// What it is called.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: Option<String>,
    /// A JSON schema of its arguments, as chat completions have it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Map<String, Value>>,
    /// Whether a schema that is not understood in all its parts is refused where calls are held to it.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// Whether the model may call, must, or must not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected \"none\", \"auto\", \"required\", a named function, or allowed_tools"
)]
pub enum Choice {
    /// By word.
    Word(ToolWord),
    /// This function.
    Named {
        /// `"function"`
        #[serde(rename = "type")]
        kind: ToolKind,
        /// Which.
        name: String,
    },
    /// It is told of all functions, and may call some of them.
    Allowed {
        /// `"allowed_tools"`
        #[serde(rename = "type")]
        kind: AllowedKind,
        /// Whether one of them must be called.
        mode: AllowedMode,
        /// Which. At least one.
        tools: Vec<AllowedTool>,
    },
}

/// A function that may be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AllowedTool {
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// Which.
    pub name: String,
}

/// What the text of an answer is to be like.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// A form that it is held to.
    #[serde(default)]
    pub format: Option<TextFormat>,
    /// How much OpenAI's models would say; not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
}

/// A form that text is held to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TextFormat {
    /// Any text.
    Text {},
    /// A JSON object.
    JsonObject {},
    /// JSON that conforms to a schema.
    JsonSchema {
        /// What the schema is called; not looked at.
        #[serde(default)]
        name: Option<String>,
        /// What it is for; not looked at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
        /// Whether a schema that is not understood in all its parts is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}

/// How the model is to think.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Reasoning {
    /// How long. Handed to the chat template as `reasoning_effort`.
    #[serde(default)]
    pub effort: Option<String>,
    /// How OpenAI would sum its thoughts up; here they are told as they are.
    #[serde(default)]
    pub summary: Option<String>,
}

/// What can be told besides. Most are of tools and kinds of content that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
pub enum Include {
    /// Log-probabilities of the text's tokens.
    #[serde(rename = "message.output_text.logprobs")]
    Logprobs,
    /// Thoughts that only OpenAI can read; here anybody can.
    #[serde(rename = "reasoning.encrypted_content")]
    EncryptedThoughts,
    /// Of OpenAI's tools.
    #[serde(rename = "file_search_call.results")]
    FileSearchResults,
    /// Of OpenAI's tools.
    #[serde(rename = "web_search_call.results")]
    WebSearchResults,
    /// Of OpenAI's tools.
    #[serde(rename = "web_search_call.action.sources")]
    WebSearchSources,
    /// Of OpenAI's tools.
    #[serde(rename = "code_interpreter_call.outputs")]
    InterpreterOutputs,
    /// Of OpenAI's tools.
    #[serde(rename = "computer_call_output.output.image_url")]
    ComputerImages,
    /// Of images.
    #[serde(rename = "message.input_image.image_url")]
    InputImages,
}

/// What becomes of a conversation that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Truncation {
    /// It is refused.
    #[default]
    Disabled,
    /// Its oldest items are left out until it fits with `max_output_tokens`, or else with a quarter of the context for the answer (1,024
    /// tokens at most). `instructions` stay, and so does the last item: where that does not fit it is refused.
    Auto,
}

impl ResponseRequest {
    /// The chat completion that asks for the same.
    ///
    /// # Errors
    /// 400: nothing to answer, an item that is none here, or what only OpenAI's own server could do.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        self.check()?;
        let Some(input) = self.input else {
            return Err(ApiError::parameter("input", "input is missing"));
        };
        let tells = self.include.iter().flatten().any(|&what| what == Include::Logprobs);
        if let Some(top @ 1..) = self.top_logprobs.filter(|_| !tells) {
            let problem = format!(
                "top_logprobs is {top} although include has no \"message.output_text.logprobs\""
            );
            return Err(ApiError::parameter("top_logprobs", problem));
        }
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let asks = |choice: &Choice| has_tools || *choice != Choice::Word(ToolWord::Auto);
        Ok(ChatRequest {
            messages: Some(input.messages(self.instructions)?),
            max_completion_tokens: self.max_output_tokens,
            logprobs: Some(tells),
            top_logprobs: self.top_logprobs,
            // Whoever may call, and has nothing to call, answers.
            tool_choice: self.tool_choice.filter(asks).map(ToolChoice::from),
            tools: self.tools.map(|tools| tools.into_iter().map(Tool::from).collect()),
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.text.and_then(|text| text.format).map(ResponseFormat::from),
            reasoning_effort: self.reasoning.and_then(|reasoning| reasoning.effort),
            chat_template_kwargs: self.chat_template_kwargs,
            generation: self.generation,
            ..ChatRequest::default()
        })
    }

    /// Refuses what only OpenAI's own server could do, and what chat completions have and this has not.
    fn check(&self) -> Result<(), ApiError> {
        let kept = |param: &str| {
            let problem = format!(
                "{param} is given, and nothing is kept here: expected the whole conversation as input"
            );
            Err(ApiError::parameter(param, problem))
        };
        if self.previous_response_id.is_some() {
            return kept("previous_response_id");
        }
        if self.conversation.is_some() {
            return kept("conversation");
        }
        if self.background == Some(true) {
            let expected = "false: an answer is for whoever waits for it";
            return Err(ApiError::value("background", true, expected));
        }
        self.generation.check_one_answer("a response")?;
        let Generation { max_tokens, metadata, .. } = &self.generation;
        if metadata.as_ref().is_some_and(|notes| !are_notes(notes)) {
            let expected = format!(
                "an object of at most {MOST_NOTES} texts of up to {MOST_NOTE} characters, with names of up to {MOST_NOTE_NAME}"
            );
            return Err(ApiError::value("metadata", "of another kind, or larger", &expected));
        }
        if let Some(most) = max_tokens {
            let expected = "max_output_tokens in its place";
            return Err(ApiError::value("max_tokens", most, expected));
        }
        Ok(())
    }
}

/// Whether it is what an answer may say again.
fn are_notes(notes: &Value) -> bool {
    let is_short = |text: &str, most: usize| text.chars().nth(most).is_none();
    notes.as_object().is_some_and(|notes| {
        let mut each = notes.iter();
        notes.len() <= MOST_NOTES
            && each.all(|(name, note)| {
                is_short(name, MOST_NOTE_NAME)
                    && note.as_str().is_some_and(|note| is_short(note, MOST_NOTE))
            })
    })
}

impl From<FunctionTool> for Tool {
    fn from(FunctionTool { kind, name, description, parameters, strict }: FunctionTool) -> Self {
        Tool { kind, function: Function { name, description, parameters, strict } }
    }
}

impl From<Choice> for ToolChoice {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Word(word) => ToolChoice::Word(word),
            Choice::Named { kind, name } => {
                ToolChoice::Named { kind, function: FunctionName { name } }
            }
            Choice::Allowed { kind, mode, tools } => {
                let named = |AllowedTool { kind, name }| NamedTool {
                    kind,
                    function: FunctionName { name },
                };
                let tools = tools.into_iter().map(named).collect();
                ToolChoice::Allowed { kind, allowed_tools: Allowed { mode, tools } }
            }
        }
    }
}

impl From<TextFormat> for ResponseFormat {
    fn from(format: TextFormat) -> Self {
        match format {
            TextFormat::Text {} => ResponseFormat::Text {},
            TextFormat::JsonObject {} => ResponseFormat::JsonObject { schema: None },
            TextFormat::JsonSchema { name, description, schema, strict } => {
                let json_schema = NamedSchema { name, description, schema, strict };
                ResponseFormat::JsonSchema { json_schema }
            }
        }
    }
}
