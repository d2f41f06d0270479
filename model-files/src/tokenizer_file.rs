//! `tokenizer.json`, doubted before the `tokenizers` crate reads it.
//!
//! That crate has a normalizer, `Precompiled`, that comes with a table of bytes, and trusts the table:
//! a damaged one ends the program, when it is read or when the first text is encoded. No family that
//! is read here has such a normalizer, so a file that has one is refused.

use crate::text_file::read;
use naive_decode::{Error, Result, Tokenizer};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// How the normalizer is called.
const PRECOMPILED: &str = "Precompiled";

/// What is looked at. A field that is there twice is an error, so what is looked at is what is read.
#[derive(Deserialize)]
struct Doubted {
    normalizer: Option<Value>,
}

/// Reads a `tokenizer.json`.
///
/// # Errors
/// If the file cannot be read, is no tokenizer.json, or has a normalizer that could end the program.
pub(crate) fn read_tokenizer(path: &Path) -> Result<Tokenizer> {
    from_bytes(&path.display().to_string(), &read(path)?)
}

fn from_bytes(file: &str, json: &[u8]) -> Result<Tokenizer> {
    let doubted: Doubted = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
    if doubted.normalizer.is_some_and(|normalizer| names_precompiled(&normalizer)) {
        let problem = format!(
            "normalizer is or contains `{PRECOMPILED}`, expected one without: no model that is read \
             here has it"
        );
        return Err(Error::file(file, problem));
    }
    Tokenizer::from_bytes(file, json)
}

/// Whether the name is anywhere in a normalizer: as a type, which may be a text or the name of a field,
/// or in a sequence at any depth.
fn names_precompiled(value: &Value) -> bool {
    match value {
        Value::String(text) => text == PRECOMPILED,
        Value::Array(values) => values.iter().any(names_precompiled),
        Value::Object(fields) => {
            fields.iter().any(|(field, value)| field == PRECOMPILED || names_precompiled(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;
    use serde_json::json;

    /// What is said of the target's tokenizer with this normalizer.
    fn read_with(normalizer: Value) -> Result<Tokenizer> {
        let mut tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
        tokenizer["normalizer"] = normalizer;
        from_bytes("a/tokenizer.json", tokenizer.to_string().as_bytes())
    }

    #[test]
    fn a_normalizer_with_a_table_of_its_own_is_refused_wherever_it_is() {
        let precompiled = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA" });
        let sequence = |inner: &Value| json!({ "type": "Sequence", "normalizers": [inner] });
        for normalizer in [
            precompiled.clone(),
            sequence(&precompiled),
            sequence(&sequence(&precompiled)),
            json!({ "type": { "Precompiled": null }, "precompiled_charsmap": "AAAA" }),
        ] {
            let said = read_with(normalizer).unwrap_err().to_string();
            for words in ["a/tokenizer.json", "contains `Precompiled`", "expected"] {
                assert!(said.contains(words), "{said}");
            }
        }
    }

    #[test]
    fn other_normalizers_are_read() {
        let prepend = json!({ "type": "Prepend", "prepend": "x" });
        for normalizer in
            [Value::Null, prepend.clone(), json!({ "type": "Sequence", "normalizers": [prepend] })]
        {
            read_with(normalizer).unwrap();
        }
    }

    #[test]
    fn a_normalizer_that_is_there_twice_is_refused() {
        let json = br#"{"normalizer": {"type": "Precompiled"}, "normalizer": null}"#;
        let said = from_bytes("a/tokenizer.json", json).unwrap_err().to_string();
        assert!(said.contains("a/tokenizer.json") && said.contains("duplicate field"), "{said}");
    }
}
