//! What a message says, block by block, and what happens to the blocks.

use crate::api::anthropic::{AnswerBlock, AnthropicEvent, BlockDelta};
use crate::text::{Found, Spoken};

/// The blocks so far, one after another.
#[derive(Default)]
pub(super) struct Content {
    blocks: Vec<Said>,
    /// Whether more of the last of them may come.
    is_open: bool,
}

/// A block, as far as it has come.
enum Said {
    Thoughts(String),
    Text(String),
    Call { id: String, name: String, arguments: String },
}

impl Said {
    fn block(&self) -> AnswerBlock {
        match self {
            Said::Thoughts(thoughts) => {
                AnswerBlock::Thinking { thinking: thoughts.clone(), signature: "" }
            }
            Said::Text(text) => AnswerBlock::Text { text: text.clone() },
            Said::Call { id, name, arguments } => AnswerBlock::ToolUse {
                id: id.clone(),
                name: name.clone(),
                input: serde_json::from_str(arguments).unwrap_or_default(),
            },
        }
    }
}

impl Content {
    pub(super) fn blocks(&self) -> Vec<AnswerBlock> {
        self.blocks.iter().map(Said::block).collect()
    }

    /// Takes a piece of the answer in.
    pub(super) fn take(
        &mut self,
        thoughts: String,
        said: Found,
        is_last: bool,
    ) -> Vec<AnthropicEvent> {
        let mut events = Vec::new();
        if !thoughts.is_empty() {
            if !self.goes_on(|last| matches!(last, Said::Thoughts(_))) {
                self.open(Said::Thoughts(String::new()), &mut events);
            }
            self.more(thoughts, &mut events);
        }
        for spoken in said.0 {
            match spoken {
                Spoken::Text(text) => {
                    if !self.goes_on(|last| matches!(last, Said::Text(_))) {
                        self.open(Said::Text(String::new()), &mut events);
                    }
                    self.more(text, &mut events);
                }
                Spoken::Call(call) => {
                    let (id, name) = (call.id, call.function.name);
                    let arguments = String::new();
                    self.open(Said::Call { id, name, arguments }, &mut events);
                    self.more(call.function.arguments, &mut events);
                }
                Spoken::More(arguments) => self.more(arguments, &mut events),
            }
        }
        if is_last {
            self.close(&mut events);
        }
        events
    }

    /// Whether the last block is one of these, and may go on.
    fn goes_on(&self, is_one: impl Fn(&Said) -> bool) -> bool {
        self.is_open && self.blocks.last().is_some_and(is_one)
    }

    /// Begins a block, after the end of the one before.
    fn open(&mut self, block: Said, events: &mut Vec<AnthropicEvent>) {
        self.close(events);
        let (index, content_block) = (self.blocks.len(), block.block());
        events.push(AnthropicEvent::ContentBlockStart { index, content_block });
        self.blocks.push(block);
        self.is_open = true;
    }

    /// More of the last block.
    fn more(&mut self, more: String, events: &mut Vec<AnthropicEvent>) {
        let index = self.blocks.len().saturating_sub(1);
        let Some(last) = self.blocks.last_mut().filter(|_| !more.is_empty()) else { return };
        let so_far = match last {
            Said::Thoughts(text) | Said::Text(text) | Said::Call { arguments: text, .. } => text,
        };
        *so_far += &more;
        let delta = match last {
            Said::Thoughts(_) => BlockDelta::ThinkingDelta { thinking: more },
            Said::Text(_) => BlockDelta::TextDelta { text: more },
            Said::Call { .. } => BlockDelta::InputJsonDelta { partial_json: more },
        };
        events.push(AnthropicEvent::ContentBlockDelta { index, delta });
    }

    /// Ends the last block, if it has not ended.
    fn close(&mut self, events: &mut Vec<AnthropicEvent>) {
        if std::mem::take(&mut self.is_open) {
            events.push(AnthropicEvent::ContentBlockStop { index: self.blocks.len() - 1 });
        }
    }
}
