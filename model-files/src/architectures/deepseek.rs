//! DeepSeek-V2 and V3: latent attention and experts, by way of rung 03.

use super::fields::Fields;
use super::{Architecture, Family, Source};
use gqa_mla::mla::{self, Form, MlaConfig};
use naive_decode::{Config, KvSize, Model, Result};

/// In the absorbed form, whose cache is the small one.
struct DeepSeek(MlaConfig);

/// # Errors
/// As [`MlaConfig::from_json`].
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    let latent = MlaConfig::from_json(fields.file(), &fields.json())?;
    Ok(Architecture { config: latent.model.clone(), family: Box::new(DeepSeek(latent)) })
}

impl Family for DeepSeek {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let latent = MlaConfig { model: config, ..self.0.clone() };
        mla::assemble(&latent, Form::Absorbed, from.options, from.tensors, from.pack)
    }

    fn turns_by_its_own(&self) -> bool {
        self.0.stretch.is_some()
    }

    fn kv(&self, _config: &Config, _layer: usize) -> Option<KvSize> {
        Some(self.0.kv(Form::Absorbed))
    }
}
