//! The shape of a Llama-family model, read from a Hugging Face `config.json`.

use crate::error::{Error, Result};
use crate::json::read_json;
use crate::roofline::Shape;
use serde::Deserialize;

/// Sizes and constants of one model.
///
/// Invariants, checked on reading: every size is positive, `heads` is a multiple of `kv_heads`,
/// `head_dim` is even (RoPE turns pairs).
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads per block.
    pub heads: usize,
    /// Key-value heads per block; `heads / kv_heads` query heads share each.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Added to the mean square before the root in RMSNorm.
    pub rms_norm_eps: f32,
    /// Base of RoPE's frequencies.
    pub rope_theta: f64,
    /// How to stretch RoPE, as the file says it; rung 02 reads it.
    pub rope_scaling: Option<serde_json::Value>,
    /// Tokens the model was trained to see at once.
    pub trained_context: usize,
    /// Whether the output head is the embedding table.
    pub tied_head: bool,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

/// `config.json` as it stands, before anything is checked.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    architectures: Vec<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    rms_norm_eps: f32,
    rope_theta: Option<f64>,
    rope_scaling: Option<serde_json::Value>,
    /// Where newer configs keep both of the above, and the next.
    rope_parameters: Option<serde_json::Value>,
    partial_rotary_factor: Option<f64>,
    max_position_embeddings: usize,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    hidden_act: Option<String>,
    eos_token_id: Option<OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a token or a list of tokens")]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl OneOrMany {
    fn into_ids(self) -> Vec<u32> {
        match self {
            OneOrMany::One(id) => vec![id],
            OneOrMany::Many(ids) => ids,
        }
    }
}

/// The one field of `generation_config.json` that is read here.
#[derive(Deserialize)]
struct Generation {
    eos_token_id: Option<OneOrMany>,
}

/// Whether parameters of RoPE are told for each kind of layer.
fn is_by_layer(parameters: &serde_json::Value) -> bool {
    parameters.as_object().is_some_and(|kinds| kinds.values().any(serde_json::Value::is_object))
}

impl Raw {
    /// RoPE's base and what stretches it, from either of the places where configs keep them.
    fn rope(&self) -> (f64, Option<serde_json::Value>) {
        let told = self.rope_parameters.as_ref().filter(|parameters| parameters.is_object());
        let told_theta = told.and_then(|parameters| parameters.get("rope_theta")?.as_f64());
        let scaling = self.rope_scaling.as_ref().or(told).filter(|scaling| {
            let kind = scaling.get("rope_type").or_else(|| scaling.get("type"));
            // Parameters of type "default" stretch nothing. Where configs keep both, a base alone is of that type.
            let is_plain = match kind {
                Some(kind) => kind == "default",
                None => self.rope_scaling.is_none() && !is_by_layer(scaling),
            };
            !scaling.is_null() && !is_plain
        });
        // The Llama configs that leave the base out were trained with this one.
        let theta = self.rope_theta.or(told_theta).unwrap_or(10_000.0);
        (theta, scaling.cloned())
    }

    /// How much of a head RoPE turns, if that is not all of it by either of the places where configs keep it.
    fn turned_part(&self) -> Option<serde_json::Value> {
        let newer = self.rope_parameters.as_ref().and_then(|it| it.get("partial_rotary_factor"));
        let told = [self.partial_rotary_factor.map(serde_json::Value::from), newer.cloned()];
        told.into_iter().flatten().find(|part| !part.is_null() && part.as_f64() != Some(1.0))
    }
}

impl Config {
    /// Far more layers than any model has. Whoever reads a config makes lists of as many entries.
    pub const MOST_LAYERS: usize = 1 << 16;

    /// Reads a `config.json`; `file` is the name that errors give it.
    ///
    /// # Errors
    /// Malformed JSON, an architecture or a feature that this crate does not have, or sizes that
    /// contradict each other; each names the field, what it says and what was expected.
    pub fn from_json(file: &str, json: &[u8]) -> Result<Self> {
        let raw: Raw = read_json(file, json)?;
        let refuse = |field: &str, found: String, expected: &str| {
            Err(Error::file(file, format!("{field} is {found}, expected {expected}")))
        };
        match raw.architectures.as_slice() {
            [] => return refuse("architectures", "empty".into(), "[\"LlamaForCausalLM\"]"),
            [one] if one == "LlamaForCausalLM" => {}
            other => {
                return refuse("architectures", format!("{other:?}"), "[\"LlamaForCausalLM\"]");
            }
        }
        if let Some(activation) = raw.hidden_act.as_deref().filter(|&a| a != "silu") {
            return refuse("hidden_act", activation.to_owned(), "silu");
        }
        if raw.attention_bias || raw.mlp_bias {
            return refuse("attention_bias or mlp_bias", "true".into(), "no biases");
        }
        if let Some(part) = raw.turned_part() {
            return refuse("partial_rotary_factor", part.to_string(), "1: all of a head is turned");
        }
        let (rope_theta, rope_scaling) = raw.rope();
        let heads = raw.num_attention_heads;
        let config = Config {
            hidden_size: raw.hidden_size,
            layers: raw.num_hidden_layers,
            heads,
            kv_heads: raw.num_key_value_heads.unwrap_or(heads),
            head_dim: raw.head_dim.unwrap_or(raw.hidden_size / heads.max(1)),
            intermediate_size: raw.intermediate_size,
            vocab_size: raw.vocab_size,
            rms_norm_eps: raw.rms_norm_eps,
            rope_theta,
            rope_scaling,
            trained_context: raw.max_position_embeddings,
            tied_head: raw.tie_word_embeddings,
            end_tokens: raw.eos_token_id.map(OneOrMany::into_ids).unwrap_or_default(),
        };
        for (field, size) in [
            ("hidden_size", config.hidden_size),
            ("num_hidden_layers", config.layers),
            ("num_attention_heads", config.heads),
            ("num_key_value_heads", config.kv_heads),
            ("head_dim", config.head_dim),
            ("intermediate_size", config.intermediate_size),
            ("vocab_size", config.vocab_size),
            ("max_position_embeddings", config.trained_context),
        ] {
            // Far above any model there is; a product of two cannot overflow 64 bits.
            if size == 0 || size > 1 << 24 {
                return refuse(field, size.to_string(), "between 1 and 16,777,216");
            }
        }
        if config.layers > Config::MOST_LAYERS {
            let expected = format!("at most {}", Config::MOST_LAYERS);
            return refuse("num_hidden_layers", config.layers.to_string(), &expected);
        }
        if !config.heads.is_multiple_of(config.kv_heads) {
            let expected = format!("a divisor of num_attention_heads, {}", config.heads);
            return refuse("num_key_value_heads", config.kv_heads.to_string(), &expected);
        }
        if !config.head_dim.is_multiple_of(2) {
            return refuse("head_dim", config.head_dim.to_string(), "an even number");
        }
        let positive = |v: f64| v.is_finite() && v > 0.0;
        if !positive(config.rope_theta) {
            return refuse("rope_theta", config.rope_theta.to_string(), "a positive number");
        }
        if !positive(config.rms_norm_eps as f64) {
            return refuse("rms_norm_eps", config.rms_norm_eps.to_string(), "a positive number");
        }
        Ok(config)
    }

    /// Adds the end tokens of a `generation_config.json`, which chat models name there: the token
    /// that ends a turn besides the one that ends a text.
    ///
    /// # Errors
    /// Malformed JSON.
    pub fn add_end_tokens(&mut self, file: &str, json: &[u8]) -> Result<()> {
        let raw: Generation = read_json(file, json)?;
        for id in raw.eos_token_id.map(OneOrMany::into_ids).unwrap_or_default() {
            if !self.end_tokens.contains(&id) {
                self.end_tokens.push(id);
            }
        }
        Ok(())
    }

    /// Query heads that share one key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

impl From<&Config> for Shape {
    fn from(config: &Config) -> Self {
        Shape {
            hidden_size: config.hidden_size,
            layers: config.layers,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            intermediate_size: config.intermediate_size,
            vocab_size: config.vocab_size,
            tied_head: config.tied_head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 96, "vocab_size": 300, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 128, "eos_token_id": 0}"#;

    #[test]
    fn reads_the_usual_fields_and_their_defaults() {
        let config = Config::from_json("config.json", SMALL.as_bytes()).unwrap();
        assert_eq!((config.head_dim, config.group()), (16, 2));
        assert_eq!(config.end_tokens, [0]);
        let mut chat = config.clone();
        chat.add_end_tokens("generation_config.json", br#"{"eos_token_id": [0, 4]}"#).unwrap();
        assert_eq!(chat.end_tokens, [0, 4]);
        assert_eq!(config.rope_theta, 10_000.0);
    }

    #[test]
    fn end_tokens_that_are_none_are_refused_by_name() {
        let mut config = Config::from_json("config.json", SMALL.as_bytes()).unwrap();
        let said = config.add_end_tokens("generation_config.json", br#"{"eos_token_id": -1}"#);
        let place = "at line 1 column 20";
        let words = "generation_config.json: eos_token_id: expected a token or a list of tokens";
        assert_eq!(said.unwrap_err().to_string(), format!("{words} {place}"));
    }

    #[test]
    fn rope_is_read_from_the_old_place_and_the_new() {
        let read = |json: &str| {
            let config = Config::from_json("config.json", json.as_bytes()).unwrap();
            (config.rope_theta, config.rope_scaling.map(|s| s["factor"].as_f64()))
        };
        let with =
            |fields: &str| SMALL.replace("\"hidden_size\"", &format!("{fields}, \"hidden_size\""));
        assert_eq!(read(SMALL), (10_000.0, None));
        assert_eq!(read(&with("\"rope_theta\": 5e5")), (5e5, None));
        let newer = r#""rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
            "partial_rotary_factor": 1}"#;
        assert_eq!(read(&with(newer)), (1e6, None));
        let newer = r#""rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}"#;
        assert_eq!(read(&with(newer)), (1e6, Some(Some(4.0))));
        assert_eq!(read(&with(r#""rope_parameters": {"rope_theta": 1e6}"#)), (1e6, None));
        let by_layer = r#""rope_parameters": {"full_attention": {"rope_theta": 1e6}}"#;
        assert_eq!(read(&with(by_layer)), (10_000.0, Some(None)), "it is refused later");
        let older = r#""rope_scaling": {"type": "linear", "factor": 2.0}"#;
        assert_eq!(read(&with(older)), (10_000.0, Some(Some(2.0))));
    }

    #[test]
    fn refusals_name_field_found_and_expected() {
        for (from, to, words) in [
            ("LlamaForCausalLM", "MambaForCausalLM", ["architectures", "Mamba", "Llama"]),
            ("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", ["value_heads", "3", "4"]),
            ("\"hidden_size\": 64", "\"hidden_size\": 0", ["hidden_size", "0", "between 1"]),
            ("_layers\": 2", "_layers\": 65537", ["num_hidden_layers", "65537", "at most 65536"]),
            ("\"vocab_size\": 300", "\"vocab_size\": \"x\"", [": vocab_size: ", "string", "line"]),
            (
                "\"eos_token_id\": 0",
                "\"eos_token_id\": \"x\"",
                [": eos_token_id: ", "expected a token or a list of tokens", "line"],
            ),
            (
                "\"vocab_size\"",
                "\"partial_rotary_factor\": 0.5, \"vocab_size\"",
                ["partial_rotary_factor", "0.5", "1"],
            ),
            (
                "\"vocab_size\"",
                "\"rope_parameters\": {\"partial_rotary_factor\": 0.75}, \"vocab_size\"",
                ["partial_rotary_factor", "0.75", "1"],
            ),
            ("1e-5", "-1.0", ["rms_norm_eps", "-1", "positive"]),
            ("\"eos_token_id\"", "\"head_dim\": 3, \"eos_token_id\"", ["head_dim", "3", "even"]),
        ] {
            let json = SMALL.replace(from, to);
            assert_ne!(json, SMALL);
            let said = Config::from_json("config.json", json.as_bytes()).unwrap_err().to_string();
            for word in words.iter().chain(&["config.json"]) {
                assert!(said.contains(word), "`{said}` lacks `{word}`");
            }
        }
    }
}
