//! Functions that a model may call.

use super::{ApiError, MOST_TOOLS, at_most, fresh_call_id};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// A function that the model may call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// There is one kind.
    #[serde(rename = "type")]
    pub kind: ToolKind,
    /// The function.
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
pub struct Function {
    /// What it is called.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema of its arguments. One that lists `properties` allows no others, unless it says so: a function has
    /// the arguments that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Whether arguments must conform; here they always do when a call is demanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// Whether the model may call, must, or must not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected \"none\", \"auto\", \"required\" or a named function")]
pub enum ToolChoice {
    /// By word.
    Word(ToolWord),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolWord {
    /// It must not.
    None,
    /// It may.
    Auto,
    /// It must.
    Required,
}

/// A function by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
pub struct FunctionName {
    /// Its name.
    pub name: String,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// What the answer to it is to name.
    #[serde(default)]
    pub id: String,
    /// There is one kind.
    #[serde(rename = "type", default)]
    pub kind: ToolKind,
    /// What is called.
    pub function: Called,
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Called {
    /// The function.
    pub name: String,
    /// Its arguments as JSON.
    pub arguments: String,
}

impl ToolCall {
    /// A call of a function, under a name of its own.
    pub fn new(name: impl Into<String>, arguments: &Value) -> Self {
        let function = Called { name: name.into(), arguments: arguments.to_string() };
        ToolCall { id: fresh_call_id(), kind: ToolKind::Function, function }
    }

    /// As templates read it: arguments are values.
    pub fn for_template(&self) -> Value {
        let arguments = &self.function.arguments;
        let value: Value =
            serde_json::from_str(arguments).unwrap_or_else(|_| arguments.as_str().into());
        let function = json!({"name": self.function.name, "arguments": value});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

/// What a request's tools come to.
#[derive(Debug, Clone, Default)]
pub struct Calling {
    /// The functions that the model is told of.
    pub tools: Vec<Tool>,
    /// Functions one of which must be called; none if the model may answer as it likes.
    pub demanded: Vec<Function>,
    /// Whether a single function was named.
    pub is_named: bool,
}

impl Calling {
    /// From a request's parameters.
    ///
    /// # Errors
    /// 400: too many tools, two of one name, a choice without tools, or one that names none of them.
    pub fn new(tools: Option<Vec<Tool>>, choice: Option<ToolChoice>) -> Result<Self, ApiError> {
        let tools = tools.unwrap_or_default();
        at_most("tools", tools.len(), MOST_TOOLS, "tools")?;
        for (i, tool) in tools.iter().enumerate() {
            let name = &tool.function.name;
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if !(1..=64).contains(&name.len()) || !name.chars().all(is_word) {
                let problem = format!(
                    "tools have one called {name:?}, expected 1 to 64 of letters, digits, `_`, `-` and `.`"
                );
                return Err(ApiError::parameter("tools", problem));
            }
            if tools[..i].iter().any(|other| other.function.name == *name) {
                let problem = format!("tools have {name:?} twice, expected names of their own");
                return Err(ApiError::parameter("tools", problem));
            }
        }
        let named = |name: &str| tools.iter().find(|tool| tool.function.name == name);
        let (demanded, is_named) = match &choice {
            None | Some(ToolChoice::Word(ToolWord::Auto)) => (Vec::new(), false),
            Some(ToolChoice::Word(ToolWord::None)) => return Ok(Calling::default()),
            Some(ToolChoice::Word(ToolWord::Required)) => {
                (tools.iter().map(|tool| tool.function.clone()).collect(), false)
            }
            Some(ToolChoice::Named { function, .. }) => {
                let tool = named(&function.name).ok_or_else(|| {
                    ApiError::value("tool_choice", &function.name, "the name of one of the tools")
                })?;
                (vec![tool.function.clone()], true)
            }
        };
        if choice.is_some() && tools.is_empty() {
            return Err(ApiError::parameter("tool_choice", "tool_choice is given without tools"));
        }
        Ok(Calling { tools, demanded, is_named })
    }

    /// Whether the model may call, or answer as it likes.
    pub fn is_open(&self) -> bool {
        !self.tools.is_empty() && self.demanded.is_empty()
    }

    /// A schema of all the calls that are demanded; none if none is.
    pub fn schema(&self) -> Option<Value> {
        let one = |function: &Function| {
            let nothing =
                json!({"type": "object", "properties": {}, "additionalProperties": false});
            let parameters = function.parameters.clone().map_or(nothing, closed);
            json!({
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        };
        match &self.demanded[..] {
            [] => None,
            [function] => Some(one(function)),
            several => Some(json!({"anyOf": several.iter().map(one).collect::<Vec<_>>()})),
        }
    }
}

/// Words with which a schema of an object says something of properties that it does not list.
const OF_OTHERS: [&str; 7] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
];

/// The same schema without properties that it does not list, if it leaves them open. A model that may make up
/// arguments does not come to an end.
fn closed(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema
        && fields.contains_key("properties")
        && !OF_OTHERS.iter().any(|word| fields.contains_key(*word))
    {
        fields.insert("additionalProperties".to_owned(), false.into());
    }
    schema
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
            let call = ToolCall::new("weather", &json!({"city": "Rome"}));
            assert!(call.id.chars().all(|c| c.is_ascii_alphanumeric()), "{}", call.id);
            let messages = [json!({"role": "assistant", "tool_calls": [call.for_template()]})];
            assert_eq!(template.render(&messages, false).unwrap(), "weather");
        }
    }
}
