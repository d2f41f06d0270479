//! What a config's `rope_scaling` says.

use super::RopeScaling;
use naive_decode::{Config, Error, Result};
use serde_json::Value;

/// Fields that a `rope_scaling` of any type may have. `rope_theta` is there in newer configs, which
/// keep all of RoPE in one place, and `finetuned` says how the model came about.
const COMMON: [&str; 6] =
    ["rope_type", "type", "factor", "original_max_position_embeddings", "rope_theta", "finetuned"];

/// Fields that change nothing as long as they are what they are here, and what that is.
const PLAIN: [(&str, IsPlain, &str); 3] = [
    ("truncate", |value| *value == Value::Bool(true), "true: a ramp between whole pairs"),
    ("partial_rotary_factor", is_one, "1: all of a head is turned"),
    ("extrapolation_factor", is_one, "1: fast pairs are left alone"),
];

type IsPlain = fn(&Value) -> bool;

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

/// The fields of a `rope_scaling`. One that is `null` counts as left out.
struct Fields<'a>(&'a Value);

impl Fields<'_> {
    fn value(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    fn refusal(&self, field: &str, expected: &str) -> Error {
        let found = self.0.get(field).map_or("missing".into(), |found| found.to_string());
        Error::invalid(format!("rope_scaling.{field}"), found, expected)
    }

    /// A number for which `holds`, if it is there.
    fn number(
        &self,
        field: &str,
        holds: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<Option<f64>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let number = value.as_f64().filter(|&number| holds(number));
        number.map(Some).ok_or_else(|| self.refusal(field, expected))
    }

    /// The same for one that has to be there.
    fn needed(&self, field: &str, holds: impl Fn(f64) -> bool, expected: &str) -> Result<f64> {
        self.number(field, holds, expected)?.ok_or_else(|| self.refusal(field, expected))
    }

    /// # Errors
    /// Fields that nobody would read, so that the model would be another.
    fn check_known(&self, own: &[&str], config: &Config) -> Result<()> {
        for field in ["mscale", "mscale_all_dim"] {
            if self.value(field).is_some() {
                return Err(self.refusal(field, "none: DeepSeek's variant is not read"));
            }
        }
        for (field, is_plain, expected) in PLAIN {
            if self.value(field).is_some_and(|value| !is_plain(value)) {
                return Err(self.refusal(field, expected));
            }
        }
        let theta = config.rope_theta;
        self.number("rope_theta", |found| found == theta, &format!("{theta}, as in the config"))?;
        let is_known = |field: &str| {
            COMMON.contains(&field)
                || own.contains(&field)
                || PLAIN.iter().any(|(known, ..)| *known == field)
        };
        let mut fields = self.0.as_object().into_iter().flatten();
        match fields.find(|(field, value)| !value.is_null() && !is_known(field)) {
            None => Ok(()),
            Some((field, _)) => {
                let known = [&COMMON[..], own].concat().join(", ");
                Err(self.refusal(field, &format!("no such field, but some of: {known}")))
            }
        }
    }
}

impl RopeScaling {
    /// Reads a config's `rope_scaling`. Types: `linear`, `yarn`, `llama3`, and `ntk` for the fixed
    /// base.
    ///
    /// Two are refused because they change frequencies as the text grows, so that keys cached early
    /// and queries made late would be turned by different ones: `dynamic`, and `longrope`, which
    /// has one set of frequencies for short texts and another for long. (Families that have it choose
    /// one of them as they are loaded, and do without this.)
    ///
    /// # Errors
    /// Another type, a field that would be ignored, or numbers that make no sense.
    pub fn from_json(json: &Value, config: &Config) -> Result<Self> {
        let fields = Fields(json);
        let named = ["rope_type", "type"].into_iter().find(|key| fields.value(key).is_some());
        let key = named.unwrap_or("rope_type");
        let kind = fields.value(key).and_then(Value::as_str);
        let own: &[&str] = match kind {
            Some("linear" | "ntk") => &[],
            Some("yarn") => &["beta_fast", "beta_slow", "attention_factor", "attn_factor"],
            Some("llama3") => &["low_freq_factor", "high_freq_factor"],
            _ => {
                let (found, expected) = (kind.unwrap_or("missing"), "linear, ntk, yarn or llama3");
                return Err(Error::invalid(format!("rope_scaling.{key}"), found, expected));
            }
        };
        let at_least_1 = |number: f64| number.is_finite() && number >= 1.0;
        let factor = fields.needed("factor", at_least_1, "a number, at least 1")?;
        fields.check_known(own, config)?;
        let trained = "original_max_position_embeddings";
        let trained = fields.number(trained, at_least_1, "a number of tokens, at least 1")?;
        let trained = trained.map_or(config.trained_context, |trained| trained as usize);
        let positive = |number: f64| number.is_finite() && number > 0.0;
        Ok(match kind {
            Some("linear") => RopeScaling::Linear { factor, trained },
            Some("ntk") => RopeScaling::Ntk { factor },
            Some("yarn") => {
                let above_0 = "a number above 0";
                let beta_slow = fields.number("beta_slow", positive, above_0)?.unwrap_or(1.0);
                let beta_fast = fields.number("beta_fast", positive, above_0)?.unwrap_or(32.0);
                if beta_fast < beta_slow {
                    let expected = format!("at least beta_slow's {beta_slow}; 32 if not said");
                    return Err(fields.refusal("beta_fast", &expected));
                }
                let attention_factor = fields.number("attention_factor", positive, above_0)?;
                // vLLM's and llama.cpp's name for what the usual factor is times.
                let times = fields.number("attn_factor", positive, above_0)?;
                let attention_factor = match (attention_factor, times) {
                    (None, Some(times)) => Some(times * RopeScaling::sharpening(factor)),
                    (Some(_), Some(times)) if times != 1.0 => {
                        let expected = "1, or no attention_factor beside it";
                        return Err(fields.refusal("attn_factor", expected));
                    }
                    (said, _) => said,
                };
                RopeScaling::Yarn { factor, trained, beta_fast, beta_slow, attention_factor }
            }
            _ => {
                let low_turns = fields.needed("low_freq_factor", positive, "a number above 0")?;
                let above = |high: f64| positive(high) && high > low_turns;
                let expected = "a number above low_freq_factor";
                let high_turns = fields.needed("high_freq_factor", above, expected)?;
                RopeScaling::Llama3 { factor, trained, low_turns, high_turns }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_configs_say_and_refuses_what_would_corrupt_a_cache() {
        let read =
            |json: &str| RopeScaling::from_json(&serde_json::from_str(json).unwrap(), &config());
        assert_eq!(
            read(r#"{"rope_type": "yarn", "factor": 4.0}"#).unwrap(),
            RopeScaling::yarn(4.0, 512)
        );
        let linear = read(r#"{"type": "linear", "factor": 2}"#).unwrap();
        assert_eq!(linear, RopeScaling::Linear { factor: 2.0, trained: 512 });
        let before = r#"{"type": "linear", "factor": 2, "original_max_position_embeddings": 256}"#;
        assert_eq!(read(before).unwrap().context(&config()), 512);
        let said = read(r#"{"type": "dynamic", "factor": 2.0}"#).unwrap_err().to_string();
        assert_eq!(said, "rope_scaling.type is dynamic, expected linear, ntk, yarn or llama3");
        let said = read(r#"{"rope_type": "su", "type": "su"}"#).unwrap_err().to_string();
        assert!(said.starts_with("rope_scaling.rope_type is su, expected"), "{said}");
        let said = read(r#"{"factor": 2.0}"#).unwrap_err().to_string();
        assert!(said.starts_with("rope_scaling.rope_type is missing, expected"), "{said}");
        let said =
            read(r#"{"type": "yarn", "factor": 40, "mscale": 0.7}"#).unwrap_err().to_string();
        assert!(said.contains("mscale is 0.7"), "{said}");
        let said = read(r#"{"type": "yarn", "factor": 4, "original_max_position_embeddings": 0}"#);
        assert!(said.unwrap_err().to_string().contains("at least 1"));
        let said = read(r#"{"type": "yarn", "factor": "x"}"#).unwrap_err().to_string();
        assert!(said.contains("factor") && said.contains("\"x\""), "{said}");
        let llama3 = r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}"#;
        assert_eq!(
            read(llama3).unwrap(),
            RopeScaling::Llama3 { factor: 8.0, trained: 8192, low_turns: 1.0, high_turns: 4.0 }
        );
        for (from, to, word) in [
            ("\"low_freq_factor\": 1.0,", "", "low_freq_factor is missing"),
            ("4.0", "1.0", "high_freq_factor is 1"),
            ("8192", "0", "at least 1"),
        ] {
            let said = read(&llama3.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn what_would_be_ignored_or_makes_no_sense_is_refused_by_field() {
        let read = |more: Value| {
            let mut json = json!({ "rope_type": "yarn", "factor": 4.0 });
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            RopeScaling::from_json(&json, &config()).map_err(|error| error.to_string())
        };
        for (more, words) in [
            (json!({ "truncate": false }), ["truncate is false", "expected true"]),
            (json!({ "beta": 32 }), ["beta is 32", "beta_fast, beta_slow"]),
            (json!({ "low_freq_factor": 1.0 }), ["low_freq_factor is 1.0", "no such field"]),
            (json!({ "rope_theta": 1e6 }), ["rope_theta is 1000000.0", "10000, as in the config"]),
            (json!({ "partial_rotary_factor": 0.5 }), ["partial_rotary_factor is 0.5", "1: all"]),
            (json!({ "attn_factor": 0 }), ["attn_factor is 0", "above 0"]),
            (
                json!({ "attn_factor": 0.8, "attention_factor": 1.5 }),
                ["attn_factor is 0.8", "no attention_factor"],
            ),
            (json!({ "factor": "4" }), ["factor is \"4\"", "a number"]),
            (json!({ "beta_fast": "32" }), ["beta_fast is \"32\"", "a number"]),
            (json!({ "beta_slow": "1" }), ["beta_slow is \"1\"", "a number"]),
            (json!({ "attention_factor": "1" }), ["attention_factor is \"1\"", "a number"]),
            (
                json!({ "original_max_position_embeddings": "64" }),
                ["original_max_position_embeddings is \"64\"", "a number of tokens"],
            ),
            (json!({ "attention_factor": 0 }), ["attention_factor is 0", "above 0"]),
            (json!({ "attention_factor": -1.5 }), ["attention_factor is -1.5", "above 0"]),
            (json!({ "beta_slow": 0 }), ["beta_slow is 0", "above 0"]),
            (json!({ "beta_slow": -1 }), ["beta_slow is -1", "above 0"]),
            (json!({ "beta_slow": 33 }), ["beta_fast is missing", "33"]),
            (json!({ "beta_fast": 0.5 }), ["beta_fast is 0.5", "at least beta_slow's 1"]),
        ] {
            let said = read(more).unwrap_err();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }

    #[test]
    fn what_configs_on_the_hub_say_is_read() {
        let original = |length: u32| json!({ "original_max_position_embeddings": length });
        for (said, more) in [
            // Qwen2.5 and Qwen3.
            (json!({ "type": "yarn", "factor": 4.0 }), original(32_768)),
            (json!({ "rope_type": "yarn", "factor": 4.0 }), original(32_768)),
            // Newer ones, which have all of RoPE in one place, and null for what is left out.
            (
                json!({ "rope_type": "yarn", "factor": 4.0, "attention_factor": null,
                    "rope_theta": 10_000.0, "truncate": true, "partial_rotary_factor": 1.0 }),
                original(32_768),
            ),
            // Llama 2, stretched by YaRN's authors.
            (json!({ "type": "yarn", "factor": 16.0, "finetuned": true }), original(4_096)),
            // DeepSeek's, without what rung 03 reads.
            (
                json!({ "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1 }),
                original(4_096),
            ),
            // DeepSeek-R1-0528-Qwen3-8B, whose scores are as sharp as without YaRN.
            (
                json!({ "rope_type": "yarn", "factor": 4.0, "attn_factor": 0.8782488562869419 }),
                original(32_768),
            ),
            // Both names of the type, as some tools write them.
            (json!({ "type": "linear", "rope_type": "linear", "factor": 8.0 }), json!({})),
        ] {
            let mut json = said;
            json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            RopeScaling::from_json(&json, &config()).unwrap();
        }
    }

    #[test]
    fn what_sharpens_scores_may_be_said_as_a_part_of_the_usual() {
        let json = json!({ "rope_type": "yarn", "factor": 4.0, "attn_factor": 0.8782488562869419 });
        let RopeScaling::Yarn { attention_factor: Some(factor), .. } =
            RopeScaling::from_json(&json, &config()).unwrap()
        else {
            panic!("it is YaRN's, and says how much")
        };
        assert!((factor - 1.0).abs() < 1e-12, "{factor}");
    }
}
