//! From a conversation to tokens, with what its messages say kept text.

use super::ChatTemplate;
use minijinja::value::{Serde, Value, ValueKind};
use naive_decode::{Disguise, Result, Tokenizer};
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
        let messages = Value::from(Serde(messages));
        let mut said = Vec::new();
        texts(&messages, &mut said);
        match tokenizer.disguise(said.iter().filter_map(Value::as_str))? {
            None => tokenizer.encode(&self.write(messages, add_generation_prompt)?),
            Some(disguise) => {
                let hidden = Value::from(Serde(Hidden { value: &messages, disguise: &disguise }));
                let text = self.write(hidden, add_generation_prompt)?;
                tokenizer.encode_disguised(&text, &disguise)
            }
        }
    }
}

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
}

impl Serialize for Hidden<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Hidden { value, disguise } = *self;
        match (value.as_str(), value.kind()) {
            (Some(text), _) => serializer.serialize_str(&disguise.hide(text)),
            (_, ValueKind::Seq | ValueKind::Iterable) => {
                let items: Vec<Value> = each(value).collect();
                serializer.collect_seq(items.iter().map(|value| Hidden { value, disguise }))
            }
            (_, ValueKind::Map) => {
                let mut map = serializer.serialize_map(None)?;
                for key in each(value) {
                    let held = value.get_item(&key).map_err(S::Error::custom)?;
                    let [key, held] = [&key, &held].map(|value| Hidden { value, disguise });
                    map.serialize_entry(&key, &held)?;
                }
                map.end()
            }
            _ => value.serialize(serializer),
        }
    }
}
