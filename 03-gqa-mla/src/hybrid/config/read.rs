//! The same from `config.json`, in Hugging Face's form.

use super::{HybridConfig, is_believed, refusal, refuse_length, refuse_window};
use naive_decode::{Config, Result, read_json};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const ARCHITECTURES: &str =
    "[\"Qwen3ForCausalLM\"], [\"MistralForCausalLM\"] or [\"HybridForCausalLM\"]";

/// What `config.json` says beyond Llama's, before anything is checked.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    architectures: Vec<String>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    kv_shared_with: Option<Vec<Option<usize>>>,
}

impl HybridConfig {
    /// Reads a `config.json` in Hugging Face's form; `file` is the name that errors give it.
    ///
    /// * `Qwen3ForCausalLM`: QK norm. Windows where `layer_types` says `sliding_attention` or,
    ///   without that list, in every layer from `max_window_layers` on if `use_sliding_window` is
    ///   set.
    /// * `MistralForCausalLM`: no QK norm, `sliding_window` in every layer.
    /// * `HybridForCausalLM`: as Qwen3, and `kv_shared_with` lists for each layer the one whose
    ///   keys and values it reads, `null` for its own. Hugging Face has no such model.
    ///
    /// # Errors
    /// Malformed JSON, an architecture that is none of these, whatever [`Config::from_json`]
    /// refuses, or windows and sharing that contradict the invariants; each names the field, what
    /// it says and what was expected.
    pub fn from_json(file: &str, json: &[u8]) -> Result<Self> {
        let mut fields: Map<String, Value> = read_json(file, json)?;
        let raw: Raw = read_json(file, json)?;
        let known = ["Qwen3ForCausalLM", "MistralForCausalLM", "HybridForCausalLM"];
        let architecture = match raw.architectures.as_slice() {
            [one] if known.contains(&one.as_str()) => one.as_str(),
            [] => return Err(refusal(file, "architectures", "empty", ARCHITECTURES)),
            other => {
                let found = format!("{other:?}");
                return Err(refusal(file, "architectures", &found, ARCHITECTURES));
            }
        };
        // All else is Llama's.
        let stated = fields.contains_key("sliding_window");
        fields.insert("architectures".into(), json!(["LlamaForCausalLM"]));
        let base = Config::from_json(file, Value::Object(fields).to_string().as_bytes())?;
        let windows = match architecture {
            "MistralForCausalLM" if stated => vec![raw.sliding_window; base.layers],
            "MistralForCausalLM" => {
                let expected = "a number of tokens, or null for no window";
                return Err(refusal(file, "sliding_window", "missing", expected));
            }
            _ => raw.windows(file, base.layers)?,
        };
        if raw.kv_shared_with.is_some() && architecture != "HybridForCausalLM" {
            let expected = "absent, or architectures [\"HybridForCausalLM\"]";
            return Err(refusal(file, "kv_shared_with", "a list", expected));
        }
        // Also where no layer uses it: whoever wrote 0 meant something else.
        if let Some(window) = raw.sliding_window.filter(|&window| !is_believed(window)) {
            return Err(refuse_window(file, window));
        }
        let qk_norm = architecture != "MistralForCausalLM";
        let shares = raw.kv_shared_with.unwrap_or_else(|| vec![None; base.layers]);
        let config = HybridConfig { base, windows, shares, qk_norm };
        config.check(file)?;
        Ok(config)
    }
}

impl Raw {
    /// The window of each layer, as Qwen3's fields have it.
    fn windows(&self, file: &str, layers: usize) -> Result<Vec<Option<usize>>> {
        let sliding: Vec<bool> = match &self.layer_types {
            Some(types) => {
                if types.len() != layers {
                    return Err(refuse_length(file, "layer_types", types.len(), layers));
                }
                let slides = |(layer, kind): (usize, &String)| match kind.as_str() {
                    "sliding_attention" => Ok(true),
                    "full_attention" => Ok(false),
                    other => Err(refusal(
                        file,
                        &format!("layer_types[{layer}]"),
                        &format!("\"{other}\""),
                        "\"sliding_attention\" or \"full_attention\"",
                    )),
                };
                types.iter().enumerate().map(slides).collect::<Result<_>>()?
            }
            None if self.use_sliding_window == Some(true) => {
                let Some(full) = self.max_window_layers else {
                    let expected = "how many of the first layers see everything, or layer_types";
                    return Err(refusal(file, "max_window_layers", "missing", expected));
                };
                (0..layers).map(|layer| layer >= full).collect()
            }
            None => vec![false; layers],
        };
        if self.use_sliding_window == Some(false) {
            return Ok(vec![None; layers]);
        }
        if let (Some(layer), None) = (sliding.iter().position(|&s| s), self.sliding_window) {
            let expected = format!("a number of tokens: layer {layer} has a window");
            return Err(refusal(file, "sliding_window", "null or missing", &expected));
        }
        Ok(sliding.into_iter().map(|slides| self.sliding_window.filter(|_| slides)).collect())
    }
}
