//! DeepSeek's variant of YaRN: the sharpening of scores is said by two more numbers.

use kv_cache::RopeScaling;
use naive_decode::{Config, Error, Result};
use serde_json::Value;

/// The largest factor on YaRN's sharpening that is believed. DeepSeek's are 0.707 and 1.
const MOST: f64 = 1000.0;

/// How a config's `rope_scaling` changes a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// Frequencies, and the factor on the rotary part of queries and keys.
    pub rope: RopeScaling,
    /// Factor on the scores.
    pub scores: f64,
}

impl Stretch {
    /// Reads `rope_scaling`. `config.head_dim` is the width that RoPE turns.
    ///
    /// YaRN sharpens scores by turning queries and keys with a factor on cosine and sine. Here only
    /// some of their dimensions are turned, so that would sharpen only part of the score. DeepSeek
    /// therefore moves the factor, in whole or part, into the scale of the scores: `mscale_all_dim`
    /// says how much. In what DeepSeek published, `mscale` equals it, and nothing is left on cosine
    /// and sine.
    ///
    /// # Errors
    /// A type or a number that makes no sense, by field.
    pub fn from_json(json: &Value, config: &Config) -> Result<Self> {
        let mut plain = json.clone();
        let mut take = |field: &str, default: f64| {
            let found = plain.as_object_mut().and_then(|fields| fields.remove(field));
            let Some(found) = found else { return Ok(default) };
            // With more, scores are no numbers.
            let number = found.as_f64().filter(|number| (0.0..=MOST).contains(number));
            let what = format!("rope_scaling.{field}");
            number.ok_or_else(|| Error::invalid(what, found, "a number from 0 to 1000"))
        };
        let (mscale, mscale_all_dim) = (take("mscale", 1.0)?, take("mscale_all_dim", 0.0)?);
        let mut rope = RopeScaling::from_json(&plain, config)?;
        let RopeScaling::Yarn { factor, attention_factor, .. } = &mut rope else {
            return Ok(Stretch { rope, scores: 1.0 });
        };
        let sharper = |mscale: f64| 0.1 * mscale * libm::log(*factor) + 1.0;
        let all = sharper(mscale_all_dim);
        attention_factor.get_or_insert(sharper(mscale) / all);
        // Once for the query and once for the key.
        Ok(Stretch { scores: all * all, rope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mla::MlaConfig;

    #[test]
    fn deepseeks_factor_is_on_the_scores_and_not_on_the_angles() {
        let config = MlaConfig::from_json(
            "config.json",
            include_bytes!("../../tests/configs/deepseek_v2_lite.json"),
        );
        let stretch = config.unwrap().stretch.unwrap();
        // 0.1 · 0.707 · ln 40 + 1 = 1.2608…, squared.
        assert!((stretch.scores - 1.589_64).abs() < 1e-4, "{}", stretch.scores);
        let RopeScaling::Yarn { factor, trained, attention_factor, .. } = stretch.rope else {
            panic!("{:?}", stretch.rope)
        };
        assert_eq!((factor, trained, attention_factor), (40.0, 4096, Some(1.0)));
    }

    #[test]
    fn without_them_it_is_plain_yarn_and_nonsense_is_refused() {
        let config = MlaConfig::from_json(
            "config.json",
            include_bytes!("../../tests/configs/deepseek_v2_lite.json"),
        );
        let config = config.unwrap().model;
        let read = |json: &str| Stretch::from_json(&serde_json::from_str(json).unwrap(), &config);
        let plain = read(r#"{"type": "yarn", "factor": 4}"#).unwrap();
        let RopeScaling::Yarn { attention_factor, .. } = plain.rope else { panic!("{plain:?}") };
        assert_eq!(plain.scores, 1.0);
        assert!((attention_factor.unwrap() - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
        let said = read(r#"{"type": "yarn", "factor": 4, "mscale": "x"}"#).unwrap_err().to_string();
        assert_eq!(said, "rope_scaling.mscale is \"x\", expected a number from 0 to 1000");
        let said = read(r#"{"type": "yarn", "factor": 4, "mscale_all_dim": 1001}"#);
        assert!(said.unwrap_err().to_string().starts_with("rope_scaling.mscale_all_dim is 1001"));
        assert!(read(r#"{"type": "dynamic", "factor": 4}"#).is_err());
    }
}
