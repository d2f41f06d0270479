//! `tokenizer.json`, doubted before the `tokenizers` crate reads it.
//!
//! That crate trusts some of what it reads: a damaged file could end the program, when it is read or
//! when the first text is encoded. [`doubted`] has what is looked at, and refuses it.

mod doubted;

use crate::chat::Written;
use crate::text_file::{TextFile, read};
use naive_decode::{Error, Result, Tokenizer};
use serde::Deserialize;
use std::path::Path;

/// Reads a directory's `tokenizer.json`, and what its settings (`tokenizer_config.json`) say of the tokens around a text.
///
/// # Errors
/// If a file cannot be read or is not what its name says, if its contents could end the program, or if a token around
/// texts is not in the vocabulary.
pub(crate) fn read_tokenizer(directory: &Path, settings: Option<&TextFile>) -> Result<Tokenizer> {
    let path = directory.join("tokenizer.json");
    let tokenizer = from_bytes(&path.display().to_string(), &read(&path)?)?;
    match settings {
        Some(settings) => surrounded(tokenizer, &settings.name, &settings.bytes),
        None => Ok(tokenizer),
    }
}

/// What is looked at of a tokenizer_config.json.
#[derive(Deserialize)]
struct Surroundings {
    tokenizer_class: Option<String>,
    // Where nothing is said it is wanted; `null` says that it is not.
    #[serde(default = "yes")]
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    bos_token: Option<Written>,
    eos_token: Option<Written>,
}

fn yes() -> Option<bool> {
    Some(true)
}

/// A tokenizer with the tokens around every text that its settings name.
///
/// Hugging Face's classes for Llama's tokenizer take those from the settings, whatever `tokenizer.json` says: that of
/// DeepSeek-R1-Distill-Qwen has no rule for a beginning, though the model wants one. Other classes take the file's rule.
fn surrounded(tokenizer: Tokenizer, file: &str, json: &[u8]) -> Result<Tokenizer> {
    let settings: Surroundings = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
    let class = settings.tokenizer_class.as_deref();
    if !matches!(class, Some("LlamaTokenizer" | "LlamaTokenizerFast")) {
        return Ok(tokenizer);
    }
    let id = |name: &str, wanted: Option<bool>, token: Option<Written>| {
        let Some(token) = token.filter(|_| wanted == Some(true)) else { return Ok(None) };
        let token = token.into_text();
        let missing = || format!("{name} is `{token}`, expected a token of tokenizer.json");
        tokenizer.token_id(&token).map(Some).ok_or_else(|| Error::file(file, missing()))
    };
    let beginning = id("bos_token", settings.add_bos_token, settings.bos_token)?;
    let end = id("eos_token", settings.add_eos_token, settings.eos_token)?;
    tokenizer.surrounded_by(beginning, end)
}

fn from_bytes(file: &str, json: &[u8]) -> Result<Tokenizer> {
    doubted::check(file, json)?;
    Tokenizer::from_bytes(file, json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;
    use serde_json::{Value, json};

    #[test]
    fn llamas_classes_take_what_stands_around_a_text_from_the_settings() {
        let tokenizer = || from_bytes("a/tokenizer.json", TARGET.tokenizer).unwrap();
        let plain = tokenizer().encode("Ada").unwrap();
        let tokens = |settings: Value| {
            let settings = settings.to_string();
            surrounded(tokenizer(), "a/tokenizer_config.json", settings.as_bytes())?
                .encode_with_special("Ada")
        };
        let [begins, ends] = ["<|user|>", "<|end|>"];
        let id = |token: &str| tokenizer().token_id(token).unwrap();
        let both = json!({"bos_token": {"content": begins}, "eos_token": ends});
        let class = |class: &str, rest: Value| {
            let mut settings = both.clone();
            settings["tokenizer_class"] = class.into();
            rest.as_object().unwrap().iter().for_each(|(key, value)| settings[key] = value.clone());
            settings
        };
        let own = tokenizer().encode_with_special("Ada").unwrap();
        assert_eq!(
            tokens(class("PreTrainedTokenizerFast", json!({"add_bos_token": true}))).unwrap(),
            own
        );
        let began = [vec![id(begins)], plain.clone()].concat();
        for name in ["LlamaTokenizer", "LlamaTokenizerFast"] {
            assert_eq!(tokens(class(name, json!({}))).unwrap(), began, "{name}: as usual");
        }
        let llama = |rest: Value| tokens(class("LlamaTokenizerFast", rest));
        assert_eq!(llama(json!({"add_bos_token": false})).unwrap(), plain);
        assert_eq!(llama(json!({"add_bos_token": null})).unwrap(), plain);
        assert_eq!(llama(json!({"bos_token": null})).unwrap(), plain);
        let ended = [began, vec![id(ends)]].concat();
        assert_eq!(llama(json!({"add_eos_token": true})).unwrap(), ended);
        let said = llama(json!({"bos_token": "<nobody>"})).unwrap_err().to_string();
        for words in ["a/tokenizer_config.json", "bos_token is `<nobody>`", "expected"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
