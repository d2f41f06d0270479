//! One answer in a conversation: text, and calls of functions.

use crate::api::ChatLogprobs;
use crate::api::answers::{CallDelta, ChatDelta, Delta};
use crate::api::tools::{Calling, ToolCall};
use crate::text::{CallFinder, Ending, Found, Piece, Reason, Stopper, Told, call};
use serde_json::Value;

/// An answer under way.
pub(super) struct Turn {
    kind: Kind,
    /// Whether at most one call is let through.
    one_call: bool,
    calls: usize,
}

/// What is looked for in it.
enum Kind {
    /// Nothing: there are no functions.
    Text,
    /// Calls among text.
    MayCall(CallFinder),
    /// One call and nothing else: the text so far, the names that there are, and whether one was named.
    MustCall { text: String, names: Vec<String>, is_named: bool },
}

/// What a piece of an answer comes to, or all of it.
#[derive(Default)]
pub(super) struct Turned {
    pub(super) content: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) tokens: Vec<Told>,
    pub(super) end: Option<End>,
}

/// How an answer ended.
pub(super) struct End {
    pub(super) ending: Ending,
    pub(super) reason: &'static str,
}

impl End {
    /// The string or token that the request named.
    pub(super) fn stop_reason(&self) -> Option<Value> {
        stop_reason(self.ending.stopper.as_ref())
    }
}

/// As it goes over the wire.
pub(crate) fn stop_reason(stopper: Option<&Stopper>) -> Option<Value> {
    stopper.map(|stopper| match stopper {
        Stopper::Text(text) => text.as_str().into(),
        Stopper::Token(token) => (*token).into(),
    })
}

impl Turn {
    pub(super) fn new(calling: &Calling, one_call: bool) -> Self {
        let names = |of: &mut dyn Iterator<Item = &String>| of.cloned().collect::<Vec<String>>();
        let kind = match (calling.tools.is_empty(), calling.demanded.is_empty()) {
            (true, _) => Kind::Text,
            (false, true) => {
                let names = names(&mut calling.tools.iter().map(|tool| &tool.function.name));
                Kind::MayCall(CallFinder::new(names))
            }
            (false, false) => Kind::MustCall {
                text: String::new(),
                names: names(&mut calling.demanded.iter().map(|function| &function.name)),
                is_named: calling.is_named,
            },
        };
        Turn { kind, one_call, calls: 0 }
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    pub(super) fn take(&mut self, piece: Piece) -> Turned {
        let (written, ending) = match piece {
            Piece::Prompt(_) => return Turned::default(),
            Piece::Text(written) => (written, None),
            Piece::End(ending) => (ending.last.clone(), Some(ending)),
        };
        let Found { text, mut calls } = self.find(&written.text, ending.is_some());
        if self.one_call {
            calls.truncate(1usize.saturating_sub(self.calls));
        }
        self.calls += calls.len();
        let is_named = matches!(self.kind, Kind::MustCall { is_named: true, .. });
        let end = ending.map(|ending| {
            let reason = match ending.reason {
                Reason::Length => "length",
                Reason::Stop if self.calls > 0 && !is_named => "tool_calls",
                Reason::Stop => "stop",
            };
            End { ending, reason }
        });
        Turned { content: text, calls, tokens: written.tokens, end }
    }

    fn find(&mut self, more: &str, is_last: bool) -> Found {
        match &mut self.kind {
            Kind::Text => Found { text: more.to_owned(), calls: Vec::new() },
            Kind::MayCall(finder) => {
                let mut found = finder.push(more);
                if is_last {
                    let last = finder.finish();
                    found.text += &last.text;
                    found.calls.extend(last.calls);
                }
                found
            }
            Kind::MustCall { text, names, .. } => {
                *text += more;
                if !is_last {
                    return Found::default();
                }
                match call(text, names) {
                    Some(call) => Found { text: String::new(), calls: vec![call] },
                    // Cut off before it was whole.
                    None => Found { text: std::mem::take(text), calls: Vec::new() },
                }
            }
        }
    }
}

impl Turned {
    /// The first event of an answer.
    pub(super) fn opening(index: usize) -> ChatDelta {
        let delta =
            Delta { role: Some("assistant"), content: Some(String::new()), tool_calls: Vec::new() };
        ChatDelta {
            index,
            delta,
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        }
    }

    /// Puts more behind this.
    pub(super) fn extend(&mut self, more: Turned) {
        self.content += &more.content;
        self.calls.extend(more.calls);
        self.tokens.extend(more.tokens);
        self.end = more.end.or(self.end.take());
    }

    /// As events: none if there is nothing to tell.
    pub(super) fn deltas(
        self,
        index: usize,
        calls_before: usize,
        logprobs: Option<ChatLogprobs>,
        token_ids: Option<Vec<u32>>,
    ) -> Vec<ChatDelta> {
        let tells_tokens = (logprobs.is_some() || token_ids.is_some()) && !self.tokens.is_empty();
        let mut deltas = Vec::new();
        if !self.content.is_empty() || !self.calls.is_empty() || tells_tokens {
            let call = |(at, call): (usize, ToolCall)| CallDelta {
                index: calls_before + at,
                id: call.id,
                kind: "function",
                function: call.function,
            };
            let delta = Delta {
                role: None,
                content: (!self.content.is_empty()).then_some(self.content),
                tool_calls: self.calls.into_iter().enumerate().map(call).collect(),
            };
            let (finish_reason, stop_reason) = (None, None);
            deltas.push(ChatDelta {
                index,
                delta,
                logprobs,
                finish_reason,
                stop_reason,
                token_ids,
            });
        }
        if let Some(end) = self.end {
            deltas.push(ChatDelta {
                index,
                delta: Delta::default(),
                logprobs: None,
                finish_reason: Some(end.reason),
                stop_reason: end.stop_reason(),
                token_ids: None,
            });
        }
        deltas
    }
}
