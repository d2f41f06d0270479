//! What a response says, item by item, and what happens to the items.

use crate::api::responses::{OutputItem, Part, Status, What};
use crate::api::tools::{Called, ToolCall};
use crate::api::{TokenLogprob, fresh_id};
use crate::http::talk::Turned;
use crate::text::Spoken;

/// The items so far.
#[derive(Default)]
pub(super) struct Output {
    items: Vec<OutputItem>,
    /// Whether more of the last of them may come.
    is_open: bool,
    /// Log-probabilities of tokens whose text has not come yet.
    waiting: Vec<TokenLogprob>,
}

/// What has happened: its name, and what it says.
type Happened = (&'static str, What);

/// Which text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thoughts,
    Said,
}

impl Output {
    pub(super) fn items(&self) -> &[OutputItem] {
        &self.items
    }

    /// Nothing more comes: what is under way stays as it is.
    pub(super) fn break_off(&mut self) {
        if let Some(item) = self.items.last_mut().filter(|_| self.is_open) {
            *item.status_mut() = Status::Incomplete;
        }
    }

    /// Takes a piece of the answer in.
    pub(super) fn take(
        &mut self,
        turned: Turned,
        logprobs: Option<Vec<TokenLogprob>>,
    ) -> Vec<Happened> {
        let Turned { thoughts, said, are_thoughts, end, .. } = turned;
        let mut happened = Vec::new();
        self.waiting.extend(logprobs.into_iter().flatten());
        if are_thoughts == Some(true) {
            // Those of thoughts are not told.
            self.waiting.clear();
        }
        if !thoughts.is_empty() {
            self.write(Kind::Thoughts, thoughts, None, &mut happened);
        }
        for spoken in said.0 {
            match spoken {
                Spoken::Text(text) => {
                    let logprobs = std::mem::take(&mut self.waiting);
                    self.write(Kind::Said, text, Some(logprobs), &mut happened);
                }
                // Nor are those of calls.
                Spoken::Call(call) => {
                    self.waiting.clear();
                    self.close(Status::Completed, &mut happened);
                    self.call(call, &mut happened);
                }
                Spoken::More(arguments) => {
                    self.waiting.clear();
                    self.call_on(arguments, &mut happened);
                }
            }
        }
        if let Some(end) = end {
            if self.items.is_empty() {
                // Whoever says nothing has said so.
                self.open(Kind::Said, &mut happened);
            }
            let is_cut = end.reason == "length";
            let status = if is_cut { Status::Incomplete } else { Status::Completed };
            self.close(status, &mut happened);
        }
        happened
    }

    /// More of a text, which begins with this unless it is under way.
    fn write(
        &mut self,
        kind: Kind,
        delta: String,
        logprobs: Option<Vec<TokenLogprob>>,
        happened: &mut Vec<Happened>,
    ) {
        let goes_on = match self.items.last() {
            Some(OutputItem::Reasoning { .. }) => kind == Kind::Thoughts,
            Some(OutputItem::Message { .. }) => kind == Kind::Said,
            _ => false,
        };
        if !(goes_on && self.is_open) {
            self.close(Status::Completed, happened);
            self.open(kind, happened);
        }
        self.more(kind, delta, logprobs, happened);
    }

    /// More of the text that is under way.
    fn more(
        &mut self,
        kind: Kind,
        delta: String,
        logprobs: Option<Vec<TokenLogprob>>,
        happened: &mut Vec<Happened>,
    ) {
        let (output_index, item_id) = self.last();
        match self.part() {
            Some(Part::OutputText { text, logprobs: all, .. }) => {
                *text += &delta;
                all.extend(logprobs.iter().flatten().cloned());
            }
            Some(Part::ReasoningText { text }) => *text += &delta,
            None => {}
        }
        let name = match kind {
            Kind::Thoughts => "response.reasoning_text.delta",
            Kind::Said => "response.output_text.delta",
        };
        let content_index = Some(0);
        let delta = What::Delta { item_id, output_index, content_index, delta, logprobs };
        happened.push((name, delta));
    }

    /// Begins an item of text.
    fn open(&mut self, kind: Kind, happened: &mut Vec<Happened>) {
        let (status, content) = (Status::InProgress, Vec::new());
        let (item, part) = match kind {
            Kind::Thoughts => (
                OutputItem::Reasoning { id: fresh_id("rs_"), summary: [], content, status },
                Part::ReasoningText { text: String::new() },
            ),
            Kind::Said => (
                OutputItem::Message { id: fresh_id("msg_"), role: "assistant", content, status },
                Part::OutputText { text: String::new(), annotations: [], logprobs: Vec::new() },
            ),
        };
        self.add(item, happened);
        let (output_index, item_id) = self.last();
        if let Some(OutputItem::Reasoning { content, .. } | OutputItem::Message { content, .. }) =
            self.items.last_mut()
        {
            content.push(part.clone());
        }
        let begun = What::Part { item_id, output_index, content_index: 0, part };
        happened.push(("response.content_part.added", begun));
        self.is_open = true;
    }

    /// Ends the last item, if it has not ended.
    fn close(&mut self, status: Status, happened: &mut Vec<Happened>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        if !self.waiting.is_empty() && matches!(self.part(), Some(Part::OutputText { .. })) {
            // Tokens without any text of their own.
            let logprobs = std::mem::take(&mut self.waiting);
            self.more(Kind::Said, String::new(), Some(logprobs), happened);
        }
        let (output_index, item_id) = self.last();
        if let Some(part) = self.part() {
            let (name, text, logprobs) = match part {
                Part::OutputText { text, logprobs, .. } => {
                    ("response.output_text.done", text.clone(), Some(logprobs.clone()))
                }
                Part::ReasoningText { text } => {
                    ("response.reasoning_text.done", text.clone(), None)
                }
            };
            let part = part.clone();
            let (id, content_index) = (item_id.clone(), 0);
            let all = What::Text { item_id: id, output_index, content_index, text, logprobs };
            happened.push((name, all));
            let ended = What::Part { item_id, output_index, content_index, part };
            happened.push(("response.content_part.done", ended));
        } else if let Some(OutputItem::FunctionCall { name, arguments, .. }) = self.items.last() {
            let (name, arguments) = (name.clone(), arguments.clone());
            let all = What::Arguments { item_id, output_index, name, arguments };
            happened.push(("response.function_call_arguments.done", all));
        }
        self.done(status, happened);
    }

    /// Begins a call.
    fn call(&mut self, call: ToolCall, happened: &mut Vec<Happened>) {
        let Called { name, arguments } = call.function;
        let item = OutputItem::FunctionCall {
            id: fresh_id("fc_"),
            call_id: call.id,
            name,
            arguments: String::new(),
            status: Status::InProgress,
        };
        self.add(item, happened);
        self.is_open = true;
        self.call_on(arguments, happened);
    }

    /// More of the arguments of the call that is under way.
    fn call_on(&mut self, delta: String, happened: &mut Vec<Happened>) {
        let Some(OutputItem::FunctionCall { arguments, .. }) = self.items.last_mut() else {
            return;
        };
        if delta.is_empty() {
            return;
        }
        *arguments += &delta;
        let (output_index, item_id) = self.last();
        let (content_index, logprobs) = (None, None);
        let more = What::Delta { item_id, output_index, content_index, delta, logprobs };
        happened.push(("response.function_call_arguments.delta", more));
    }

    fn add(&mut self, item: OutputItem, happened: &mut Vec<Happened>) {
        self.items.push(item.clone());
        let output_index = self.items.len() - 1;
        happened.push(("response.output_item.added", What::Item { output_index, item }));
    }

    fn done(&mut self, status: Status, happened: &mut Vec<Happened>) {
        let output_index = self.items.len().saturating_sub(1);
        if let Some(item) = self.items.last_mut() {
            *item.status_mut() = status;
            let item = item.clone();
            happened.push(("response.output_item.done", What::Item { output_index, item }));
        }
    }

    /// The last item: its place, and its name.
    fn last(&self) -> (usize, String) {
        let id = self.items.last().map(|item| item.id().to_owned());
        (self.items.len().saturating_sub(1), id.unwrap_or_default())
    }

    /// The text of the last item.
    fn part(&mut self) -> Option<&mut Part> {
        match self.items.last_mut()? {
            OutputItem::Reasoning { content, .. } | OutputItem::Message { content, .. } => {
                content.last_mut()
            }
            OutputItem::FunctionCall { .. } => None,
        }
    }
}
