//! A message, as it is asked for: Anthropic's way to hold a conversation. It says what a chat completion says in other words, and is
//! made one.

mod answer;
mod blocks;
mod refusal;

pub use answer::{
    AnswerBlock, AnthropicAnswer, AnthropicEvent, AnthropicUsage, BlockDelta, InputTokens,
    MessageEnd, ThinkingTokens,
};
pub use blocks::{AnthropicMessage, Block, BlockContent, BlockText, TextBlock};
pub use refusal::{AnthropicRefusal, like_anthropic};

use super::chat::ChatRequest;
use super::formats::{NamedSchema, ResponseFormat};
use super::read::each_without_nulls;
use super::tools::{Function, FunctionName, Tool, ToolChoice, ToolKind, ToolWord};
use super::{ApiError, Generation, OneOrMany};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The body of `POST /v1/messages`, and of `POST /v1/messages/count_tokens`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct AnthropicRequest {
    /// The conversation so far. An answer goes on with the last message, if that is the assistant's.
    #[schema(required = true, nullable = false, min_items = 1)]
    pub messages: Option<Vec<AnthropicMessage>>,
    /// What a system message before all of it would say.
    pub system: Option<BlockText>,
    /// Strings that end the answer: `stop`, as others call it.
    pub stop_sequences: Option<Vec<String>>,
    /// Functions that the model may call.
    #[serde(default, deserialize_with = "each_without_nulls")]
    pub tools: Option<Vec<AnthropicTool>>,
    /// Whether it may, must, or must not.
    pub tool_choice: Option<AnthropicChoice>,
    /// Whether the model is to think before it answers. Handed to the chat template as `enable_thinking` and `thinking`.
    pub thinking: Option<AnthropicThinking>,
    /// What the answer is to be like.
    pub output_config: Option<OutputConfig>,
    /// Values that the chat template asks for by name, as in chat completions; they go before the others.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// What Anthropic would keep; here prompts find each other by what they say.
    #[schema(value_type = Option<Object>)]
    pub cache_control: Option<Value>,
    /// What Anthropic would take out of a long conversation; here it is read as it is sent.
    #[schema(value_type = Option<Object>)]
    pub context_management: Option<Value>,
    /// What Anthropic would tell of its cache; not looked at.
    #[schema(value_type = Option<Object>)]
    pub diagnostics: Option<Value>,
    /// Where Anthropic would run the model; here it runs here.
    pub inference_geo: Option<String>,
    /// How fast Anthropic would run it; here everybody is served alike.
    pub speed: Option<String>,
    /// Who asks, as Anthropic knows them; not looked at.
    pub user_profile_id: Option<String>,
    /// The same.
    pub workspace_id: Option<String>,
    /// What all ways of asking have in common, but for `n`, `stop`, `return_token_ids` and `prompt_logprobs`. `max_tokens` may be
    /// more than there is room for, or left out: then there are as many as fit.
    #[serde(flatten)]
    pub generation: Generation,
    /// What nobody knows.
    #[serde(flatten)]
    #[schema(ignore)]
    pub unknown: Map<String, Value>,
}

/// A function that the model may call.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct AnthropicTool {
    /// `"custom"`, if anything. Anthropic's own tools are others, and not here.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// What it is called.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: Option<String>,
    /// A JSON schema of its arguments, as chat completions have it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Map<String, Value>>,
    /// Whether a schema that is not understood in all its parts is refused where calls are held to it.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// Whether the model may call, must, or must not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AnthropicChoice {
    /// It may.
    Auto {
        /// Whether it may call no more than one.
        #[serde(default)]
        disable_parallel_tool_use: Option<bool>,
    },
    /// It must call one, and calls one.
    Any {
        /// It does not.
        #[serde(default)]
        disable_parallel_tool_use: Option<bool>,
    },
    /// It must call this one.
    Tool {
        /// Which.
        name: String,
        /// It does not.
        #[serde(default)]
        disable_parallel_tool_use: Option<bool>,
    },
    /// It must not.
    None {},
}

/// Whether the model is to think before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AnthropicThinking {
    /// It is to.
    Enabled {
        /// How many tokens Anthropic would let it think; not looked at.
        #[serde(default)]
        budget_tokens: Option<usize>,
    },
    /// It is not to.
    Disabled {},
    /// As it likes, which is so if nothing is said, too.
    Adaptive {},
    /// The same: here a model thinks as its template has it.
    #[serde(rename = "between_tools")]
    BetweenTools {},
}

/// What an answer is to be like.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct OutputConfig {
    /// How long the model may think. Handed to the chat template as `reasoning_effort`.
    #[serde(default)]
    pub effort: Option<String>,
    /// A form that it is held to.
    #[serde(default)]
    pub format: Option<OutputFormat>,
}

/// A form that an answer is held to.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    /// JSON that conforms to a schema.
    JsonSchema {
        /// The schema.
        #[schema(value_type = Object)]
        schema: Value,
    },
}

impl AnthropicRequest {
    /// The chat completion that asks for the same.
    ///
    /// # Errors
    /// 400: nothing to answer, a block that is none here, or a tool of Anthropic's own.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        self.generation.check_one_answer("a message")?;
        let mut generation = self.generation;
        if generation.stop.is_some() {
            let expected = "stop_sequences in its place";
            return Err(ApiError::value("stop", "given", expected));
        }
        generation.stop = self.stop_sequences.map(OneOrMany::Many);
        let Some(messages) = self.messages else {
            return Err(ApiError::parameter("messages", "messages is missing"));
        };
        let (messages, goes_on) = blocks::conversation(messages, self.system)?;
        let choice = self.tool_choice;
        let one_call = choice.as_ref().and_then(AnthropicChoice::one_call);
        let tools = self.tools.unwrap_or_default().into_iter().map(Tool::try_from);
        let tools = tools.collect::<Result<Vec<_>, _>>()?;
        // Whoever has nothing to call answers, whatever is said of calls.
        let demands = |choice: &AnthropicChoice| {
            use AnthropicChoice::{Any, Tool};
            !tools.is_empty() || matches!(choice, Any { .. } | Tool { .. })
        };
        let mut values = self.chat_template_kwargs.unwrap_or_default();
        if let Some(thinks) = self.thinking.as_ref().and_then(AnthropicThinking::asks) {
            for name in ["enable_thinking", "thinking"] {
                values.entry(name).or_insert(thinks.into());
            }
        }
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        Ok(ChatRequest {
            messages: Some(messages),
            tool_choice: choice.filter(demands).map(ToolChoice::from),
            tools: Some(tools),
            parallel_tool_calls: one_call.map(|one_call| !one_call),
            response_format: format.map(ResponseFormat::from),
            continue_final_message: goes_on.then_some(true),
            reasoning_effort: effort,
            chat_template_kwargs: Some(values),
            // Clients ask for as many tokens as Anthropic's models would write.
            takes_what_fits: true,
            generation,
            ..ChatRequest::default()
        })
    }
}

impl AnthropicChoice {
    fn one_call(&self) -> Option<bool> {
        match self {
            AnthropicChoice::Auto { disable_parallel_tool_use: one_call }
            | AnthropicChoice::Any { disable_parallel_tool_use: one_call }
            | AnthropicChoice::Tool { disable_parallel_tool_use: one_call, .. } => *one_call,
            AnthropicChoice::None {} => None,
        }
    }
}

impl AnthropicThinking {
    /// Whether the model is to; none if it may do as it likes.
    fn asks(&self) -> Option<bool> {
        match self {
            AnthropicThinking::Enabled { .. } => Some(true),
            AnthropicThinking::Disabled {} => Some(false),
            AnthropicThinking::Adaptive {} | AnthropicThinking::BetweenTools {} => None,
        }
    }
}

impl TryFrom<AnthropicTool> for Tool {
    type Error = ApiError;

    fn try_from(tool: AnthropicTool) -> Result<Self, ApiError> {
        let AnthropicTool { kind, name, description, input_schema: parameters, strict } = tool;
        if let Some(kind) = kind.filter(|kind| kind != "custom") {
            let problem = format!(
                "tools have one of type {kind:?}, expected \"custom\": Anthropic's own tools are not here"
            );
            return Err(ApiError::parameter("tools", problem));
        }
        let function = Function { name, description, parameters, strict };
        Ok(Tool { kind: ToolKind::Function, function })
    }
}

impl From<AnthropicChoice> for ToolChoice {
    fn from(choice: AnthropicChoice) -> Self {
        match choice {
            AnthropicChoice::Auto { .. } => ToolChoice::Word(ToolWord::Auto),
            AnthropicChoice::Any { .. } => ToolChoice::Word(ToolWord::Required),
            AnthropicChoice::None {} => ToolChoice::Word(ToolWord::None),
            AnthropicChoice::Tool { name, .. } => {
                ToolChoice::Named { kind: ToolKind::Function, function: FunctionName { name } }
            }
        }
    }
}

impl From<OutputFormat> for ResponseFormat {
    fn from(OutputFormat::JsonSchema { schema }: OutputFormat) -> Self {
        let json_schema = NamedSchema { name: None, description: None, schema, strict: None };
        ResponseFormat::JsonSchema { json_schema }
    }
}
