//! `tokenizer.json`, doubted before the `tokenizers` crate reads it.
//!
//! That crate trusts some of what it reads: a damaged file could end the program, when it is read or
//! when the first text is encoded. [`doubted`] has what is looked at, and refuses it.

mod doubted;
mod special;

use crate::chat::Written;
use crate::text_file::{TextFile, read};
use naive_decode::{Error, Result, Tokenizer};
use serde::{Deserialize, Deserializer};
use std::path::Path;

/// Reads a directory's `tokenizer.json`, and what its settings (`tokenizer_config.json`) say of special tokens and of those around a
/// text.
///
/// # Errors
/// If a file cannot be read or is not what its name says, if its contents could end the program, or if a token around
/// texts is not in the vocabulary.
pub(crate) fn read_tokenizer(directory: &Path, settings: Option<&TextFile>) -> Result<Tokenizer> {
    let path = directory.join("tokenizer.json");
    let (file, json) = (path.display().to_string(), read(&path)?);
    match settings {
        Some(settings) => with_settings(&file, &json, &settings.name, &settings.bytes),
        None => from_bytes(&file, &json),
    }
}

fn with_settings(file: &str, json: &[u8], named: &str, settings: &[u8]) -> Result<Tokenizer> {
    let tokenizer = from_bytes(file, json)?;
    let lacking = special::lacking(&tokenizer, named, settings)?;
    let tokenizer = match lacking.is_empty() {
        true => tokenizer,
        false => from_bytes(file, &special::marked(&tokenizer, file, json, &lacking)?)?,
    };
    surrounded(tokenizer, named, settings)
}

/// What is looked at of a tokenizer_config.json.
#[derive(Deserialize)]
struct Surroundings {
    tokenizer_class: Option<String>,
    // Where nothing is said it is wanted; `null` says that it is not.
    #[serde(default = "yes")]
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    // None where nothing is said, and none in it where `null` is.
    #[serde(default, deserialize_with = "said")]
    bos_token: Option<Option<Written>>,
    #[serde(default, deserialize_with = "said")]
    eos_token: Option<Option<Written>>,
}

fn said<'d, D: Deserializer<'d>>(
    field: D,
) -> std::result::Result<Option<Option<Written>>, D::Error> {
    Option::deserialize(field).map(Some)
}

fn yes() -> Option<bool> {
    Some(true)
}

/// A tokenizer with the tokens around every text that its settings name.
///
/// Hugging Face's classes for Llama's tokenizer take those from the settings, whatever `tokenizer.json` says: that of
/// DeepSeek-R1-Distill-Qwen has no rule for a beginning, though the model wants one. Other classes take the file's rule. Where the
/// settings do not say what the tokens are, they are Llama's own.
fn surrounded(tokenizer: Tokenizer, file: &str, json: &[u8]) -> Result<Tokenizer> {
    let settings: Surroundings = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
    let class = settings.tokenizer_class.as_deref();
    if !matches!(class, Some("LlamaTokenizer" | "LlamaTokenizerFast")) {
        return Ok(tokenizer);
    }
    let id = |name: &str, wanted: Option<bool>, token: Option<Option<Written>>, usual: &str| {
        let token = match token {
            None => tokenizer.token_id(usual).map(|_| usual.to_owned()),
            Some(token) => token.map(Written::into_text),
        };
        let Some(token) = token.filter(|_| wanted == Some(true)) else { return Ok(None) };
        let missing = || format!("{name} is `{token}`, expected a token of tokenizer.json");
        tokenizer.token_id(&token).map(Some).ok_or_else(|| Error::file(file, missing()))
    };
    if settings.bos_token.is_none() && tokenizer.token_id("<s>").is_none() {
        return Ok(tokenizer); // none of Llama's
    }
    let beginning = id("bos_token", settings.add_bos_token, settings.bos_token, "<s>")?;
    let end = id("eos_token", settings.add_eos_token, settings.eos_token, "</s>")?;
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
    fn tokens_are_special_that_the_settings_say_are() {
        // The embedded vocabulary, in which the end of a turn is added as text, and "Ada" is no added token at all.
        let mut file: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
        let added = file["added_tokens"].as_array_mut().unwrap();
        added.iter_mut().find(|one| one["content"] == "<|end|>").unwrap()["special"] = false.into();
        let file = serde_json::to_vec(&file).unwrap();
        let plain = from_bytes("a/tokenizer.json", &file).unwrap();
        let ada = plain.decode(&plain.encode("Ada").unwrap()[..1]).unwrap();
        let [end, ada_id] = ["<|end|>", &ada].map(|token| plain.token_id(token).unwrap());
        assert!(!plain.is_silent(end) && !plain.is_silent(ada_id));
        let read = |settings: Value| {
            let settings = settings.to_string();
            with_settings("a/tokenizer.json", &file, "a/tokenizer_config.json", settings.as_bytes())
        };
        for settings in [
            json!({"eos_token": "<|end|>"}),
            json!({"pad_token": {"content": "<|end|>", "lstrip": false}}),
            json!({"additional_special_tokens": ["<|user|>", {"content": "<|end|>"}]}),
            json!({"extra_special_tokens": {"image_token": "<|end|>"}}),
            json!({"added_tokens_decoder": {"2": {"content": "<|end|>", "special": true}}}),
        ] {
            let tokenizer = read(settings.clone()).unwrap();
            assert!(tokenizer.is_silent(end) && !tokenizer.is_silent(ada_id), "{settings}");
            assert_eq!(tokenizer.encode("a<|end|>").unwrap(), plain.encode("a<|end|>").unwrap());
        }
        assert!(read(json!({"unk_token": ada})).unwrap().is_silent(ada_id));
        let others = json!({
            "eos_token": null, "bos_token": "<nobody>",
            "added_tokens_decoder": {"2": {"content": "<|end|>", "special": false}},
        });
        assert!(!read(others).unwrap().is_silent(end));
        let said = read(json!([])).unwrap_err().to_string();
        assert!(said.contains("a/tokenizer_config.json"), "{said}");
    }

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
        // What is not said is as Llama's own tokenizer has it, if this vocabulary does.
        let silent = |settings: Value| {
            let mut file: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
            let token = |id: u32, content: &str| {
                json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": true})
            };
            let added = file["added_tokens"].as_array_mut().unwrap();
            added.extend([token(2_048, "<s>"), token(2_049, "</s>")]);
            let file = serde_json::to_vec(&file).unwrap();
            let tokenizer = from_bytes("a/tokenizer.json", &file).unwrap();
            let settings = settings.to_string();
            surrounded(tokenizer, "a/tokenizer_config.json", settings.as_bytes())
                .unwrap()
                .encode_with_special("Ada")
                .unwrap()
        };
        let class = json!({"tokenizer_class": "LlamaTokenizer", "add_eos_token": true});
        assert_eq!(silent(class), [vec![2_048], plain.clone(), vec![2_049]].concat());
        assert_eq!(tokens(json!({"tokenizer_class": "LlamaTokenizer"})).unwrap(), own);
        let ended = [began, vec![id(ends)]].concat();
        assert_eq!(llama(json!({"add_eos_token": true})).unwrap(), ended);
        let said = llama(json!({"bos_token": "<nobody>"})).unwrap_err().to_string();
        for words in ["a/tokenizer_config.json", "bos_token is `<nobody>`", "expected"] {
            assert!(said.contains(words), "{said}");
        }
    }
}
