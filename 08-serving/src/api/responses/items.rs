//! What a response is asked about: items of a conversation, and the messages that say the same.

use crate::api::ApiError;
use crate::api::messages::{ChatMessage, Content, Role};
use crate::api::tools::{Arguments, CalledBefore, PastCall, ToolKind};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::ToSchema;

/// What the model is to answer.
#[derive(Debug, Clone, ToSchema)]
#[serde(untagged)]
pub enum Input {
    /// What the user says.
    Text(String),
    /// The conversation so far.
    Items(Vec<Item>),
}

impl<'de> Deserialize<'de> for Input {
    /// As one of the two, and not as either that will do: what is wrong with an item is to be said.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let item = |(at, item): (usize, Value)| {
            serde_json::from_value(item).map_err(|e| D::Error::custom(format!("item {at}: {e}")))
        };
        match Value::deserialize(from)? {
            Value::String(text) => Ok(Input::Text(text)),
            Value::Array(items) => {
                items.into_iter().enumerate().map(item).collect::<Result<_, _>>().map(Input::Items)
            }
            _ => Err(D::Error::custom("expected a text or a list of items")),
        }
    }
}

/// A part of a conversation. Which of its fields it has, its type says: `message` (or none) has `role` and `content`,
/// `function_call` has `call_id`, `name` and `arguments`, `function_call_output` has `call_id` and `output`, and `reasoning`
/// has `content`, or else `summary`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct Item {
    /// What it is.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// Who speaks.
    #[serde(default)]
    pub role: Option<Role>,
    /// What is said, or thought.
    #[serde(default)]
    pub content: Option<ItemContent>,
    /// A summary of what was thought.
    #[serde(default)]
    pub summary: Option<ItemContent>,
    /// Calls, as messages of chat completions have them: here each is an item of its own.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub tool_calls: Option<Value>,
    /// Which call.
    #[serde(default)]
    pub call_id: Option<String>,
    /// The function that was called.
    #[serde(default)]
    pub name: Option<String>,
    /// Its arguments, as JSON.
    #[serde(default)]
    pub arguments: Option<String>,
    /// What it gave back.
    #[serde(default)]
    pub output: Option<ItemContent>,
}

/// A text, or parts of one.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "content is no string and no list of parts with a type")]
pub enum ItemContent {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<ItemPart>),
}

/// A part of a text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct ItemPart {
    /// What it is: a text that was given (`input_text`), answered (`output_text`), thought (`reasoning_text`, `summary_text`), or
    /// said in place of an answer (`refusal`).
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    #[serde(default)]
    pub text: Option<String>,
    /// Its text, of a refusal.
    #[serde(default)]
    pub refusal: Option<String>,
}

/// Kinds of parts that have a text.
const TEXTS: [&str; 5] = ["input_text", "output_text", "text", "reasoning_text", "summary_text"];

impl ItemContent {
    fn text(self) -> Result<String, ApiError> {
        let parts = match self {
            ItemContent::Text(text) => return Ok(text),
            ItemContent::Parts(parts) => parts,
        };
        let text = |part: ItemPart| match (&*part.kind, part.text, part.refusal) {
            (kind, Some(text), _) if TEXTS.contains(&kind) => Ok(text),
            ("refusal", _, Some(text)) => Ok(text),
            (kind, ..) => Err(refused(format!(
                "input has a part of type {kind:?}, expected \"input_text\" or \"output_text\" with a text: this model \
                 reads nothing else"
            ))),
        };
        // As in messages: what came apart is not run together.
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

fn refused(problem: String) -> ApiError {
    ApiError::parameter("input", problem)
}

impl Input {
    /// The conversation as messages, after instructions if there are any.
    ///
    /// # Errors
    /// 400: no items, or one that is none here or lacks what its type has.
    pub fn messages(self, instructions: Option<String>) -> Result<Vec<ChatMessage>, ApiError> {
        let items = match self {
            Input::Text(text) => {
                let (role, content) = (Some(Role::User), Some(ItemContent::Text(text)));
                vec![Item { role, content, ..Item::default() }]
            }
            Input::Items(items) => items,
        };
        if items.is_empty() {
            return Err(ApiError::value("input", "empty", "at least one item"));
        }
        let mut said = Said::default();
        if let Some(text) = instructions.filter(|text| !text.is_empty()) {
            said.message(Role::System, text);
        }
        items.into_iter().try_for_each(|item| said.take(item))?;
        Ok(said.messages)
    }
}

/// Messages so far. What the assistant thinks, says and calls until somebody else speaks is one of them, and so are rules that
/// come one after another: many templates want a system message at the beginning, and no other.
#[derive(Default)]
struct Said {
    messages: Vec<ChatMessage>,
}

impl Said {
    fn take(&mut self, item: Item) -> Result<(), ApiError> {
        let kind = item.kind.as_deref().unwrap_or("message");
        let lacks = |what: &str| {
            let problem =
                format!("input has an item of type {kind:?} without {what}, which it needs");
            refused(problem)
        };
        if item.tool_calls.is_some() {
            let problem = "input has a message with tool_calls, expected items of type \"function_call\" in their place";
            return Err(refused(problem.to_owned()));
        }
        match kind {
            "message" => match item.role.ok_or_else(|| lacks("role"))? {
                Role::Tool => {
                    let problem = "input has a message of role \"tool\", expected an item of type \
                                   \"function_call_output\" in its place";
                    return Err(refused(problem.to_owned()));
                }
                role => {
                    let text = item.content.ok_or_else(|| lacks("content"))?.text()?;
                    self.message(role, text);
                }
            },
            "reasoning" => {
                let mut thoughts = String::new();
                for content in [item.content, item.summary].into_iter().flatten() {
                    if thoughts.is_empty() {
                        thoughts = content.text()?;
                    }
                }
                // There may be none that can be read: clients send back what others have locked up.
                if !thoughts.is_empty() {
                    join(self.turn().reasoning_content.get_or_insert_default(), &thoughts);
                }
            }
            "function_call" => {
                let call = PastCall {
                    id: item.call_id.ok_or_else(|| lacks("call_id"))?,
                    kind: ToolKind::Function,
                    function: CalledBefore {
                        name: item.name.ok_or_else(|| lacks("name"))?,
                        arguments: item.arguments.map(Arguments::Written),
                    },
                };
                self.turn().tool_calls.get_or_insert_default().push(call);
            }
            "function_call_output" => {
                let text = item.output.ok_or_else(|| lacks("output"))?.text()?;
                let id = item.call_id.ok_or_else(|| lacks("call_id"))?;
                let message = ChatMessage::new(Role::Tool, Some(Content::Text(text)));
                self.messages.push(ChatMessage { tool_call_id: Some(id), ..message });
            }
            kind => {
                let problem = format!(
                    "input has an item of type {kind:?}, expected \"message\", \"reasoning\", \"function_call\" or \
                     \"function_call_output\""
                );
                return Err(refused(problem));
            }
        }
        Ok(())
    }

    fn message(&mut self, role: Role, text: String) {
        let sets_rules = |role| matches!(role, Role::System | Role::Developer);
        let last = self.messages.last_mut();
        let last = last.filter(|last| {
            let both = [last.role, role];
            both == [Role::Assistant; 2] || both.into_iter().all(sets_rules)
        });
        match last {
            Some(last) => match &mut last.content {
                Some(Content::Text(so_far)) => join(so_far, &text),
                content => *content = Some(Content::Text(text)),
            },
            None => self.messages.push(ChatMessage::new(role, Some(Content::Text(text)))),
        }
    }

    /// What the assistant has said since somebody else spoke.
    fn turn(&mut self) -> &mut ChatMessage {
        let goes_on = self.messages.last().is_some_and(|last| last.role == Role::Assistant);
        if !goes_on {
            self.messages.push(ChatMessage::new(Role::Assistant, None));
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }
}

/// Puts more behind a text, in a paragraph of its own.
fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        *text += "\n\n";
    }
    *text += more;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::messages::for_template;
    use serde_json::{Value, json};

    fn read(input: Value) -> Result<Value, String> {
        let input: Input = serde_json::from_value(input).unwrap();
        let messages = input.messages(Some("Be brief.".to_owned())).map_err(|e| e.error.message)?;
        Ok(serde_json::to_value(for_template(&messages).unwrap()).unwrap())
    }

    #[test]
    fn items_become_messages_and_a_turn_of_the_assistant_becomes_one() {
        let rules = json!({"role": "system", "content": "Be brief."});
        let asked = json!({"role": "user", "content": "Who are you?"});
        assert_eq!(read(json!("Who are you?")), Ok(json!([rules, asked])));
        let call = |id: &str| {
            json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "now", "status": "completed",
                "arguments": "{\"zone\": \"Rome\"}"})
        };
        let found = read(json!([
            {"role": "user", "content": [{"type": "input_text", "text": "What"}, {"type": "input_text", "text": "time?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            call("a"),
            call("b"),
            {"type": "function_call_output", "call_id": "a", "output": "noon"},
            {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "one"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Again."}]},
            call("c"),
            {"type": "function_call_output", "call_id": "c", "output": ""},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            call("d"),
            {"role": "assistant", "content": "More."},
            {"type": "function_call_output", "call_id": "d", "output": "two"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm."}]},
            {"type": "reasoning", "summary": []},
            {"role": "user", "content": "Well?"},
        ]));
        let called = |id: &str| json!({"id": id, "type": "function", "function": {"name": "now", "arguments": {"zone": "Rome"}}});
        let back =
            |id: &str, text: &str| json!({"role": "tool", "content": text, "tool_call_id": id});
        let expected = json!([
            rules,
            {"role": "user", "content": "What\ntime?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [called("a"), called("b")]},
            back("a", "noon"),
            back("b", "one"),
            {"role": "assistant", "content": "", "reasoning_content": "Again.", "tool_calls": [called("c")]},
            back("c", ""),
            {"role": "assistant", "content": "No.\n\nMore.", "tool_calls": [called("d")]},
            back("d", "two"),
            {"role": "assistant", "content": "", "reasoning_content": "Hm\n\nhm."},
            {"role": "user", "content": "Well?"},
        ]);
        assert_eq!(found, Ok(expected));
        // Many templates want one system message, at the beginning.
        let found = read(json!([{"role": "developer", "content": "And kind."}, asked]));
        assert_eq!(
            found,
            Ok(json!([{"role": "system", "content": "Be brief.\n\nAnd kind."}, asked]))
        );
        let input = json!([asked, {"type": "reasoning", "summary": [], "encrypted_content": "x"}]);
        let input: Input = serde_json::from_value(input).unwrap();
        let messages = input.messages(Some(String::new())).unwrap();
        assert_eq!(serde_json::to_value(for_template(&messages).unwrap()).unwrap(), json!([asked]));
    }

    #[test]
    fn what_is_no_item_here_is_named() {
        for (item, problem) in [
            (json!({"type": "item_reference", "id": "msg_1"}), "item_reference"),
            (json!({"content": "a"}), "without role"),
            (json!({"role": "user"}), "without content"),
            (json!({"role": "tool", "content": "a"}), "function_call_output"),
            (json!({"type": "function_call", "call_id": "a"}), "without name"),
            (json!({"type": "function_call", "name": "a"}), "without call_id"),
            (json!({"type": "function_call_output", "call_id": "a"}), "without output"),
            (
                json!({"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}),
                "input_image",
            ),
            (json!({"role": "user", "content": [{"type": "input_text"}]}), "with a text"),
            (
                json!({"role": "assistant", "content": "a", "tool_calls": []}),
                "\"function_call\" in their place",
            ),
        ] {
            let refused = read(json!([item])).unwrap_err();
            assert!(refused.contains(problem), "{item}: {refused}");
        }
        assert!(read(json!([])).unwrap_err().contains("at least one item"));
        for (input, problem) in [
            (
                json!([{"role": "user", "content": "a"}, {"role": "human"}]),
                "item 1: unknown variant `human`",
            ),
            (json!([{"role": "user", "content": 5}]), "item 0: content is no string"),
            (json!(["a"]), "item 0: "),
            (json!(5), "expected a text or a list of items"),
        ] {
            let refused = serde_json::from_value::<Input>(input.clone()).unwrap_err().to_string();
            assert!(refused.contains(problem), "{input}: {refused}");
        }
    }
}
