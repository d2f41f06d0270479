//! What a message is asked about: a conversation in blocks, and the messages that say the same.

use crate::api::ApiError;
use crate::api::messages::{ChatMessage, Role};
use crate::api::responses::{Input, Item, ItemContent};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What somebody says.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct AnthropicMessage {
    /// Who speaks.
    pub role: Speaker,
    /// What is said.
    pub content: BlockContent,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// Who asks, and tells what functions gave back.
    User,
    /// Who answers.
    Assistant,
    /// Who sets the rules, as `system` does.
    System,
}

/// A text, or blocks.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "content is no string and no list of blocks with a type")]
pub enum BlockContent {
    /// A text.
    Text(String),
    /// Blocks.
    Blocks(Vec<Block>),
}

/// A part of what is said. Which of its fields it has, its type says: `text` has `text`, `thinking` has `thinking`, `tool_use` has
/// `id`, `name` and `input`, and `tool_result` has `tool_use_id` and perhaps `content`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct Block {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is said.
    #[serde(default)]
    pub text: Option<String>,
    /// What is thought.
    #[serde(default)]
    pub thinking: Option<String>,
    /// Which call.
    #[serde(default)]
    pub id: Option<String>,
    /// The function that was called.
    #[serde(default)]
    pub name: Option<String>,
    /// Its arguments.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    /// The call that this is of.
    #[serde(default)]
    pub tool_use_id: Option<String>,
    /// What it gave back.
    #[serde(default)]
    pub content: Option<BlockText>,
}

/// A text, or blocks of text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string, or a list of blocks with a type")]
pub enum BlockText {
    /// A text.
    Text(String),
    /// Blocks.
    Blocks(Vec<TextBlock>),
}

/// A block of text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct TextBlock {
    /// `"text"`
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(default)]
    pub text: Option<String>,
}

impl BlockContent {
    fn is_empty(&self) -> bool {
        match self {
            BlockContent::Text(text) => text.is_empty(),
            BlockContent::Blocks(blocks) => blocks.is_empty(),
        }
    }
}

fn refused(problem: String) -> ApiError {
    ApiError::parameter("messages", problem)
}

/// What a block is that cannot be read.
fn no_text(param: &str, kind: &str) -> ApiError {
    let problem = format!(
        "{param} has a block of type {kind:?}, expected \"text\" with a text: this model reads nothing else"
    );
    ApiError::parameter(param, problem)
}

impl BlockText {
    fn text(self, param: &str) -> Result<String, ApiError> {
        let blocks = match self {
            BlockText::Text(text) => return Ok(text),
            BlockText::Blocks(blocks) => blocks,
        };
        let text = |TextBlock { kind, text }| match text.filter(|_| kind == "text") {
            Some(text) => Ok(text),
            None => Err(no_text(param, &kind)),
        };
        // As in messages: what came apart is not run together.
        Ok(blocks.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

/// What a line begins with that Claude Code puts before its rules. It is another with every request, so that nothing of a
/// prompt would be known from the one before.
const BILLING: &str = "x-anthropic-billing-header:";

/// Rules without that line, which is for Anthropic alone.
fn without_billing(rules: String) -> String {
    match rules.starts_with(BILLING) {
        true => rules.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned()),
        false => rules,
    }
}

/// The conversation as messages, after rules if there are any, and whether an answer goes on with the last.
///
/// # Errors
/// 400: no messages, a block that is none here, or one that lacks what its type has.
pub(super) fn conversation(
    mut messages: Vec<AnthropicMessage>,
    system: Option<BlockText>,
) -> Result<(Vec<ChatMessage>, bool), ApiError> {
    // An answer that has not begun.
    messages.pop_if(|last| last.role == Speaker::Assistant && last.content.is_empty());
    if messages.is_empty() {
        return Err(ApiError::value("messages", "empty", "at least one message"));
    }
    let rules = system.map(|system| system.text("system")).transpose()?.map(without_billing);
    let goes_on = messages.last().is_some_and(|last| last.role == Speaker::Assistant);
    let mut items = Vec::new();
    for AnthropicMessage { role, content } in messages {
        if content.is_empty() {
            let problem =
                "messages have one that says nothing, expected a text, or at least one block";
            return Err(refused(problem.to_owned()));
        }
        let (role, mut begins_at) = (Role::from(role), items.len());
        let blocks = match content {
            BlockContent::Text(text) => {
                say(&mut items, role, text, &mut begins_at);
                continue;
            }
            BlockContent::Blocks(blocks) => blocks,
        };
        blocks.into_iter().try_for_each(|block| block.put(role, &mut items, &mut begins_at))?;
    }
    let is_begun = |item: &Item| {
        let says = matches!(&item.content, Some(ItemContent::Text(text)) if !text.is_empty());
        item.kind.is_none() && item.role == Some(Role::Assistant) && says
    };
    if goes_on && !items.last().is_some_and(is_begun) {
        let problem = "messages end with the assistant's and with no text, expected the user's, or a text that the answer goes on with";
        return Err(refused(problem.to_owned()));
    }
    Ok((Input::Items(items).messages(rules)?, goes_on))
}

/// Puts a text behind what was said: to what the same message has said before, which begins there, or to what the user said in the
/// message before, which then is the same.
fn say(items: &mut Vec<Item>, role: Role, text: String, begins_at: &mut usize) {
    let is_one_message = items.len() > *begins_at;
    let last = items.last_mut().filter(|last| last.kind.is_none() && last.role == Some(role));
    let last = last.filter(|_| is_one_message || role == Role::User);
    match last.map(|last| &mut last.content) {
        Some(Some(ItemContent::Text(so_far))) => {
            // As elsewhere: blocks are lines, and messages are paragraphs.
            *so_far += if is_one_message { "\n" } else { "\n\n" };
            *so_far += &text;
        }
        _ => {
            let content = Some(ItemContent::Text(text));
            items.push(Item { role: Some(role), content, ..Item::default() });
        }
    }
    *begins_at = (*begins_at).min(items.len() - 1);
}

impl Block {
    /// Puts it behind what was said, as [`say`] does.
    fn put(self, role: Role, items: &mut Vec<Item>, begins_at: &mut usize) -> Result<(), ApiError> {
        let kind = self.kind.as_str();
        let lacks = |what: &str| {
            let problem =
                format!("messages have a block of type {kind:?} without {what}, which it needs");
            refused(problem)
        };
        let of = |kind: &str| Item { kind: Some(kind.to_owned()), ..Item::default() };
        match (kind, role) {
            ("text", _) => {
                say(items, role, self.text.ok_or_else(|| lacks("text"))?, begins_at);
            }
            ("thinking", Role::Assistant) => {
                let thoughts = self.thinking.ok_or_else(|| lacks("thinking"))?;
                let content = Some(ItemContent::Text(thoughts));
                items.push(Item { content, ..of("reasoning") });
            }
            // Only Anthropic can read it.
            ("redacted_thinking", Role::Assistant) => {}
            ("tool_use", Role::Assistant) => items.push(Item {
                call_id: Some(self.id.ok_or_else(|| lacks("id"))?),
                name: Some(self.name.ok_or_else(|| lacks("name"))?),
                arguments: self.input.map(|input| input.to_string()),
                ..of("function_call")
            }),
            ("tool_result", Role::User) => {
                let output = self.content.map(|content| content.text("messages")).transpose()?;
                items.push(Item {
                    call_id: Some(self.tool_use_id.ok_or_else(|| lacks("tool_use_id"))?),
                    output: Some(ItemContent::Text(output.unwrap_or_default())),
                    ..of("function_call_output")
                });
            }
            ("thinking" | "redacted_thinking" | "tool_use", _) => {
                return Err(refused(format!(
                    "messages have a block of type {kind:?} that is not the assistant's, expected it in one of those"
                )));
            }
            ("tool_result", _) => {
                let problem = "messages have a block of type \"tool_result\" that is not the user's, expected it in one of those";
                return Err(refused(problem.to_owned()));
            }
            (kind, _) => return Err(no_text("messages", kind)),
        }
        Ok(())
    }
}

impl From<Speaker> for Role {
    fn from(speaker: Speaker) -> Self {
        match speaker {
            Speaker::User => Role::User,
            Speaker::Assistant => Role::Assistant,
            Speaker::System => Role::System,
        }
    }
}
