//! What in a `tokenizer.json` the `tokenizers` crate trusts, and what would end the program if it were not so.
//!
//! - A normalizer `Precompiled` comes with a table of bytes. No family that is read here has one.
//! - A pre-tokenizer `FixedLength` may have the length zero. No family has one either.
//! - The merges of a BPE are put together in a buffer as long as the longest token, and without the prefix of the right one.
//! - A template takes the text and special tokens from where it says that they are, and the file may not have them there.
//! - A decoder `Strip` counts down from a token's end, also from that of an empty one; `BPEDecoder` from the last token's place.

use naive_decode::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{DecoderWrapper, PostProcessorWrapper};

/// What is looked at. A field that is there twice is an error, so what is looked at is what is read. The crate knows
/// several ways of writing some parts: those it reads itself, and what came of them is looked at.
#[derive(Deserialize)]
struct Doubted {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    model: Option<Value>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
}

/// Checks that reading a tokenizer.json and using what it holds cannot end the program.
///
/// # Errors
/// If it is no JSON, or something that is trusted is not as it has to be.
pub(super) fn check(file: &str, json: &[u8]) -> Result<()> {
    let doubted: Doubted = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
    for (part, value, name) in [
        ("normalizer", &doubted.normalizer, "Precompiled"),
        ("pre_tokenizer", &doubted.pre_tokenizer, "FixedLength"),
    ] {
        if value.as_ref().is_some_and(|value| names(value, name)) {
            let problem = format!(
                "{part} is or contains `{name}`, expected one without: no model that is read here has it"
            );
            return Err(Error::file(file, problem));
        }
    }
    if let Some(model) = &doubted.model {
        check_merges(file, model)?;
    }
    if let Some(processor) = &doubted.post_processor {
        check_templates(file, processor)?;
    }
    doubted.decoder.as_ref().map_or(Ok(()), |decoder| check_decoder(file, decoder))
}

/// Whether the name is anywhere in a value: as a type, which may be a text or the name of a field,
/// or in a sequence at any depth.
fn names(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text == name,
        Value::Array(values) => values.iter().any(|value| names(value, name)),
        Value::Object(fields) => {
            fields.iter().any(|(field, value)| field == name || names(value, name))
        }
        _ => false,
    }
}

/// That every merge is of two tokens, which together, without the prefix of the second, are a third.
fn check_merges(file: &str, model: &Value) -> Result<()> {
    // A model without the one or the other is no BPE, or is refused.
    let (Some(Value::Array(merges)), Some(Value::Object(vocabulary))) =
        (model.get("merges"), model.get("vocab"))
    else {
        return Ok(());
    };
    let prefix = model.get("continuing_subword_prefix").and_then(Value::as_str).unwrap_or("");
    let mut whole = String::new();
    for (at, merge) in merges.iter().enumerate() {
        let pair = match merge {
            // The first line of the file that merges once were in.
            Value::String(line) if line.starts_with("#version") => continue,
            Value::String(line) => line.split_once(' '),
            Value::Array(pair) => match &pair[..] {
                [Value::String(left), Value::String(right)] => Some((&left[..], &right[..])),
                _ => None,
            },
            _ => None,
        };
        let is_known = pair.is_some_and(|(left, right)| {
            let Some(rest) = right.strip_prefix(prefix) else { return false };
            whole.clear();
            whole.push_str(left);
            whole.push_str(rest);
            [left, right, &whole].iter().all(|token| vocabulary.contains_key(*token))
        });
        if !is_known {
            let begins = match prefix {
                "" => String::new(),
                prefix => format!(", the second with `{prefix}` before it"),
            };
            let problem = format!(
                "model.merges[{at}] is {merge}, expected two tokens which together are a third{begins}"
            );
            return Err(Error::file(file, problem));
        }
    }
    Ok(())
}

/// That there is at most one template, and that it has all that it names.
fn check_templates(file: &str, processor: &PostProcessorWrapper) -> Result<()> {
    let templates = templates(processor);
    let wrong = |problem: String| Err(Error::file(file, format!("post_processor {problem}")));
    let [template] = templates[..] else {
        return match templates.len() {
            0 => Ok(()),
            // What the first made of one text are several, and the second would look for a template for so many.
            many => wrong(format!("has {many} templates, expected at most one")),
        };
    };
    // The pieces are private. They are written in one way only, however they were read.
    let pieces = serde_json::to_value(&template.single).map_err(|e| Error::json(file, &e))?;
    for piece in pieces.as_array().into_iter().flatten() {
        if piece["Sequence"]["id"] == "B" {
            return wrong("has a second text (`B`) in `single`, expected none but `A`".into());
        }
        let special = piece["SpecialToken"]["id"].as_str();
        let special = special.filter(|id| !template.get_special_tokens().0.contains_key(*id));
        if let Some(id) = special {
            return wrong(format!("has `{id}` in `single`, expected one of its `special_tokens`"));
        }
    }
    Ok(())
}

/// All templates of a processor, in their order.
fn templates(processor: &PostProcessorWrapper) -> Vec<&TemplateProcessing> {
    match processor {
        PostProcessorWrapper::Template(template) => vec![template],
        PostProcessorWrapper::Sequence(parts) => {
            parts.as_ref().iter().flat_map(templates).collect()
        }
        _ => Vec::new(),
    }
}

/// That no part of a decoder counts down from nothing.
fn check_decoder(file: &str, decoder: &DecoderWrapper) -> Result<()> {
    match decoder {
        DecoderWrapper::Sequence(parts) => {
            parts.get_decoders().iter().try_for_each(|part| check_decoder(file, part))
        }
        DecoderWrapper::Strip(strip) if strip.stop > 0 => {
            let problem = format!(
                "decoder `Strip` has stop {}, expected 0: no model that is read here has tokens cut at their ends",
                strip.stop
            );
            Err(Error::file(file, problem))
        }
        DecoderWrapper::BPE(_) => {
            let problem = "decoder is or contains `BPEDecoder`, expected one without: no model that is read here has it";
            Err(Error::file(file, problem))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;
    use serde_json::json;

    /// What is said of the target's tokenizer after an edit.
    fn edited(edit: impl FnOnce(&mut Value)) -> Result<()> {
        let mut tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
        edit(&mut tokenizer);
        check("a/tokenizer.json", tokenizer.to_string().as_bytes())
    }

    fn assert_refused(words: &[&str], edit: impl FnOnce(&mut Value)) {
        let said = edited(edit).expect_err(&format!("{words:?} expected")).to_string();
        for word in words.iter().chain(&["a/tokenizer.json", "expected"]) {
            assert!(said.contains(word), "`{said}` lacks `{word}`");
        }
    }

    #[test]
    fn parts_with_a_table_or_a_length_of_their_own_are_refused_wherever_they_are() {
        let precompiled = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA" });
        let sequence = |inner: &Value| json!({ "type": "Sequence", "normalizers": [inner] });
        for normalizer in [
            precompiled.clone(),
            sequence(&precompiled),
            sequence(&sequence(&precompiled)),
            json!({ "type": { "Precompiled": null }, "precompiled_charsmap": "AAAA" }),
        ] {
            assert_refused(&["normalizer", "contains `Precompiled`"], |t| {
                t["normalizer"] = normalizer;
            });
        }
        let fixed = json!({ "type": "FixedLength", "length": 0 });
        assert_refused(&["pre_tokenizer", "contains `FixedLength`"], |t| {
            t["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": [fixed] });
        });
    }

    #[test]
    fn other_normalizers_are_read() {
        let prepend = json!({ "type": "Prepend", "prepend": "x" });
        for normalizer in
            [Value::Null, prepend.clone(), json!({ "type": "Sequence", "normalizers": [prepend] })]
        {
            edited(|t| t["normalizer"] = normalizer).unwrap();
        }
    }

    #[test]
    fn a_normalizer_that_is_there_twice_is_refused() {
        let json = br#"{"normalizer": {"type": "Precompiled"}, "normalizer": null}"#;
        let said = check("a/tokenizer.json", json).unwrap_err().to_string();
        assert!(said.contains("a/tokenizer.json") && said.contains("duplicate field"), "{said}");
    }

    /// A BPE of five tokens with these merges.
    fn bpe(prefix: Value, merges: Value) -> impl FnOnce(&mut Value) {
        move |t| {
            let vocab = json!({ "a": 0, "b": 1, "ab": 2, "##b": 3, "é": 4 });
            t["model"] = json!({
                "type": "BPE", "vocab": vocab, "merges": merges, "continuing_subword_prefix": prefix,
            });
        }
    }

    #[test]
    fn merges_are_of_tokens_that_together_are_one() {
        for merges in [json!(["a b"]), json!([["a", "b"]]), json!(["#version: 0.2", "a b"])] {
            for prefix in [Value::Null, json!("")] {
                edited(bpe(prefix, merges.clone())).unwrap();
            }
        }
        edited(bpe(json!("##"), json!([["a", "##b"]]))).unwrap();
        for (prefix, merge) in [
            // Together longer than any token.
            (json!(null), json!("ab ab")),
            (json!(null), json!(["##b", "##b"])),
            (json!(""), json!(["b", "a"])),
            (json!(null), json!(["a", "c"])),
            (json!(null), json!("ab")),
            (json!(null), json!(["a", "b", "ab"])),
            // Shorter than the prefix, and cut within a character.
            (json!("##"), json!(["a", "b"])),
            (json!("#"), json!(["a", "é"])),
        ] {
            assert_refused(
                &["model.merges[0]", &merge.to_string(), "two tokens"],
                bpe(prefix, json!([merge])),
            );
        }
    }

    #[test]
    fn a_template_has_what_it_names() {
        let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
        let special = |id: &str| json!({ "SpecialToken": { "id": id, "type_id": 0 } });
        let template = |single: Value| {
            let begin = json!({ "id": "<s>", "ids": [1], "tokens": ["<s>"] });
            json!({
                "type": "TemplateProcessing", "single": single, "pair": [text("A"), text("B")],
                "special_tokens": { "<s>": begin },
            })
        };
        let sequence = |parts: &[Value]| json!({ "type": "Sequence", "processors": parts });
        let good = template(json!([special("<s>"), text("A")]));
        for processor in
            [Value::Null, good.clone(), sequence(&[sequence(std::slice::from_ref(&good))])]
        {
            edited(|t| t["post_processor"] = processor).unwrap();
        }
        let nobody = template(json!([special("<nobody>"), text("A")]));
        // The crate reads a list as well as fields with names.
        let listed = template(json!([{ "SpecialToken": ["<nobody>", 0] }]));
        for (processor, words) in [
            (nobody.clone(), ["`<nobody>` in `single`", "`special_tokens`"]),
            (sequence(&[nobody]), ["`<nobody>` in `single`", "`special_tokens`"]),
            (listed, ["`<nobody>` in `single`", "`special_tokens`"]),
            (template(json!([text("A"), text("B")])), ["second text (`B`)", "none but `A`"]),
            (sequence(&[good.clone(), good]), ["2 templates", "at most one"]),
        ] {
            assert_refused(&words, |t| t["post_processor"] = processor);
        }
    }

    #[test]
    fn a_decoder_does_not_count_down_from_nothing() {
        let strip =
            |stop: u64| json!({ "type": "Strip", "content": "!", "start": 1, "stop": stop });
        let sequence = |part: Value| json!({ "type": "Sequence", "decoders": [part] });
        edited(|t| t["decoder"] = sequence(strip(0))).unwrap();
        for decoder in [strip(2), sequence(strip(2)), json!(["!", 1, 2])] {
            assert_refused(&["decoder `Strip`", "stop 2"], |t| t["decoder"] = decoder);
        }
        assert_refused(&["decoder", "`BPEDecoder`"], |t| {
            t["decoder"] = json!({ "type": "BPEDecoder", "suffix": "</w>" });
        });
    }
}
