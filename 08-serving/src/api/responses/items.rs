//! What a response is asked about: items of a conversation, and the messages that say the same.

use crate::api::ApiError;
use crate::api::messages::{ChatMessage, Content, Role};
use crate::api::tools::{Arguments, CalledBefore, PastCall, ToolKind};
use serde::Deserialize;
use utoipa::ToSchema;

/// What the model is to answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text or a list of items")]
pub enum Input {
    /// What the user says.
    Text(String),
    /// The conversation so far.
    Items(Vec<Item>),
}

/// A part of a conversation. Which of its fields it has, its type says: `message` (or none) has `role` and `content`,
/// `function_call` has `call_id`, `name` and `arguments`, `function_call_output` has `call_id` and `output`, and `reasoning`
/// has `content`.
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
    /// What it is: a text that was given (`input_text`), answered (`output_text`), thought (`reasoning_text`), or said in place of
    /// an answer (`refusal`).
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
const TEXTS: [&str; 4] = ["input_text", "output_text", "text", "reasoning_text"];

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
        if let Some(text) = instructions {
            said.message(Role::System, text);
        }
        items.into_iter().try_for_each(|item| said.take(item))?;
        Ok(said.messages)
    }
}

/// Messages so far.
#[derive(Default)]
struct Said {
    messages: Vec<ChatMessage>,
    /// What was thought before what comes next.
    thoughts: Option<String>,
}

impl Said {
    fn take(&mut self, item: Item) -> Result<(), ApiError> {
        let kind = item.kind.as_deref().unwrap_or("message");
        let lacks = |what: &str| {
            let problem =
                format!("input has an item of type {kind:?} without {what}, which it needs");
            refused(problem)
        };
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
                let thoughts = item.content.map(ItemContent::text).transpose()?;
                self.thoughts = thoughts.filter(|thoughts| !thoughts.is_empty());
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
                self.call(call);
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
        let message = ChatMessage::new(role, Some(Content::Text(text)));
        let thoughts = if role == Role::Assistant { self.thoughts.take() } else { None };
        self.messages.push(ChatMessage { reasoning_content: thoughts, ..message });
    }

    /// What the assistant says and calls in one turn is one message.
    fn call(&mut self, call: PastCall) {
        let thoughts = self.thoughts.take();
        let goes_on = thoughts.is_none();
        match self.messages.last_mut().filter(|last| goes_on && last.role == Role::Assistant) {
            Some(last) => last.tool_calls.get_or_insert_default().push(call),
            None => self.messages.push(ChatMessage {
                reasoning_content: thoughts,
                tool_calls: Some(vec![call]),
                ..ChatMessage::new(Role::Assistant, None)
            }),
        }
    }
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
            {"role": "assistant", "content": "No."},
        ]);
        assert_eq!(found, Ok(expected));
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
        ] {
            let refused = read(json!([item])).unwrap_err();
            assert!(refused.contains(problem), "{item}: {refused}");
        }
        assert!(read(json!([])).unwrap_err().contains("at least one item"));
    }
}
