//! Qwen3's mixtures of experts: its attention, and in every layer many small feed-forwards in place of one.
//!
//! Of 30 billion weights a token meets three billion.

use super::fields::Fields;
use super::windows::Windowed;
use super::{Architecture, Family, Source};
use gqa_mla::experts::{ExpertsConfig, Scoring};
use gqa_mla::hybrid::{self, HybridConfig};
use naive_decode::{Config, Error, KvSize, Model, Parts, Result};

struct Qwen3Moe {
    attention: Windowed,
    experts: ExpertsConfig,
}

/// # Errors
/// Whatever does not go together, or layers without experts: no published model has any.
pub(super) fn read(fields: &Fields) -> Result<Architecture> {
    // Here Hugging Face's code has windows in all layers, and not where the dense models' fields say.
    if fields.flag("use_sliding_window")? == Some(true) {
        return Err(fields.refusal("use_sliding_window", "false: every layer sees everything"));
    }
    let fields = &fields.clone().without(&["layer_types", "sliding_window"]);
    let hybrid = fields.as_windowed()?;
    let needed = |field: &str| {
        let count = fields.count(field)?;
        count.ok_or_else(|| fields.refusal(field, "a whole number, at least 1"))
    };
    // Newer files say the second.
    let experts = match fields.has("num_experts") {
        true => needed("num_experts")?,
        false => needed("num_local_experts")?,
    };
    if fields.count("decoder_sparse_step")?.is_some_and(|step| step != 1) {
        return Err(fields.refusal("decoder_sparse_step", "1: every layer has experts"));
    }
    let dense = fields.value("mlp_only_layers");
    if dense.is_some_and(|layers| layers.as_array().is_none_or(|layers| !layers.is_empty())) {
        return Err(fields.refusal("mlp_only_layers", "an empty list: every layer has experts"));
    }
    let experts = ExpertsConfig {
        n_routed_experts: experts,
        num_experts_per_tok: needed("num_experts_per_tok")?,
        n_shared_experts: 0,
        moe_intermediate_size: needed("moe_intermediate_size")?,
        first_k_dense_replace: 0,
        moe_layer_freq: 1,
        n_group: 1,
        topk_group: 1,
        scoring: Scoring::Softmax,
        norm_topk_prob: fields.flag("norm_topk_prob")?.unwrap_or(false),
        routed_scaling_factor: 1.0,
    };
    experts.check().map_err(|problem| Error::file(fields.file(), problem))?;
    let config = hybrid.base.clone();
    let family = Box::new(Qwen3Moe { attention: Windowed(hybrid), experts });
    Ok(Architecture { config, family })
}

impl Family for Qwen3Moe {
    fn assemble(&self, config: Config, from: Source) -> Result<Model> {
        let hybrid = HybridConfig { base: config.clone(), ..self.attention.0.clone() };
        hybrid.check("config")?;
        self.experts.check()?;
        let block = |parts: &Parts, index: usize| {
            let projection = hybrid::projection(&hybrid, parts, index)?;
            let experts = self.experts.read(parts, &format!("model.layers.{index}.mlp"))?;
            parts.block_of(index, projection, Box::new(experts))
        };
        Model::assemble_blocks(config, from.options, from.tensors, from.pack, &block)
    }

    fn kv(&self, config: &Config, layer: usize) -> Option<KvSize> {
        self.attention.kv(config, layer)
    }
}
