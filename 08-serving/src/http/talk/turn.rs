//! One answer in a conversation: thoughts, text, and calls of functions.

use crate::api::ChatLogprobs;
use crate::api::answers::{CallDelta, ChatDelta, Delta, StopReason};
use crate::api::calling::Calling;
use crate::text::{
    CallFinder, Ending, Found, OneCall, Piece, Reason, Spoken, Stopper, Thinking, Thought,
    ThoughtFinder, Told, Written,
};

/// An answer under way.
pub(in crate::http) struct Turn {
    thoughts: ThoughtFinder,
    kind: Kind,
    /// Marks of calls and thoughts that are not for the client to see.
    hidden: Vec<&'static str>,
    /// Whether at most one call is let through.
    one_call: bool,
    calls: usize,
    /// Whether the last call was not.
    is_dropped: bool,
    /// Tokens that were thought, and those of which that is not known yet.
    thought: usize,
    undecided: usize,
}

/// What is looked for in it.
enum Kind {
    /// Nothing: there are no functions.
    Text,
    /// Calls among text.
    MayCall(CallFinder),
    /// One call and nothing else; whether its function was named.
    MustCall { call: OneCall, is_named: bool },
}

/// What a piece of an answer comes to, or all of it.
#[derive(Default)]
pub(in crate::http) struct Turned {
    pub(in crate::http) thoughts: String,
    /// Text and calls.
    pub(in crate::http) said: Found,
    pub(in crate::http) tokens: Vec<Told>,
    /// Tokens that are no part of either: see [`Written`].
    pub(in crate::http) hidden: Vec<u32>,
    /// Whether the tokens, those of the marks included, are thoughts; none while that is not known.
    pub(in crate::http) are_thoughts: Option<bool>,
    pub(in crate::http) end: Option<End>,
}

/// How an answer ended.
pub(in crate::http) struct End {
    pub(in crate::http) ending: Ending,
    pub(in crate::http) reason: &'static str,
}

impl End {
    /// The string or token that the request named.
    pub(in crate::http) fn stop_reason(&self) -> Option<StopReason> {
        stop_reason(self.ending.stopper.as_ref())
    }
}

/// As it goes over the wire.
pub(in crate::http) fn stop_reason(stopper: Option<&Stopper>) -> Option<StopReason> {
    stopper.map(|stopper| match stopper {
        Stopper::Text(text) => StopReason::Text(text.clone()),
        Stopper::Token(token) => StopReason::Token(*token),
    })
}

impl Turn {
    /// An answer to a prompt that leaves the model's thinking so. Calls are looked for in it, if there are functions;
    /// marks that are `hidden` are not for the client to see.
    pub(in crate::http) fn new(
        calling: &Calling,
        one_call: bool,
        thinking: Thinking,
        hidden: Vec<&'static str>,
    ) -> Self {
        // Where one is demanded it is one of these.
        let names = calling.callable.iter().map(|function| function.name.clone()).collect();
        let kind = match (calling.tools.is_empty(), calling.demanded.is_empty()) {
            (true, _) => Kind::Text,
            (false, true) => Kind::MayCall(CallFinder::new(names)),
            (false, false) => {
                Kind::MustCall { call: OneCall::new(names), is_named: calling.is_named }
            }
        };
        let thoughts = ThoughtFinder::new(thinking);
        let (calls, is_dropped, thought, undecided) = (0, false, 0, 0);
        Turn { thoughts, kind, hidden, one_call, calls, is_dropped, thought, undecided }
    }

    /// Calls so far.
    pub(in crate::http) fn calls(&self) -> usize {
        self.calls
    }

    /// Tokens that were thought: all before the first of what is said, if there are thoughts.
    pub(in crate::http) fn thought(&self) -> usize {
        self.thought
    }

    pub(in crate::http) fn take(&mut self, piece: Piece) -> Turned {
        let (written, ending) = match piece {
            Piece::Prompt(_) => return Turned::default(),
            Piece::Text(written) => (written, None),
            Piece::End(ending) => (ending.last.clone(), Some(ending)),
        };
        let before = self.thoughts.thinking();
        let Written { text, tokens, hidden, .. } = written;
        let Thought { mut thoughts, mut answer } = self.thoughts.push(&text);
        let are_thoughts = match (before, self.thoughts.thinking()) {
            (_, Thinking::UnderWay) | (Thinking::UnderWay, _) => Some(true),
            (_, Thinking::MayCome) => None,
            (_, Thinking::Over) => Some(!thoughts.is_empty()),
        };
        self.undecided += tokens.len();
        if let Some(are_thoughts) = are_thoughts {
            let decided = std::mem::take(&mut self.undecided);
            self.thought += if are_thoughts { decided } else { 0 };
        }
        if ending.is_some() {
            let last = self.thoughts.finish();
            thoughts += &last.thoughts;
            answer += &last.answer;
        }
        let Found(mut said) = self.find(&answer, ending.is_some());
        said.retain(|spoken| match spoken {
            Spoken::Text(_) => true,
            Spoken::More(_) => !self.is_dropped,
            Spoken::Call(_) => {
                self.is_dropped = self.one_call && self.calls > 0;
                self.calls += usize::from(!self.is_dropped);
                !self.is_dropped
            }
        });
        let is_named = matches!(self.kind, Kind::MustCall { is_named: true, .. });
        let end = ending.map(|ending| {
            let reason = match ending.reason {
                Reason::Length => "length",
                Reason::Stop if self.calls > 0 && !is_named => "tool_calls",
                Reason::Stop => "stop",
            };
            End { ending, reason }
        });
        let thoughts = self.shown(thoughts);
        let mut shown = Found::default();
        for spoken in said {
            match spoken {
                Spoken::Text(text) => shown.write(&self.shown(text)),
                Spoken::Call(call) => shown.call(vec![call]),
                Spoken::More(arguments) => shown.more(&arguments),
            }
        }
        Turned { thoughts, said: shown, tokens, hidden, are_thoughts, end }
    }

    /// What a client is shown of a text.
    fn shown(&self, text: String) -> String {
        self.hidden.iter().fold(text, |text, mark| text.replace(mark, ""))
    }

    fn find(&mut self, more: &str, is_last: bool) -> Found {
        match &mut self.kind {
            Kind::Text => Found::of(more),
            Kind::MayCall(finder) => {
                let mut found = finder.push(more);
                if is_last {
                    found.extend(finder.finish());
                }
                found
            }
            Kind::MustCall { call, .. } => call.push(more),
        }
    }
}

impl Turned {
    /// The first event of an answer.
    pub(in crate::http) fn opening(index: usize) -> ChatDelta {
        let delta =
            Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
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
    pub(in crate::http) fn extend(&mut self, more: Turned) {
        self.thoughts += &more.thoughts;
        self.said.extend(more.said);
        self.tokens.extend(more.tokens);
        self.hidden.extend(more.hidden);
        self.end = more.end.or(self.end.take());
    }

    /// As events: none if there is nothing to tell.
    pub(in crate::http) fn deltas(
        self,
        index: usize,
        calls_before: usize,
        logprobs: Option<ChatLogprobs>,
        token_ids: Option<Vec<u32>>,
    ) -> Vec<ChatDelta> {
        let tells_tokens = (logprobs.is_some() && !self.tokens.is_empty())
            || token_ids.as_ref().is_some_and(|tokens| !tokens.is_empty());
        let mut deltas = Vec::new();
        let content = self.said.text();
        let tool_calls = CallDelta::of(self.said, calls_before);
        let says = !self.thoughts.is_empty() || !content.is_empty() || !tool_calls.is_empty();
        if says || tells_tokens {
            let delta = Delta {
                role: None,
                content: (!content.is_empty()).then_some(content),
                reasoning_content: (!self.thoughts.is_empty()).then_some(self.thoughts),
                tool_calls,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Event, FinishReason, TokenEvent, Usage};
    use crate::http::dialect::Dialect;
    use crate::http::dialect::tests::tokenizer;
    use crate::text::{Answer, Style};
    use naive_decode::Tokenizer;
    use serde_json::json;

    /// What a client is told of an answer that is written in these tokens.
    fn told(tokenizer: &Tokenizer, said: &str) -> (String, usize) {
        let calling = json!([{"type": "function", "function": {"name": "now"}}]);
        let calling = Calling::new(serde_json::from_value(calling).unwrap(), None).unwrap();
        let marks = Dialect::of(None, tokenizer).marks(&calling);
        let hidden = marks.iter().map(|mark| mark.text).collect();
        let marks = marks.iter().map(|mark| mark.token).collect();
        let style = Style { marks, ..Style::default() };
        let mut answer = Answer::new(tokenizer, &[], &style, &[], &[]);
        let mut turn = Turn::new(&calling, false, Thinking::Over, hidden);
        let mut whole = Turned::default();
        let tokens = tokenizer.encode(said).unwrap();
        let token =
            |token| Event::Token(TokenEvent { token, logprob: None, rank: None, top: Vec::new() });
        let end = Event::Finished { reason: FinishReason::Stop, usage: Usage::default() };
        for event in tokens.into_iter().map(token).chain([end]) {
            if let Some(piece) = answer.take(event).unwrap() {
                whole.extend(turn.take(piece));
            }
        }
        let calls = whole.said.calls();
        let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
        assert_eq!(whole.end.unwrap().reason, reason);
        (whole.said.text(), calls.len())
    }

    #[test]
    fn calls_are_found_where_their_marks_are_special_tokens_too() {
        let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
        for special in [true, false] {
            let tokenizer = tokenizer(&["<tool_call>", "</tool_call>"], special);
            let told = |said: &str| told(&tokenizer, said);
            assert_eq!(told(&format!("Let me see. {call}")), ("Let me see. ".into(), 1));
            assert_eq!(told(&format!("\n{call}\n{call}\n")), (String::new(), 2));
            assert_eq!(told(&format!("{call}\nand more")), ("\nand more".into(), 1));
            // Special tokens are not for the client; what is between them is.
            for said in [
                "a <tool_call>b</tool_call> c",
                "a</tool_call> b",
                "{<tool_call>a}",
                "<tool_call>a",
            ] {
                let plain = said.replace("<tool_call>", "").replace("</tool_call>", "");
                assert_eq!(told(said), (if special { plain } else { said.into() }, 0));
            }
        }
    }
}
