//! Tokens that are special because the settings say so, whatever `tokenizer.json` says of them.
//!
//! Hugging Face adds the tokens that a tokenizer_config.json names to those of the file, as special ones. A fine-tune may end its
//! turns in a token that its `tokenizer.json` has as text: then anybody could write it.

use naive_decode::{Error, Result, Tokenizer};
use serde_json::{Map, Value, json};

/// Fields that name one token, or several.
const FIELDS: [&str; 9] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
    "extra_special_tokens",
];

/// Tokens of a tokenizer that are special by its settings and not by its file.
///
/// # Errors
/// If the settings are no JSON object.
pub(super) fn lacking(tokenizer: &Tokenizer, file: &str, settings: &[u8]) -> Result<Vec<String>> {
    let settings: Map<String, Value> =
        serde_json::from_slice(settings).map_err(|e| Error::json(file, &e))?;
    let mut found = Vec::new();
    FIELDS
        .iter()
        .filter_map(|field| settings.get(*field))
        .for_each(|value| named(value, &mut found));
    let described = settings.get("added_tokens_decoder").and_then(Value::as_object);
    for token in described.into_iter().flat_map(Map::values) {
        if token.get("special") == Some(&Value::Bool(true)) {
            named(token, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found.retain(|token| tokenizer.token_id(token).is_some_and(|id| !tokenizer.is_silent(id)));
    Ok(found)
}

/// The texts of the tokens that a field names: one, one with particulars, or several by number or by name.
fn named(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(token) => found.push(token.clone()),
        Value::Array(tokens) => tokens.iter().for_each(|token| named(token, found)),
        Value::Object(token) => match token.get("content") {
            Some(content) => named(content, found),
            None => token.values().for_each(|token| named(token, found)),
        },
        _ => {}
    }
}

/// A `tokenizer.json` in which these tokens of `tokenizer` are special.
///
/// # Errors
/// If it is none.
pub(super) fn marked(
    tokenizer: &Tokenizer,
    file: &str,
    json: &[u8],
    tokens: &[String],
) -> Result<Vec<u8>> {
    let mut whole: Value = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
    let fields = whole.as_object_mut();
    let added = fields.map(|fields| fields.entry("added_tokens").or_insert_with(|| json!([])));
    let Some(added) = added.and_then(Value::as_array_mut) else {
        let problem = "added_tokens is no list, expected one";
        return Err(Error::file(file, problem));
    };
    for token in tokens {
        match added.iter_mut().find(|one| one["content"] == token.as_str()) {
            Some(one) => one["special"] = true.into(),
            None => added.push(json!({
                "id": tokenizer.token_id(token), "content": token, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true,
            })),
        }
    }
    serde_json::to_vec(&whole).map_err(|e| Error::json(file, &e))
}
