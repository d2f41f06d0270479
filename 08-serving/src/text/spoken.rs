//! What an answer consists of: text and calls, in their order.

use crate::api::tools::{Called, ToolCall};

/// What an answer consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spoken {
    /// Text that is no call.
    Text(String),
    /// A call, or the beginning of one.
    Call(ToolCall),
    /// More of the arguments of the call before.
    More(String),
}

/// What was found, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found(pub Vec<Spoken>);

impl Found {
    /// Text and nothing else.
    pub fn of(text: &str) -> Self {
        let mut found = Found::default();
        found.write(text);
        found
    }

    /// Puts text behind what was found.
    pub fn write(&mut self, more: &str) {
        match self.0.last_mut() {
            _ if more.is_empty() => {}
            Some(Spoken::Text(text)) => *text += more,
            _ => self.0.push(Spoken::Text(more.to_owned())),
        }
    }

    /// Puts more arguments behind what was found.
    pub fn more(&mut self, more: &str) {
        match self.0.last_mut() {
            _ if more.is_empty() => {}
            Some(Spoken::Call(ToolCall { function: Called { arguments, .. }, .. })) => {
                *arguments += more
            }
            Some(Spoken::More(arguments)) => *arguments += more,
            _ => self.0.push(Spoken::More(more.to_owned())),
        }
    }

    /// Puts calls behind what was found.
    pub fn call(&mut self, calls: Vec<ToolCall>) {
        self.0.extend(calls.into_iter().map(Spoken::Call));
    }

    /// Puts more behind what was found.
    pub fn extend(&mut self, more: Found) {
        for spoken in more.0 {
            match spoken {
                Spoken::Text(text) => self.write(&text),
                Spoken::More(arguments) => self.more(&arguments),
                call @ Spoken::Call(_) => self.0.push(call),
            }
        }
    }

    /// All its text.
    pub fn text(&self) -> String {
        let text = |spoken: &Spoken| match spoken {
            Spoken::Text(text) => Some(text.clone()),
            Spoken::Call(_) | Spoken::More(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// All calls that begin in it.
    pub fn calls(&self) -> Vec<ToolCall> {
        let call = |spoken: &Spoken| match spoken {
            Spoken::Text(_) | Spoken::More(_) => None,
            Spoken::Call(call) => Some(call.clone()),
        };
        self.0.iter().filter_map(call).collect()
    }
}
