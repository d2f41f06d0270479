//! How the makers of a model want its tokens chosen.

use crate::gguf::Metadata;
use naive_decode::{Error, Result};
use serde::Deserialize;
use std::fmt;

/// Sampling parameters that a model's files name, for whoever is not told others: from a `generation_config.json`, or a
/// GGUF file's `general.sampling`. Not checked yet: whoever takes them has checks of his own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct SamplingDefaults {
    /// What scores are divided by.
    pub temperature: Option<f32>,
    /// How many of the likeliest tokens stay.
    pub top_k: Option<i64>,
    /// The probability that the tokens that stay must reach.
    pub top_p: Option<f32>,
    /// The fraction of the likeliest token's probability below which tokens go.
    pub min_p: Option<f32>,
    /// What scores of tokens so far are divided by.
    pub repetition_penalty: Option<f32>,
}

impl SamplingDefaults {
    /// Those of a `generation_config.json`; `file` is the name that errors give it.
    ///
    /// # Errors
    /// Malformed JSON, or a value that is no number.
    pub fn from_json(file: &str, json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).map_err(|problem| Error::json(file, &problem))
    }

    /// Those of a GGUF file, under the names that llama.cpp gives them.
    ///
    /// # Errors
    /// A value that is no number.
    pub(crate) fn from_gguf(metadata: Metadata) -> Result<Self> {
        let number = |key: &str| metadata.float(&format!("general.sampling.{key}"));
        let float = |key: &str| Ok(number(key)?.map(|float| float as f32));
        Ok(SamplingDefaults {
            temperature: float("temp")?,
            // Below 1 where all tokens are to stay, so not only whole numbers from 0 on.
            top_k: number("top_k")?.map(|k| k as i64),
            top_p: float("top_p")?,
            min_p: float("min_p")?,
            repetition_penalty: float("penalty_repeat")?,
        })
    }
}

/// What there is, `temperature=0.6 top_p=0.9`; nothing if nothing is said.
impl fmt::Display for SamplingDefaults {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { temperature, top_k, top_p, min_p, repetition_penalty } = self;
        let floats = [
            ("temperature", temperature),
            ("top_p", top_p),
            ("min_p", min_p),
            ("repetition_penalty", repetition_penalty),
        ];
        let floats =
            floats.into_iter().filter_map(|(name, value)| Some((name, (*value)?.to_string())));
        let all = floats.chain(top_k.map(|k| ("top_k", k.to_string())));
        let all: Vec<String> = all.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&all.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_taken_and_nothing_else() {
        let json = br#"{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null, "do_sample": true}"#;
        let found = SamplingDefaults::from_json("generation_config.json", json).unwrap();
        let (temperature, top_k, top_p) = (Some(0.6), Some(20), Some(0.95));
        let expected = SamplingDefaults { temperature, top_k, top_p, ..Default::default() };
        assert_eq!(found, expected);
        assert_eq!(found.to_string(), "temperature=0.6 top_p=0.95 top_k=20");
        let none = SamplingDefaults::from_json("generation_config.json", b"{}").unwrap();
        assert_eq!((none, none.to_string()), (SamplingDefaults::default(), String::new()));
        let wrong = SamplingDefaults::from_json("generation_config.json", br#"{"top_p": "all"}"#);
        let said = wrong.unwrap_err().to_string();
        assert!(said.contains("generation_config.json") && said.contains("all"), "{said}");
    }
}
