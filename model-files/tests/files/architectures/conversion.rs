//! A checkpoint as llama.cpp's conversion would write it down.

use super::checkpoint::{Checkpoint, Numbers};
use crate::writer::{GgufFile, Meta, Tensor, text, texts};
use embedded_models::TARGET;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is asked of the whole model while its tensors are converted.
struct Conversion<'a> {
    config: &'a Value,
    /// GGUF's name of the architecture.
    name: &'a str,
    /// DeepSeek's attention in two parts, as conversion has had it since 2025, or whole.
    split: bool,
}

/// The file, with weights in f32. `name` is GGUF's of the architecture.
pub(crate) fn as_gguf(checkpoint: &Checkpoint, name: &str, split: bool) -> GgufFile {
    let conversion = Conversion { config: &checkpoint.config, name, split };
    let mut stacks: BTreeMap<String, Vec<(usize, &Numbers)>> = BTreeMap::new();
    let mut tensors = Vec::new();
    for (name, tensor) in &checkpoint.tensors {
        if let Some((before, rest)) = name.split_once(".experts.") {
            let (number, matrix) = rest.split_once('.').unwrap();
            let stack = stacks.entry(format!("{before}.experts.{matrix}")).or_default();
            stack.push((number.parse().unwrap(), tensor));
        } else {
            tensors.extend(conversion.tensor(name, &tensor.0, &tensor.1));
        }
    }
    for (name, mut stack) in stacks {
        stack.sort_by_key(|(number, _)| *number);
        let shape = [&[stack.len()][..], &stack[0].1.0].concat();
        let values: Vec<f32> = stack.iter().flat_map(|(_, (_, values))| values.clone()).collect();
        tensors.extend(conversion.tensor(&name, &shape, &values));
    }
    GgufFile { version: 3, metadata: conversion.metadata(), tensors }
}

impl Conversion<'_> {
    fn is_gemma(&self) -> bool {
        self.name.starts_with("gemma")
    }

    fn number(&self, field: &str) -> usize {
        self.config[field].as_u64().unwrap_or_else(|| panic!("{field}")) as usize
    }

    /// One tensor; of DeepSeek's attention, perhaps two.
    fn tensor(&self, name: &str, shape: &[usize], values: &[f32]) -> Vec<Tensor> {
        let mut values = values.to_vec();
        if self.is_gemma() && name.ends_with("norm.weight") {
            values.iter_mut().for_each(|v| *v += 1.0);
        }
        let is_permuted = ["llama", "smollm3", "granite"].contains(&self.name);
        if is_permuted && name.contains("q_proj") {
            values = interleaved(&values, self.number("num_attention_heads"), shape);
        }
        if is_permuted && name.contains("k_proj") {
            values = interleaved(&values, self.number("num_key_value_heads"), shape);
        }
        if self.split && name.ends_with("kv_b_proj.weight") {
            return self.split(name, &values);
        }
        vec![written(self.renamed(name), shape, &values)]
    }

    fn split(&self, name: &str, values: &[f32]) -> Vec<Tensor> {
        let [heads, nope, value, latent] =
            ["num_attention_heads", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"]
                .map(|field| self.number(field));
        let (mut k, mut v) = (Vec::new(), Vec::new());
        for head in values.chunks_exact((nope + value) * latent) {
            let (keys, own) = head.split_at(nope * latent);
            k.extend((0..latent).flat_map(|i| keys[i..].iter().step_by(latent)));
            v.extend(own);
        }
        let renamed = |part| self.renamed(name).replace("attn_kv_b", part);
        vec![
            written(renamed("attn_k_b"), &[heads, latent, nope], &k),
            written(renamed("attn_v_b"), &[heads, value, latent], &v),
        ]
    }

    fn renamed(&self, name: &str) -> String {
        let outer = [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
        ];
        if let Some((_, renamed)) = outer.iter().find(|(theirs, _)| *theirs == name) {
            return renamed.to_string();
        }
        let rest = name.strip_prefix("model.layers.").unwrap();
        let (layer, part) = rest.split_once('.').unwrap();
        let has_norms_behind = self.is_gemma() || self.name == "olmo2";
        let after_attention = if has_norms_behind { "post_attention_norm" } else { "ffn_norm" };
        let inner = [
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.qkv_proj", "attn_qkv"),
            ("self_attn.o_proj", "attn_output"),
            ("self_attn.q_norm", "attn_q_norm"),
            ("self_attn.k_norm", "attn_k_norm"),
            ("self_attn.q_a_proj", "attn_q_a"),
            ("self_attn.q_a_layernorm", "attn_q_a_norm"),
            ("self_attn.q_b_proj", "attn_q_b"),
            ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
            ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
            ("self_attn.kv_b_proj", "attn_kv_b"),
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", after_attention),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
            ("mlp.gate_up_proj", "ffn_up"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
            ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
            ("mlp.gate", "ffn_gate_inp"),
            ("mlp.experts.gate_proj", "ffn_gate_exps"),
            ("mlp.experts.up_proj", "ffn_up_exps"),
            ("mlp.experts.down_proj", "ffn_down_exps"),
            ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
            ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
        ];
        let found = inner.iter().find_map(|(theirs, own)| {
            let ending = part.strip_prefix(theirs)?;
            (ending.is_empty() || [".weight", ".bias"].contains(&ending))
                .then(|| format!("blk.{layer}.{own}{ending}"))
        });
        found.unwrap_or_else(|| panic!("{name}"))
    }

    fn metadata(&self) -> Vec<(String, Meta)> {
        let mut metadata = vocabulary();
        metadata.insert(0, ("general.architecture".into(), text(self.name)));
        let mut put =
            |key: &str, value: Meta| metadata.push((format!("{}.{key}", self.name), value));
        for (key, field) in [
            ("block_count", "num_hidden_layers"),
            ("context_length", "max_position_embeddings"),
            ("embedding_length", "hidden_size"),
            ("feed_forward_length", "intermediate_size"),
            ("attention.head_count", "num_attention_heads"),
            ("vocab_size", "vocab_size"),
            ("attention.sliding_window", "sliding_window"),
            ("attention.sliding_window_pattern", "sliding_window_pattern"),
            ("attention.q_lora_rank", "q_lora_rank"),
            ("attention.kv_lora_rank", "kv_lora_rank"),
            ("leading_dense_block_count", "first_k_dense_replace"),
            ("expert_count", "n_routed_experts"),
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_shared_count", "n_shared_experts"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_group_count", "n_group"),
            ("expert_group_used_count", "topk_group"),
        ] {
            // Qwen2's window is one that nothing uses, and conversion leaves it out.
            if let (Some(size), false) = (self.config[field].as_u64(), self.unused(field)) {
                put(key, Meta::U32(size as u32));
            }
        }
        for (key, field) in [
            ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
            ("rope.freq_base", "rope_theta"),
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
            ("expert_weights_scale", "routed_scaling_factor"),
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("attention.scale", "attention_multiplier"),
            ("logit_scale", "logits_scaling"),
        ] {
            if let Some(number) = self.config[field].as_f64() {
                put(key, Meta::F32(number as f32));
            }
        }
        if let Some(normed) = self.config["norm_topk_prob"].as_bool() {
            put("expert_weights_norm", Meta::Bool(normed));
        }
        let scaling = &self.config["rope_scaling"];
        if let Some(factor) = scaling["factor"].as_f64() {
            put("rope.scaling.type", text("yarn"));
            put("rope.scaling.factor", Meta::F32(factor as f32));
            let trained = scaling["original_max_position_embeddings"].as_u64().unwrap() as u32;
            put("rope.scaling.original_context_length", Meta::U32(trained));
            for (key, field, times) in [
                ("yarn_log_multiplier", "mscale_all_dim", 0.1),
                ("yarn_attn_factor", "attention_factor", 1.0),
                ("yarn_attn_factor", "attn_factor", 1.0),
                ("yarn_beta_fast", "beta_fast", 1.0),
                ("yarn_beta_slow", "beta_slow", 1.0),
            ] {
                if let Some(number) = scaling[field].as_f64() {
                    put(&format!("rope.scaling.{key}"), Meta::F32((times * number) as f32));
                }
            }
        }
        if let (Some(kinds), "olmo2") = (self.config["layer_types"].as_array(), self.name) {
            let slides = kinds.iter().map(|kind| kind == "sliding_attention").collect();
            put("attention.sliding_window_pattern", Meta::Bools(slides));
        }
        if self.name == "deepseek2" {
            self.put_widths_of_latents(&mut put);
        } else {
            put("attention.head_count_kv", Meta::U32(self.number("num_key_value_heads") as u32));
            let usual = self.number("hidden_size") / self.number("num_attention_heads");
            let width = self.config["head_dim"].as_u64().map_or(usual, |width| width as usize);
            put("attention.key_length", Meta::U32(width as u32));
            let part = self.config["partial_rotary_factor"].as_f64().unwrap_or(1.0);
            put("rope.dimension_count", Meta::U32((part * width as f64) as u32));
        }
        metadata
    }

    fn put_widths_of_latents(&self, put: &mut dyn FnMut(&str, Meta)) {
        let [nope, rope, value, latent] =
            ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"]
                .map(|field| self.number(field) as u32);
        put("rope.dimension_count", Meta::U32(rope));
        let is_v3 = self.config["scoring_func"] == "sigmoid";
        put("expert_gating_func", Meta::U32(if is_v3 { 2 } else { 1 }));
        if self.split {
            put("attention.head_count_kv", Meta::U32(1));
            put("attention.key_length", Meta::U32(latent + rope));
            put("attention.value_length", Meta::U32(latent));
            put("attention.key_length_mla", Meta::U32(nope + rope));
            put("attention.value_length_mla", Meta::U32(value));
        } else {
            put("attention.head_count_kv", Meta::U32(self.number("num_attention_heads") as u32));
            put("attention.key_length", Meta::U32(nope + rope));
            put("attention.value_length", Meta::U32(value));
        }
    }

    fn unused(&self, field: &str) -> bool {
        field == "sliding_window" && self.config["use_sliding_window"] == false
    }
}

fn written(name: String, shape: &[usize], values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { name, shape: shape.iter().map(|&size| size as u64).collect(), code: 0, bytes }
}

/// Rows of each head reordered so that RoPE turns neighbours.
fn interleaved(values: &[f32], heads: usize, shape: &[usize]) -> Vec<f32> {
    let (rows, row) = (shape[0], shape[1]);
    let width = rows / heads;
    let order = (0..rows).map(|at| {
        let (head, within) = (at / width, at % width);
        head * width + within % 2 * (width / 2) + within / 2
    });
    order.flat_map(|from| values[from * row..(from + 1) * row].to_vec()).collect()
}

/// The embedded target's.
fn vocabulary() -> Vec<(String, Meta)> {
    let tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let by_id: BTreeMap<u64, &str> =
        vocab.iter().map(|(token, id)| (id.as_u64().unwrap(), token.as_str())).collect();
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter().map(|merge| match merge {
        Value::String(merge) => merge.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    });
    let entries = [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.tokens", texts(by_id.values().copied())),
        ("tokenizer.ggml.token_type", Meta::I32s(vec![1; by_id.len()])),
        ("tokenizer.ggml.merges", texts(merges)),
        ("tokenizer.ggml.eos_token_id", Meta::U32(0)),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
