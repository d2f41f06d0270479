//! Calls of functions, found in what a model says.
//!
//! A call is `{"name": …, "arguments": {…}}`, or `"parameters"` for Llama 3. Models write one, several, or a list of
//! them: between `<tool_call>` and `</tool_call>` (Hermes, Qwen), with text around it; after `[TOOL_CALLS]` (Mistral) or
//! `<|python_tag|>` (Llama 3), to the answer's end; or as an answer that is nothing else (Llama 3). A call between marks is told
//! while it comes; whether the others are calls shows at their end.

use super::{Found, overlap};
use crate::api::tools::ToolCall;
use json::Outside;
use open::Arguments;
pub use open::OneCall;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

mod json;
mod open;

/// What a call begins with, and what it ends with if that is not the answer's end.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    /// Before it.
    pub open: &'static str,
    /// After it.
    pub close: Option<&'static str>,
}

/// All ways to mark calls that there are.
pub const MARKED: [Marked; 3] = [
    Marked { open: "<tool_call>", close: Some("</tool_call>") },
    Marked { open: "[TOOL_CALLS]", close: None },
    Marked { open: "<|python_tag|>", close: None },
];

/// Tells calls from text while an answer comes.
#[derive(Debug, Clone)]
pub struct CallFinder {
    /// Names of the functions that there are.
    names: Vec<String>,
    held: String,
    /// Bytes of `held` that are done with. They go when more comes, all at once.
    done: usize,
    /// White space before the call that the answer is in. It is text if that is no call after all.
    gap: String,
    place: Place,
    /// In a call: what of `held` has been read for its end.
    outside: Outside,
    /// Its arguments, once they are told.
    arguments: Option<Arguments>,
}

/// Where the text is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the start: nothing but white space so far.
    Start,
    /// In an answer that begins as calls do: whether it is one shows at its end.
    Json,
    /// In text.
    Text,
    /// In a call, marked so.
    Call(&'static Marked),
    /// After a call: nothing but white space since.
    After,
}

impl CallFinder {
    /// Looks for calls of these functions.
    pub fn new(names: Vec<String>) -> Self {
        CallFinder {
            names,
            held: String::new(),
            done: 0,
            gap: String::new(),
            place: Place::Start,
            outside: Outside::default(),
            arguments: None,
        }
    }

    /// Takes more of the answer. Text that could be the beginning of a call is held back.
    pub fn push(&mut self, text: &str) -> Found {
        self.outside.forget(self.done);
        self.held.drain(..std::mem::take(&mut self.done));
        self.held += text;
        let mut found = Found::default();
        while self.step(&mut found) {}
        found
    }

    /// Ends the answer.
    pub fn finish(&mut self) -> Found {
        let mut found = Found::default();
        loop {
            let held = &self.held[self.done..];
            let said = match self.place {
                Place::Start | Place::Text | Place::After => None,
                Place::Json | Place::Call(Marked { close: None, .. }) => calls(held, &self.names),
                // The answer may have been cut in the middle of the mark.
                Place::Call(Marked { close: Some(close), .. }) => {
                    let inside = &held[..held.len() - overlap(held, close)];
                    match &mut self.arguments {
                        Some(arguments) => {
                            found.more(&inside[..arguments.take(inside)]);
                            Some(Vec::new())
                        }
                        None => calls(inside, &self.names),
                    }
                }
            };
            match (said, self.place) {
                (Some(calls), _) => found.call(calls),
                // No call after all: a client gets what the model said. Behind what looked like a mark there may be calls.
                (None, Place::Call(Marked { open, close })) => {
                    found.write(&std::mem::take(&mut self.gap));
                    found.write(open);
                    self.place = Place::Text;
                    if close.is_some() {
                        self.outside.give_up(self.done);
                    }
                    while self.step(&mut found) {}
                    continue;
                }
                (None, Place::After) if held.trim().is_empty() => {}
                (None, _) => found.write(held),
            }
            self.done = self.held.len();
            return found;
        }
    }

    /// Tells what has come of a call, up to `end`, once it is known to be one.
    fn tell(&mut self, found: &mut Found, end: usize) {
        let end = end.max(self.done);
        let come = &self.held[self.done..end];
        let arguments = match &mut self.arguments {
            Some(arguments) => arguments,
            none => match open::begun(come, &self.names) {
                Ok((call, at)) => {
                    found.call(vec![call]);
                    self.gap.clear();
                    self.done += at;
                    none.insert(Arguments::default())
                }
                Err(_) => return,
            },
        };
        let come = &self.held[self.done..end];
        let told = arguments.take(come);
        found.more(&come[..told]);
        self.done += told;
    }

    /// One step on; false if more text is needed.
    fn step(&mut self, found: &mut Found) -> bool {
        let held = &self.held[self.done..];
        match self.place {
            Place::Start | Place::After => {
                let said = held.trim_start();
                let before = held.len() - said.len();
                let may_become =
                    |marked: &Marked| said != marked.open && marked.open.starts_with(said);
                if MARKED.iter().any(may_become) {
                    return false;
                }
                self.place = if let Some(marked) = mark_of(said) {
                    // White space around calls is no text.
                    self.gap = held[..before].to_owned();
                    self.done += before + marked.open.len();
                    Place::Call(marked)
                } else if self.place == Place::After {
                    Place::Text
                } else {
                    match begins_call(said, &self.names) {
                        None => return false,
                        Some(true) => Place::Json,
                        Some(false) => Place::Text,
                    }
                };
                true
            }
            Place::Json => false,
            Place::Text => {
                // All marks begin so.
                let mut may_be = held.match_indices(['<', '[']);
                match may_be.find_map(|(at, _)| Some((at, mark_of(&held[at..])?))) {
                    Some((at, marked)) => {
                        found.write(&held[..at]);
                        self.done += at + marked.open.len();
                        self.place = Place::Call(marked);
                        true
                    }
                    None => {
                        let keep = MARKED.iter().map(|m| overlap(held, m.open)).max();
                        let sent = held.len() - keep.unwrap_or(0);
                        found.write(&held[..sent]);
                        self.done += sent;
                        false
                    }
                }
            }
            Place::Call(Marked { close: None, .. }) => false,
            Place::Call(Marked { open, close: Some(close) }) => {
                // A mark in a string is an argument's.
                let end = self.outside.find(&self.held, self.done, close);
                self.tell(found, end.unwrap_or(self.outside.read()));
                let Some(end) = end else { return false };
                let inside = &self.held[self.done..end];
                let gap = std::mem::take(&mut self.gap);
                if self.arguments.take().is_some() {
                    // There may be another call behind it, in the same marks.
                    let after = inside.trim_start().strip_prefix('}').unwrap_or_default();
                    let after = after.trim_start().trim_start_matches(';');
                    found.call(calls(after, &self.names).unwrap_or_default());
                    self.place = Place::After;
                    self.done = end + close.len();
                    return true;
                }
                self.place = match calls(inside, &self.names) {
                    Some(calls) => {
                        found.call(calls);
                        Place::After
                    }
                    None => {
                        found.write(&format!("{gap}{open}{inside}{close}"));
                        Place::Text
                    }
                };
                self.done = end + close.len();
                true
            }
        }
    }
}

/// The mark that a text begins with.
fn mark_of(text: &str) -> Option<&'static Marked> {
    MARKED.iter().find(|marked| text.starts_with(marked.open))
}

/// What a call's first key may be. Behind the others there may be more that is a call's.
const KEYS: [&str; 6] = ["name", "arguments", "parameters", "type", "id", "function"];

/// Whether an answer that begins so may be calls and nothing else; none if that does not show yet. JSON that is none does
/// not have to wait for its end.
fn begins_call(said: &str, names: &[String]) -> Option<bool> {
    let first = said.strip_prefix('[').unwrap_or(said);
    let found = sign(first, '{').and_then(|inside| word(inside, KEYS));
    let found = found.and_then(|(key, rest)| match key {
        "name" => word(sign(rest, ':')?, names.iter().map(String::as_str)).map(|_| ()),
        _ => Ok(()),
    });
    match found {
        Ok(()) => Some(true),
        Err(Other::NotYet) => None,
        Err(Other::No) => Some(false),
    }
}

/// Why what is looked for is not there.
enum Other {
    /// The text ends before it.
    NotYet,
    /// There is something else.
    No,
}

/// What follows a sign, behind white space.
fn sign(text: &str, sign: char) -> Result<&str, Other> {
    let text = text.trim_start();
    text.strip_prefix(sign).ok_or(if text.is_empty() { Other::NotYet } else { Other::No })
}

/// A string of JSON that is one of some words, and what follows it.
fn word<'t, 'w>(
    text: &'t str,
    words: impl IntoIterator<Item = &'w str>,
) -> Result<(&'w str, &'t str), Other> {
    let text = sign(text, '"')?;
    let mut words = words.into_iter();
    match text.split_once('"') {
        Some((said, rest)) => {
            words.find(|word| *word == said).map(|word| (word, rest)).ok_or(Other::No)
        }
        None if words.any(|word| word.starts_with(text)) => Err(Other::NotYet),
        None => Err(Other::No),
    }
}

/// The calls that a text is, if it is nothing else: of functions of these `names`, in a list or one after the other.
fn calls(text: &str, names: &[String]) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = values.next()?.ok()?;
        match value.get().starts_with('[') {
            true => {
                for value in serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()? {
                    calls.push(call(value, names)?);
                }
            }
            false => calls.push(call(value, names)?),
        }
        let after = rest[values.byte_offset()..].trim_start();
        // Llama 3 writes `;` between two.
        rest = after.strip_prefix(';').unwrap_or(after).trim_start();
    }
    (!calls.is_empty()).then_some(calls)
}

/// A call as a model writes it. Its arguments stay as they are written: numbers may be longer than any that are kept here.
#[derive(Deserialize)]
struct Said<'t> {
    name: String,
    #[serde(borrow, default, deserialize_with = "given")]
    arguments: Option<&'t RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    parameters: Option<&'t RawValue>,
}

/// A value that is there, also if it is null.
fn given<'t, D: Deserializer<'t>>(from: D) -> Result<Option<&'t RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

fn call(value: &RawValue, names: &[String]) -> Option<ToolCall> {
    if !is_object(value) {
        return None; // a list would do for what is read next
    }
    let Said { name, arguments, parameters } = serde_json::from_str(value.get()).ok()?;
    let says = |arguments: &&RawValue| arguments.get() != "null";
    let arguments = match arguments.filter(says).or(parameters).or(arguments)? {
        arguments if is_object(arguments) => arguments.get(),
        // A call of a function that has none.
        arguments if !says(&arguments) => "{}",
        _ => return None,
    };
    names.contains(&name).then(|| ToolCall::new(name, arguments))
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

#[cfg(test)]
mod tests;
