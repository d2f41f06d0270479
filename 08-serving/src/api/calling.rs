//! What a request's tools come to: what the model is told of, what it must call, and the form of a call.

use super::formats::Form;
use super::references::Definitions;
use super::tools::{Allowed, AllowedMode, Function, Tool, ToolChoice, ToolWord};
use super::{ApiError, MOST_TOOLS, at_most};
use serde_json::{Map, Value, json};

/// What a request's tools come to.
#[derive(Debug, Clone, Default)]
pub struct Calling {
    /// The functions that the model is told of.
    pub tools: Vec<Tool>,
    /// Those of them that it may call.
    pub callable: Vec<Function>,
    /// Functions one of which must be called; none if the model may answer as it likes.
    pub demanded: Vec<Function>,
    /// Whether a single function was named.
    pub is_named: bool,
}

impl Calling {
    /// From a request's parameters.
    ///
    /// # Errors
    /// 400: too many tools, two of one name, parameters of no object, a choice without tools, or one that names none of
    /// them.
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
            of_an_object(&tool.function)?;
        }
        let named = |name: &str| tools.iter().find(|tool| tool.function.name == name);
        let called = |name: &String| {
            let tool = named(name).map(|tool| tool.function.clone());
            let expected = "the name of one of the tools";
            tool.ok_or_else(|| ApiError::value("tool_choice", name, expected))
        };
        let all = || tools.iter().map(|tool| tool.function.clone()).collect::<Vec<_>>();
        let (callable, is_demanded, is_named) = match &choice {
            None | Some(ToolChoice::Word(ToolWord::Auto)) => (all(), false, false),
            Some(ToolChoice::Word(ToolWord::None)) => return Ok(Calling::default()),
            Some(ToolChoice::Word(ToolWord::Required)) => (all(), true, false),
            Some(ToolChoice::Named { function, .. }) => (vec![called(&function.name)?], true, true),
            Some(ToolChoice::Allowed { allowed_tools: Allowed { mode, tools }, .. }) => {
                let allowed = tools.iter().map(|tool| called(&tool.function.name));
                let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
                if allowed.is_empty() {
                    let expected = "at least one of the tools";
                    return Err(ApiError::value("tool_choice", "of no tools", expected));
                }
                (allowed, *mode == AllowedMode::Required, false)
            }
        };
        if choice.is_some() && tools.is_empty() {
            return Err(ApiError::parameter("tool_choice", "tool_choice is given without tools"));
        }
        let demanded = if is_demanded { callable.clone() } else { Vec::new() };
        Ok(Calling { tools, callable, demanded, is_named })
    }

    /// Whether the model may call, or answer as it likes.
    pub fn is_open(&self) -> bool {
        !self.tools.is_empty() && self.demanded.is_empty()
    }

    /// What the answer is held to if a call is demanded: one of the functions that are.
    pub fn form(&self) -> Option<Form> {
        let demanded: Vec<&Function> = self.demanded.iter().collect();
        (!demanded.is_empty()).then(|| one_call(&demanded, ARGUMENTS))
    }

    /// One call of any function that the model may call; `arguments` is what it calls its arguments.
    pub fn any_call(&self, arguments: &str) -> Form {
        one_call(&self.callable.iter().collect::<Vec<_>>(), arguments)
    }
}

/// What calls call their arguments, unless their model has another word.
pub const ARGUMENTS: &str = "arguments";

/// The form of a call of one of some functions. What one of them wants strictly is wanted of all: it is one schema.
fn one_call(functions: &[&Function], arguments: &str) -> Form {
    let is_strict = functions.iter().any(|function| function.strict == Some(true));
    let named = functions.iter().map(|function| (&*function.name, parameters(function)));
    let schema = Definitions::of(named).schema(|name, parameters| {
        json!({
            "type": "object",
            "properties": {"name": {"const": name}, arguments: parameters},
            "required": ["name", arguments],
            "additionalProperties": false,
        })
    });
    Form::schema(&schema, is_strict)
}

/// Refuses parameters that are not an object's: nothing else is a call's arguments.
fn of_an_object(function: &Function) -> Result<(), ApiError> {
    let kind = function.parameters.as_ref().and_then(|schema| schema.get("type"));
    let is_object = |kind: &Value| kind == "object";
    let may_be = kind.is_none_or(|kind| {
        is_object(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_object))
    });
    if may_be {
        return Ok(());
    }
    let found = kind.map(Value::to_string).unwrap_or_default();
    let problem = format!(
        "tools have {:?} with parameters of type {found}, expected \"object\"",
        function.name
    );
    Err(ApiError::parameter("tools", problem))
}

/// A schema of a function's arguments, which are an object's whether it says so or not.
fn parameters(function: &Function) -> Value {
    match &function.parameters {
        Some(fields) if !fields.is_empty() => {
            let mut fields = fields.clone();
            fields.insert("type".to_owned(), "object".into());
            closed(fields).into()
        }
        _ => json!({"type": "object", "properties": {}, "additionalProperties": false}),
    }
}

/// Words with which a schema of an object says something of properties that it does not list.
const OF_OTHERS: [&str; 6] =
    ["additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"];

/// The same schema without properties that it does not list, if it leaves them open. A model that may make up
/// arguments does not come to an end.
fn closed(mut fields: Map<String, Value>) -> Map<String, Value> {
    // The grammar does not follow this word. Where it says that there are no others, `additionalProperties` says it too.
    let unevaluated = fields.get("unevaluatedProperties").is_some_and(|said| *said != json!(false));
    let says = unevaluated || OF_OTHERS.iter().any(|word| fields.contains_key(*word));
    if fields.contains_key("properties") && !says {
        fields.insert("additionalProperties".to_owned(), false.into());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_that_are_not_listed_are_closed_unless_a_schema_says_something_of_them() {
        let closes = |said: Value| {
            let mut fields = said.as_object().unwrap().clone();
            fields.insert("properties".to_owned(), json!({"city": {"type": "string"}}));
            let asked = fields.get("additionalProperties").cloned();
            closed(fields).get("additionalProperties") != asked.as_ref()
        };
        for said in [json!({}), json!({"unevaluatedProperties": false})] {
            assert!(closes(said.clone()), "{said}");
        }
        for said in [
            json!({"additionalProperties": true}),
            json!({"unevaluatedProperties": true}),
            json!({"unevaluatedProperties": {"type": "string"}}),
            json!({"anyOf": [{"required": ["city"]}]}),
        ] {
            assert!(!closes(said.clone()), "{said}");
        }
    }
}
