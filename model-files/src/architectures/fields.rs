//! A `config.json`, field by field, with one way to say what is wrong with one.

use gqa_mla::hybrid::HybridConfig;
use naive_decode::{Config, Error, Result};
use serde_json::{Map, Value, json};

/// The fields of a `config.json`. One that is `null` counts as left out.
#[derive(Clone)]
pub(super) struct Fields {
    file: String,
    map: Map<String, Value>,
}

impl Fields {
    /// # Errors
    /// If it is not a JSON object.
    pub(super) fn read(file: &str, json: &[u8]) -> Result<Self> {
        let map = serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
        Ok(Fields { file: file.to_owned(), map })
    }

    /// What errors call the file.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The file as it is now.
    pub(super) fn json(&self) -> Vec<u8> {
        Value::Object(self.map.clone()).to_string().into_bytes()
    }

    /// A field's value, of whatever kind.
    pub(super) fn value(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Whether a field is there, `null` or not.
    pub(super) fn has(&self, field: &str) -> bool {
        self.map.contains_key(field)
    }

    /// What is said of a field that is not what it should be.
    pub(super) fn refusal(&self, field: &str, expected: &str) -> Error {
        let found = match self.map.get(field) {
            None => "missing".to_owned(),
            Some(value) => value.to_string(),
        };
        Error::file(&self.file, format!("{field} is {found}, expected {expected}"))
    }

    /// # Errors
    /// If it is there and no number.
    pub(super) fn number(&self, field: &str) -> Result<Option<f64>> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.refusal(field, "a number"));
        self.value(field).map(number).transpose()
    }

    /// # Errors
    /// If it is there and no number above zero.
    pub(super) fn positive(&self, field: &str) -> Result<Option<f64>> {
        match self.number(field)? {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            Some(_) => Err(self.refusal(field, "a number above 0")),
            None => Ok(None),
        }
    }

    /// # Errors
    /// If it is there and no whole number of at least 1.
    pub(super) fn count(&self, field: &str) -> Result<Option<usize>> {
        let count = |value: &Value| {
            let count = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
            count.ok_or_else(|| self.refusal(field, "a whole number, at least 1"))
        };
        self.value(field).map(count).transpose()
    }

    /// # Errors
    /// If it is there and neither true nor false.
    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>> {
        let flag =
            |value: &Value| value.as_bool().ok_or_else(|| self.refusal(field, "true or false"));
        self.value(field).map(flag).transpose()
    }

    /// The number of layers, for lists of as many entries; 0 if it is missing, which others refuse.
    ///
    /// # Errors
    /// If it is none that a list could have.
    pub(super) fn layers(&self) -> Result<usize> {
        match self.count("num_hidden_layers")? {
            Some(layers) if layers > Config::MOST_LAYERS => {
                let expected = format!("at most {}", Config::MOST_LAYERS);
                Err(self.refusal("num_hidden_layers", &expected))
            }
            layers => Ok(layers.unwrap_or(0)),
        }
    }

    /// # Errors
    /// If it is there and no list of texts.
    pub(super) fn texts(&self, field: &str) -> Result<Option<Vec<&str>>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        texts.map(Some).ok_or_else(|| self.refusal(field, "a list of texts"))
    }

    /// The fields of an object among the fields.
    ///
    /// # Errors
    /// If it is missing or no object.
    pub(super) fn inside(&self, field: &str) -> Result<Self> {
        let map = self.value(field).and_then(Value::as_object);
        let map = map.ok_or_else(|| self.refusal(field, "an object"))?.clone();
        Ok(Fields { file: format!("{}, {field}", self.file), map })
    }

    /// The same with a field put in, or put in another's place.
    pub(super) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.map.insert(field.into(), value.into());
        self
    }

    /// With what a configuration of Hugging Face's has where a file says nothing. `null` says something: that there is none.
    pub(super) fn or_usual<const N: usize>(mut self, usual: [(&str, Value); N]) -> Self {
        for (field, value) in usual {
            self.map.entry(field).or_insert(value);
        }
        self
    }

    /// With a window in all layers but every `period`-th, if a list does not say which have one.
    ///
    /// # Errors
    /// As [`Fields::layers`].
    pub(super) fn or_window_but_every(self, period: usize) -> Result<Self> {
        if self.value("layer_types").is_some() {
            return Ok(self);
        }
        let windowed = self.value("sliding_window").is_some();
        let kind = |layer: usize| match windowed && !layer.is_multiple_of(period) {
            true => "sliding_attention",
            false => "full_attention",
        };
        let kinds: Vec<_> = (1..=self.layers()?).map(kind).collect();
        Ok(self.with("layer_types", kinds))
    }

    /// Newer configs say of each kind of layer how it turns. What they say of those that see everything, as if they said it of all,
    /// and RoPE's base in layers with a window.
    ///
    /// # Errors
    /// If that base is no number above zero.
    pub(super) fn rope_by_kind(self) -> Result<(Self, Option<f64>)> {
        let of = |kind: &str| self.value("rope_parameters").and_then(|by_kind| by_kind.get(kind));
        let local = of("sliding_attention").and_then(|it| it.get("rope_theta"));
        let local = local.map(|theta| {
            let positive = theta.as_f64().filter(|theta| *theta > 0.0 && theta.is_finite());
            let field = "rope_parameters.sliding_attention.rope_theta";
            positive.ok_or_else(|| {
                Error::file(&self.file, format!("{field} is {theta}, expected a number above 0"))
            })
        });
        let local = local.transpose()?;
        let global = of("full_attention").cloned();
        let rest = match global {
            Some(global) => self.with("rope_parameters", global),
            None => self,
        };
        Ok((rest, local))
    }

    /// The same without some fields, which somebody has dealt with.
    pub(super) fn without(mut self, fields: &[&str]) -> Self {
        fields.iter().for_each(|&field| drop(self.map.remove(field)));
        self
    }

    /// What there is of Llama in it.
    ///
    /// # Errors
    /// As [`Config::from_json`].
    pub(super) fn as_llama(&self) -> Result<Config> {
        let llama = self.clone().with("architectures", json!(["LlamaForCausalLM"]));
        Config::from_json(&self.file, &llama.json())
    }

    /// What there is of Llama in it, and each layer's window as Qwen's fields have it.
    ///
    /// # Errors
    /// As [`HybridConfig::from_json`].
    pub(super) fn as_windowed(&self) -> Result<HybridConfig> {
        let qwen = self.clone().with("architectures", json!(["Qwen3ForCausalLM"]));
        HybridConfig::from_json(&self.file, &qwen.json())
    }
}
