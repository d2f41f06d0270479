//! Qwen3, Mistral and this project's hybrid: the family of rung 03.

use super::fields::Fields;
use super::{Architecture, Family, Source};
use gqa_mla::hybrid::{self, HybridConfig};
use naive_decode::{Config, KvSize, Model, Result};

/// Windows, QK norm, layers that share.
pub(super) struct Windowed(pub(super) HybridConfig);

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

    /// Mistral's are, without a window.
    fn is_plain_llama(&self) -> bool {
        let HybridConfig { windows, shares, qk_norm, base: _ } = &self.0;
        !qk_norm && windows.iter().chain(shares).all(Option::is_none)
    }

    fn windows(&self) -> &[Option<usize>] {
        &self.0.windows
    }

    fn kv(&self, config: &Config, layer: usize) -> Option<KvSize> {
        let Config { kv_heads: heads, head_dim, .. } = *config;
        let own = KvSize { heads, key_dim: head_dim, value_dim: head_dim };
        self.0.shares[layer].is_none().then_some(own)
    }
}
