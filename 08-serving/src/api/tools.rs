//! Functions that a model may call.

use super::fresh_call_id;
use super::read::whole_without_nulls;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// A function that the model may call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// The function.
    #[serde(deserialize_with = "whole_without_nulls")]
    pub function: Function,
}

/// Kinds of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    /// A function of the client's.
    #[default]
    Function,
}

/// A function of the client's.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// What it is called.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema of its arguments, which are an object's; without one, or with an empty one, it has none. One that
    /// lists `properties` allows no others, unless it says so: a function has the arguments that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Map<String, Value>>,
    /// Whether a schema that is not understood in all its parts is refused where calls are held to it. Where it is
    /// not, parts that are not understood are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// Whether the model may call, must, or must not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected \"none\", \"auto\", \"required\", a named function, or allowed_tools"
)]
pub enum ToolChoice {
    /// By word.
    Word(ToolWord),
    /// It is told of all functions, and may call some of them.
    Allowed {
        /// `"allowed_tools"`
        #[serde(rename = "type")]
        kind: AllowedKind,
        /// Which.
        allowed_tools: Allowed,
    },
    /// This function.
    Named {
        /// `"function"`
        #[serde(rename = "type")]
        kind: ToolKind,
        /// Which.
        function: FunctionName,
    },
}

/// See [`ToolChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolWord {
    /// It must not.
    None,
    /// It may.
    Auto,
    /// It must.
    Required,
}

/// See [`ToolChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllowedKind {
    /// There is one.
    AllowedTools,
}

/// Functions that may be called.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct Allowed {
    /// Whether one of them must.
    pub mode: AllowedMode,
    /// Which. At least one.
    pub tools: Vec<NamedTool>,
}

/// Whether one of some functions must be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllowedMode {
    /// It may.
    Auto,
    /// It must.
    Required,
}

/// A tool by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct NamedTool {
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// Which.
    pub function: FunctionName,
}

/// A function by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct FunctionName {
    /// Its name.
    pub name: String,
}

/// A call that the model makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCall {
    /// What the answer to it is to name.
    pub id: String,
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// What is called.
    pub function: Called,
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Called {
    /// The function.
    pub name: String,
    /// Its arguments as JSON.
    pub arguments: String,
}

impl ToolCall {
    /// A call of a function, under a name of its own; the arguments are JSON.
    pub fn new(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let function = Called { name: name.into(), arguments: arguments.into() };
        ToolCall { id: fresh_call_id(), kind: ToolKind::Function, function }
    }
}

/// A call that was made earlier in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct PastCall {
    /// What the answer to it names.
    #[serde(default)]
    pub id: String,
    /// There is one kind.
    #[serde(rename = "type", default)]
    pub kind: ToolKind,
    /// What was called.
    pub function: CalledBefore,
}

/// What was called.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct CalledBefore {
    /// The function.
    pub name: String,
    /// Its arguments. A call without any may say so, or leave them out, or leave them empty.
    #[serde(default)]
    pub arguments: Option<Arguments>,
}

/// Arguments of a call: as JSON in a text, which is how OpenAI has it, or as they are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "arguments are no object, nor the JSON of one as a string")]
pub enum Arguments {
    /// As JSON in a text.
    Written(String),
    /// As they are.
    Given(Map<String, Value>),
}

impl PastCall {
    /// As templates read it: arguments are values.
    pub fn for_template(&self) -> Value {
        let nothing = || Value::Object(Map::new());
        let arguments = match &self.function.arguments {
            None => nothing(),
            Some(Arguments::Given(fields)) => fields.clone().into(),
            Some(Arguments::Written(text)) if text.trim().is_empty() => nothing(),
            // A model may have written what is no JSON; it is shown what it wrote.
            Some(Arguments::Written(text)) => match serde_json::from_str(text) {
                Ok(Value::Null) => nothing(),
                Ok(value) => value,
                Err(_) => text.as_str().into(),
            },
        };
        let function = json!({"name": self.function.name, "arguments": arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_files::ChatTemplate;

    /// Writes calls down as Mistral-7B-Instruct-v0.3's template does.
    const DEMANDING: &str = "{% for message in messages %}{% for call in message.tool_calls %}\
        {% if not call.id is defined or call.id|length != 9 %}\
        {{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}\
        {{ call.function.name }}{% endfor %}{% endfor %}";

    #[test]
    fn a_call_made_here_is_named_as_templates_want_it() {
        let template = ChatTemplate::new("chat_template", DEMANDING, None, None).unwrap();
        for _ in 0..100 {
            let call = ToolCall::new("weather", r#"{"city": "Rome"}"#);
            assert!(call.id.chars().all(|c| c.is_ascii_alphanumeric()), "{}", call.id);
            // As the client sends it back.
            let call: PastCall =
                serde_json::from_value(serde_json::to_value(call).unwrap()).unwrap();
            let messages = [json!({"role": "assistant", "tool_calls": [call.for_template()]})];
            assert_eq!(template.render(&messages, false).unwrap(), "weather");
        }
    }
}
