//! The shape of a DeepSeek model, read from a Hugging Face `config.json`.

use super::{Form, Stretch};
use crate::experts::ExpertsConfig;
use naive_decode::{Config, Error, KvSize, Result, read_json};
use serde::Deserialize;

/// Sizes and constants of one model with latent attention.
///
/// Invariants, checked on reading and once more before a model is put together: every width is
/// positive, `qk_rope_head_dim` is even (RoPE turns pairs).
#[derive(Debug, Clone, PartialEq)]
pub struct MlaConfig {
    /// What it has in common with the Llama family. Its `head_dim` is the width that RoPE turns.
    pub model: Config,
    /// Width that queries are compressed to on their way; not compressed if not said.
    pub q_lora_rank: Option<usize>,
    /// Width of the latent, which keys and values are made from.
    pub kv_lora_rank: usize,
    /// Width of the part of a query or key that position does not touch.
    pub qk_nope_head_dim: usize,
    /// Width of the part that RoPE turns, and of the rotary key that all heads share.
    pub qk_rope_head_dim: usize,
    /// Width of one head's value.
    pub v_head_dim: usize,
    /// How the context was stretched, if it was.
    pub stretch: Option<Stretch>,
    /// Experts of the layers that have some; a plain feed-forward everywhere if not said.
    pub experts: Option<ExpertsConfig>,
}

/// The fields of `config.json` that Llama does not have.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    architectures: Vec<String>,
    q_lora_rank: Option<usize>,
    kv_lora_rank: usize,
    qk_nope_head_dim: usize,
    qk_rope_head_dim: usize,
    v_head_dim: usize,
    rope_interleave: Option<bool>,
}

const ARCHITECTURES: [&str; 2] = ["DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"];

impl MlaConfig {
    /// Reads a `config.json`; `file` is the name that errors give it.
    ///
    /// # Errors
    /// Malformed JSON, another architecture, a feature that this crate does not have, or sizes that
    /// contradict each other; each names the field, what it says and what was expected.
    pub fn from_json(file: &str, json: &[u8]) -> Result<Self> {
        let malformed = |error| Error::json(file, &error);
        let raw: Raw = read_json(file, json)?;
        let mut fields: serde_json::Map<_, _> = serde_json::from_slice(json).map_err(malformed)?;
        let architecture = match raw.architectures.as_slice() {
            [one] if ARCHITECTURES.contains(&one.as_str()) => one.as_str(),
            other => {
                let expected = format!("one of {ARCHITECTURES:?}");
                let problem = format!("architectures is {other:?}, expected {expected}");
                return Err(Error::file(file, problem));
            }
        };
        if raw.rope_interleave == Some(false) {
            let problem = "rope_interleave is false, expected true: pairs side by side";
            return Err(Error::file(file, problem));
        }
        let in_file = |error: Error| Error::file(file, error);
        let experts = ExpertsConfig::from_json(json, architecture == ARCHITECTURES[1]);
        let experts = experts.map_err(in_file)?;
        // Before Llama's reader, so that the error calls the width by its name here.
        check_rope_width(raw.qk_rope_head_dim).map_err(in_file)?;
        // All else is as in a Llama whose heads are as wide as RoPE's part.
        fields.insert("architectures".into(), serde_json::json!(["LlamaForCausalLM"]));
        fields.insert("head_dim".into(), raw.qk_rope_head_dim.into());
        let llama = serde_json::to_vec(&fields).map_err(malformed)?;
        let mut model = Config::from_json(file, &llama)?;
        let stretch = model.rope_scaling.take();
        let stretch = stretch.map(|json| Stretch::from_json(&json, &model)).transpose();
        let config = MlaConfig {
            q_lora_rank: raw.q_lora_rank,
            kv_lora_rank: raw.kv_lora_rank,
            qk_nope_head_dim: raw.qk_nope_head_dim,
            qk_rope_head_dim: raw.qk_rope_head_dim,
            v_head_dim: raw.v_head_dim,
            stretch: stretch.map_err(in_file)?,
            experts,
            model,
        };
        config.check().map_err(in_file)?;
        Ok(config)
    }

    /// What one layer keeps of one token in either form.
    pub fn kv(&self, form: Form) -> KvSize {
        let rope = self.qk_rope_head_dim;
        match form {
            Form::Explicit => KvSize {
                heads: self.model.heads,
                key_dim: self.qk_nope_head_dim + rope,
                value_dim: self.v_head_dim,
            },
            // A value is the latent, the beginning of its key: nothing to keep beside it.
            Form::Absorbed => KvSize { heads: 1, key_dim: self.kv_lora_rank + rope, value_dim: 0 },
        }
    }

    /// Factor on the scores: that of the textbook, whichever form computes them. In the absorbed
    /// form keys are wider, but the products are the same products.
    pub(super) fn scale(&self) -> f32 {
        let width = (self.qk_nope_head_dim + self.qk_rope_head_dim) as f64;
        let stretched = self.stretch.as_ref().map_or(1.0, |stretch| stretch.scores);
        (stretched / width.sqrt()) as f32
    }

    /// The experts of a layer, if it has some.
    pub(super) fn experts_of(&self, layer: usize) -> Option<&ExpertsConfig> {
        self.experts.as_ref().filter(|experts| experts.in_layer(layer))
    }

    /// What a [`naive_decode::Model`] carries of this.
    pub(super) fn carried(&self, form: Form) -> Config {
        Config {
            kv_heads: self.kv(form).heads,
            head_dim: self.qk_rope_head_dim,
            rope_scaling: None,
            ..self.model.clone()
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_rope_width(self.qk_rope_head_dim)?;
        for (field, width) in [
            ("q_lora_rank", self.q_lora_rank.unwrap_or(1)),
            ("kv_lora_rank", self.kv_lora_rank),
            ("qk_nope_head_dim", self.qk_nope_head_dim),
            ("v_head_dim", self.v_head_dim),
        ] {
            // Far above any model there is; products with the number of heads stay within 64 bits.
            if width == 0 || width > 1 << 24 {
                return Err(Error::invalid(field, width, "between 1 and 16,777,216"));
            }
        }
        self.experts.as_ref().map_or(Ok(()), ExpertsConfig::check)
    }
}

fn check_rope_width(width: usize) -> Result<()> {
    match width {
        0 => Err(Error::invalid("qk_rope_head_dim", width, "at least 2")),
        odd if odd % 2 == 1 => Err(Error::invalid("qk_rope_head_dim", odd, "an even number")),
        _ => Ok(()),
    }
}
