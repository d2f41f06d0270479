//! What a config's `rope_scaling` says.

use super::RopeScaling;
use naive_decode::{Config, Error, Result};
use serde_json::Value;

impl RopeScaling {
    /// Reads a config's `rope_scaling`. Types: `linear`, `yarn`, `llama3`, and `ntk` for the fixed
    /// base.
    ///
    /// Two are refused because they change frequencies as the text grows, so that keys cached early
    /// and queries made late would be turned by different ones: `dynamic`, and `longrope`, which
    /// has one set of frequencies for short texts and another for long.
    ///
    /// # Errors
    /// Another type, a field that would be ignored, or numbers that make no sense.
    pub fn from_json(json: &Value, config: &Config) -> Result<Self> {
        let number = |field: &str| json.get(field).and_then(Value::as_f64);
        let refuse = |field: &str, expected: &str| {
            let found = json.get(field).map_or("missing".into(), |found| found.to_string());
            Err(Error::invalid(format!("rope_scaling.{field}"), found, expected))
        };
        let kind = json.get("rope_type").or_else(|| json.get("type")).and_then(Value::as_str);
        if !matches!(kind, Some("linear" | "ntk" | "yarn" | "llama3")) {
            let (found, expected) = (kind.unwrap_or("missing"), "linear, ntk, yarn or llama3");
            return Err(Error::invalid("rope_scaling.rope_type", found, expected));
        }
        let factor = number("factor").unwrap_or(f64::NAN);
        if !(factor.is_finite() && factor >= 1.0) {
            return refuse("factor", "a number, at least 1");
        }
        for field in ["mscale", "mscale_all_dim"] {
            if json.get(field).is_some() {
                return refuse(field, "none: DeepSeek's variant is not read");
            }
        }
        let trained = match number("original_max_position_embeddings") {
            None => config.trained_context,
            Some(trained) if trained >= 1.0 => trained as usize,
            Some(_) => return refuse("original_max_position_embeddings", "at least 1"),
        };
        Ok(match kind {
            Some("linear") => RopeScaling::Linear { factor, trained },
            Some("ntk") => RopeScaling::Ntk { factor },
            Some("yarn") => RopeScaling::Yarn {
                factor,
                trained,
                beta_fast: number("beta_fast").unwrap_or(32.0),
                beta_slow: number("beta_slow").unwrap_or(1.0),
                attention_factor: number("attention_factor"),
            },
            _ => {
                let Some(low_turns) = number("low_freq_factor").filter(|low| *low > 0.0) else {
                    return refuse("low_freq_factor", "a number above 0");
                };
                let Some(high_turns) = number("high_freq_factor").filter(|h| *h > low_turns) else {
                    return refuse("high_freq_factor", "a number above low_freq_factor");
                };
                RopeScaling::Llama3 { factor, trained, low_turns, high_turns }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

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
        assert!(said.contains("dynamic") && said.contains("linear, ntk, yarn or llama3"), "{said}");
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
}
