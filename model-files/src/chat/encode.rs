//! From a conversation to tokens, with what its messages say kept text.

use super::ChatTemplate;
use minijinja::context;
use minijinja::value::{Serde, Value, ValueKind};
use naive_decode::{Disguise, Error, Result, Tokenizer};
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
        self.encode_with(tokenizer, messages, &Extras::default(), add_generation_prompt)
    }

    /// As [`ChatTemplate::encode`], with tools that the assistant may call and with values that the
    /// template asks for by name. All of them are text too.
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`]; and a value by a name that the template's surroundings have taken,
    /// so that nobody can be somebody else's tokens or messages.
    pub fn encode_with<M: Serialize>(
        &self,
        tokenizer: &Tokenizer,
        messages: &[M],
        extras: &Extras,
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>> {
        if let Some(taken) = extras.values.keys().find(|name| TAKEN.contains(&name.as_str())) {
            let what = "name of a value for the chat template";
            let expected = format!("none of {}", TAKEN.join(", "));
            return Err(Error::invalid(what, taken, expected));
        }
        let said = context! {
            messages => Value::from(Serde(messages)),
            tools => Value::from(Serde(&extras.tools)),
            ..Value::from(Serde(&extras.values))
        };
        let mut found = Vec::new();
        texts(&said, &mut found);
        match tokenizer.disguise(found.iter().filter_map(Value::as_str))? {
            None => tokenizer.encode(&self.write(said, add_generation_prompt)?),
            Some(disguise) => {
                let hidden = Hidden { value: &said, disguise: &disguise, is_outermost: true };
                let text = self.write(Value::from(Serde(hidden)), add_generation_prompt)?;
                tokenizer.encode_disguised(&text, &disguise)
            }
        }
    }
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

/// A value whose texts are in disguise, to be serialised.
struct Hidden<'a> {
    value: &'a Value,
    disguise: &'a Disguise,
    /// Whether its keys are the template's variables, which keep their names.
    is_outermost: bool,
}

impl<'a> Hidden<'a> {
    fn inner(value: &'a Value, disguise: &'a Disguise) -> Self {
        Hidden { value, disguise, is_outermost: false }
    }
}

impl Serialize for Hidden<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Hidden { value, disguise, is_outermost } = *self;
        match (value.as_str(), value.kind()) {
            (Some(text), _) => serializer.serialize_str(&disguise.hide(text)),
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
