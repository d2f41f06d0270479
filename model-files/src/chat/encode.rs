//! From a conversation to tokens, with what its messages say kept text.

use super::ChatTemplate;
use minijinja::context;
use minijinja::value::{Serde, Value, ValueKind};
use naive_decode::{Error, Result, Tokenizer};
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};

impl ChatTemplate {
    /// The tokens of a conversation; with `add_generation_prompt`, up to where the assistant is to
    /// speak. They are those of [`ChatTemplate::render`]'s text, but for one thing: special tokens
    /// are the template's own. One that a message spells out, such as `<|end|>`, stays text, so that
    /// nobody can end their turn and go on as somebody else.
    ///
    /// Roles are the caller's to check. Many templates write `<|role|>`, so a role that a stranger
    /// may choose is a special token that a stranger may choose.
    ///
    /// # Errors
    /// If the template refuses the conversation, cannot be run, or writes what the tokenizer has no
    /// tokens for.
    pub fn encode<M: Serialize>(
        &self,
        tokenizer: &Tokenizer,
        messages: &[M],
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>> {
        let ends = if add_generation_prompt { Ends::BeforeAnswer } else { Ends::AfterMessages };
        self.encode_with(tokenizer, messages, &Extras::default(), ends)
    }

    /// As [`ChatTemplate::encode`], with tools that the assistant may call and with values that the
    /// template asks for by name. All of them are text too.
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`]; a value by a name that the template's surroundings have taken,
    /// so that nobody can be somebody else's tokens or messages; and a last message to end in that
    /// the template does not write.
    pub fn encode_with<M: Serialize>(
        &self,
        tokenizer: &Tokenizer,
        messages: &[M],
        extras: &Extras,
        ends: Ends,
    ) -> Result<Vec<u32>> {
        if let Some(taken) = extras.values.keys().find(|name| TAKEN.contains(&name.as_str())) {
            let what = "name of a value for the chat template";
            let expected = format!("none of {}", TAKEN.join(", "));
            return Err(Error::invalid(what, taken, expected));
        }
        let mut written: Vec<Value> =
            messages.iter().map(|message| Value::from(Serde(message))).collect();
        if let (Ends::InLastMessage, Some(last), Some(message)) =
            (ends, written.last_mut(), messages.last())
        {
            *last = marked(message).map_err(|e| Error::json(&self.file, &e))?;
        }
        let said = context! {
            messages => written,
            tools => Value::from(Serde(&extras.tools)),
            ..Value::from(Serde(&extras.values))
        };
        let source = self.source(extras.tools.is_some());
        let write = |said: Value| self.write_up_to(source, said, ends);
        let mut found = Vec::new();
        texts(&said, &mut found);
        match tokenizer.disguise(found.iter().filter_map(Value::as_str))? {
            None => tokenizer.encode(&write(said)?),
            Some(disguise) => {
                let hide = |text: &str| disguise.hide(text);
                let hide_all = |text: &str| disguise.hide_all(text);
                let text = match disguise.is_needed() {
                    true => write(hidden(&said, &hide))?,
                    false => write(said.clone())?,
                };
                let without = write(hidden(&said, &hide_all))?;
                if tokenizer.puts_together(&text, &without, &disguise) {
                    tokenizer.encode_disguised(&without, &disguise)
                } else if disguise.is_needed() {
                    tokenizer.encode_disguised(&text, &disguise)
                } else {
                    tokenizer.encode(&text)
                }
            }
        }
    }

    fn write_up_to(&self, source: &str, said: Value, ends: Ends) -> Result<String> {
        let mut text = self.write(source, said, ends == Ends::BeforeAnswer)?;
        if ends == Ends::InLastMessage {
            let Some(at) = text.rfind(END.trim_end()) else {
                let problem = "chat template does not write the last message down, expected one to go on with";
                return Err(Error::file(&self.file, problem));
            };
            let is_trimmed = !text[at..].starts_with(END);
            text.truncate(at);
            if is_trimmed {
                // The message's own end would have been, too.
                text.truncate(text.trim_end().len());
            }
        }
        Ok(text)
    }
}

/// Where a conversation that is written down ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// After the last message, its turn's end included.
    AfterMessages,
    /// Where the assistant is to speak.
    BeforeAnswer,
    /// In the last message, after all that it says: its turn goes on. White space at its end stays where
    /// the template leaves it.
    InLastMessage,
}

/// Stands after what the last message says where the text is to end there. Its own end is white space,
/// so that it shows whether the template trims what messages say.
const END: &str = "\u{E000}end of the last message\u{E000} ";

/// A message that says [`END`] at its end.
fn marked(message: &impl Serialize) -> serde_json::Result<Value> {
    let mut message = serde_json::to_value(message)?;
    if let Some(serde_json::Value::String(said)) = message.get_mut("content") {
        *said += END;
    }
    Ok(Value::from(Serde(message)))
}

/// What a conversation may bring besides its messages.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Functions that the assistant may call, in OpenAI's form; templates ask whether there is none.
    pub tools: Option<Vec<serde_json::Value>>,
    /// Values that templates ask for by name: `enable_thinking`, for one.
    pub values: serde_json::Map<String, serde_json::Value>,
}

/// Names that templates know already, and those that Hugging Face's function for them has taken.
const TAKEN: [&str; 12] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "chat_template",
    "continue_final_message",
    "tokenize",
    "raise_exception",
    "strftime_now",
    "conversation",
];

/// Every text in `value`, names of fields included.
fn texts(value: &Value, found: &mut Vec<Value>) {
    match value.kind() {
        ValueKind::String => found.push(value.clone()),
        ValueKind::Seq | ValueKind::Iterable => each(value).for_each(|item| texts(&item, found)),
        ValueKind::Map => each(value).for_each(|key| {
            texts(&key, found);
            texts(&value.get_item(&key).unwrap_or_default(), found);
        }),
        _ => {}
    }
}

/// The items of a list, or the keys of a map.
fn each(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}

/// A template's variables, whose texts are in disguise.
fn hidden(said: &Value, disguise: &dyn Fn(&str) -> String) -> Value {
    Value::from(Serde(Hidden { value: said, disguise, is_outermost: true }))
}

/// A value whose texts are in disguise, to be serialised.
struct Hidden<'a> {
    value: &'a Value,
    disguise: &'a dyn Fn(&str) -> String,
    /// Whether its keys are the template's variables, which keep their names.
    is_outermost: bool,
}

impl<'a> Hidden<'a> {
    fn inner(value: &'a Value, disguise: &'a dyn Fn(&str) -> String) -> Self {
        Hidden { value, disguise, is_outermost: false }
    }
}

impl Serialize for Hidden<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Hidden { value, disguise, is_outermost } = *self;
        match (value.as_str(), value.kind()) {
            (Some(text), _) => serializer.serialize_str(&disguise(text)),
            (_, ValueKind::Seq | ValueKind::Iterable) => {
                let items: Vec<Value> = each(value).collect();
                serializer.collect_seq(items.iter().map(|value| Hidden::inner(value, disguise)))
            }
            (_, ValueKind::Map) => {
                let mut map = serializer.serialize_map(None)?;
                for key in each(value) {
                    let held = value.get_item(&key).map_err(S::Error::custom)?;
                    let held = Hidden::inner(&held, disguise);
                    match is_outermost {
                        true => map.serialize_entry(&key, &held)?,
                        false => map.serialize_entry(&Hidden::inner(&key, disguise), &held)?,
                    }
                }
                map.end()
            }
            _ => value.serialize(serializer),
        }
    }
}
