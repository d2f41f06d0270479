//! Qwen3, Mistral and this project's hybrid: the family of rung 03.

use super::fields::Fields;
use super::{Architecture, Family, Source};
use gqa_mla::hybrid::{self, HybridConfig};
use naive_decode::{Config, Model, Result};

/// Windows, QK norm, layers that share.
struct Windowed(HybridConfig);

/// # Errors
/// As [`HybridConfig::from_json`].
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    let hybrid = HybridConfig::from_json(fields.file(), &fields.json())?;
    Ok(Architecture { config: hybrid.base.clone(), family: Box::new(Windowed(hybrid)) })
}

impl Family for Windowed {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let hybrid = HybridConfig { base: config, ..self.0.clone() };
        hybrid::assemble(hybrid, from.options, from.tensors, from.pack)
    }
}
