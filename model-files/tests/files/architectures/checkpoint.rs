//! Tiny checkpoints of random weights, one for each architecture, in Hugging Face's form.
//!
//! The oracle's tests include this file too: what candle is compared on is what the other tests
//! here read and damage.
#![allow(dead_code)] // Each test crate uses a part.

use embedded_models::TARGET;
use model_files::Architecture;
use naive_decode::{LoadOptions, dense, random_tensors};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The embedded target's vocabulary, so that its tokenizer goes with every checkpoint.
pub(crate) const VOCAB: usize = 2048;

/// A tensor's shape and its values.
pub(crate) type Numbers = (Vec<usize>, Vec<f32>);

/// A model to be: its `config.json`, and its tensors by name with their shapes.
#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) config: Value,
    pub(crate) tensors: BTreeMap<String, Numbers>,
}

impl Checkpoint {
    /// Random weights for a config, written down as the loader asks for them.
    pub(crate) fn random(config: Value) -> Self {
        let architecture =
            Architecture::from_json("config.json", config.to_string().as_bytes()).unwrap();
        let gemma = config["architectures"][0].as_str().unwrap().starts_with("Gemma");
        let tensors = RefCell::new(BTreeMap::new());
        let random = random_tensors(8);
        let record = |name: &str, shape: &[usize]| {
            let mut values = random(name, shape)?;
            // Sharper attention than random weights give, so that position, scale and caps matter.
            if ["q_proj.weight", "q_b_proj.weight", "qkv_proj.weight"].map(|q| name.ends_with(q))
                != [false; 3]
            {
                values.iter_mut().for_each(|v| *v *= 3.0);
            }
            // Vectors come near 1; a bias is near 0, and so is what Gemma keeps of a norm.
            if name.ends_with("bias") || gemma && shape.len() == 1 {
                values.iter_mut().for_each(|v| *v -= 1.0);
            }
            tensors.borrow_mut().insert(name.to_owned(), (shape.to_vec(), values.clone()));
            Ok(values)
        };
        let options = LoadOptions::default();
        architecture.assemble(options, &record, &dense(options.isa)).unwrap();
        Checkpoint { config, tensors: tensors.into_inner() }
    }

    /// Writes a model directory and returns the path of its weights.
    pub(crate) fn write(&self, directory: &Path) -> PathBuf {
        std::fs::write(directory.join("config.json"), self.config.to_string()).unwrap();
        std::fs::write(directory.join("tokenizer.json"), TARGET.tokenizer).unwrap();
        let bytes = self.tensors.iter().map(|(name, (shape, values))| {
            (name, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
        });
        let bytes: Vec<_> = bytes.collect();
        let views = bytes.iter().map(|(name, shape, bytes)| {
            (name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
        });
        let path = directory.join("model.safetensors");
        safetensors::serialize_to_file(views, None, &path).unwrap();
        path
    }
}

/// Tokens that follow no pattern which attention could fall into.
pub(crate) fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * i * 37 + 101 * i + 5) % VOCAB as u32).collect()
}

/// `base` with some fields put in or replaced; `null` takes none out but says so.
pub(crate) fn with(mut base: Value, fields: Value) -> Value {
    for (field, value) in fields.as_object().unwrap() {
        base[field] = value.clone();
    }
    base
}

/// What all families have. The epsilon is a number that f32 and f64 both hold.
pub(crate) fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
        "intermediate_size": 80, "vocab_size": VOCAB, "rms_norm_eps": 2f64.powi(-20),
        "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": false,
        "attention_bias": false, "hidden_act": "silu", "eos_token_id": [0, 4],
    })
}

pub(crate) fn mistral() -> Value {
    with(llama(), json!({ "architectures": ["MistralForCausalLM"], "sliding_window": 9 }))
}

/// The last of three layers does not turn.
pub(crate) fn smollm3() -> Value {
    let fields = json!({
        "architectures": ["SmolLM3ForCausalLM"], "tie_word_embeddings": true,
        "no_rope_layers": [1, 1, 0], "use_sliding_window": false, "sliding_window": null,
        "mlp_bias": false,
    });
    with(llama(), fields)
}

pub(crate) fn qwen2() -> Value {
    let fields = json!({
        "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": true,
        "use_sliding_window": false, "sliding_window": 64, "max_window_layers": 3,
    });
    with(llama(), fields)
}

pub(crate) fn qwen3() -> Value {
    let fields = json!({ "architectures": ["Qwen3ForCausalLM"], "head_dim": 16 });
    with(llama(), fields)
}

/// Experts in every layer, of which a row meets two.
pub(crate) fn qwen3_moe() -> Value {
    let fields = json!({
        "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "norm_topk_prob": true, "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    });
    with(qwen3(), fields)
}

pub(crate) fn phi3() -> Value {
    with(llama(), json!({ "architectures": ["Phi3ForCausalLM"] }))
}

/// Heads of which RoPE turns half.
pub(crate) fn phi3_partly() -> Value {
    with(phi3(), json!({ "head_dim": null, "hidden_size": 64, "partial_rotary_factor": 0.5 }))
}

/// Factors that are no powers of two, of which each is felt.
pub(crate) fn granite() -> Value {
    let fields = json!({
        "architectures": ["GraniteForCausalLM"], "tie_word_embeddings": true, "mlp_bias": false,
        "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.7, "logits_scaling": 3.0,
    });
    with(llama(), fields)
}

/// Norms behind the halves of blocks, and over all heads.
pub(crate) fn olmo2() -> Value {
    with(llama(), json!({ "architectures": ["Olmo2ForCausalLM"] }))
}

/// The same with windows in two of three layers, and a RoPE that is stretched in the third.
pub(crate) fn olmo3() -> Value {
    let fields = json!({
        "architectures": ["Olmo3ForCausalLM"], "sliding_window": 9,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
            "attention_factor": 0.1 * 4f64.ln() + 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
        },
    });
    with(llama(), fields)
}

/// Caps low enough to be felt, and windows in every second layer.
pub(crate) fn gemma2() -> Value {
    let fields = json!({
        "architectures": ["Gemma2ForCausalLM"], "head_dim": 16, "hidden_act": null,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 16, "sliding_window": 9,
    });
    with(llama(), fields)
}

/// Two bases of RoPE, and one layer of three that sees everything.
pub(crate) fn gemma3() -> Value {
    let fields = json!({
        "architectures": ["Gemma3ForCausalLM"], "head_dim": 16, "hidden_act": null,
        "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
        "attn_logit_softcapping": null, "final_logit_softcapping": null,
        "query_pre_attn_scalar": 16, "sliding_window": 9, "sliding_window_pattern": 3,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
    });
    with(llama(), fields)
}

/// As V2-Lite: experts from the second layer on, a stretched context.
pub(crate) fn deepseek2() -> Value {
    let fields = json!({
        "architectures": ["DeepseekV2ForCausalLM"], "head_dim": null, "num_key_value_heads": 4,
        "q_lora_rank": null, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 12, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 5,
        "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 24,
        "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false,
        "routed_scaling_factor": 1.5, "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
            "mscale": 0.707, "mscale_all_dim": 0.707,
        },
    });
    with(llama(), fields)
}

/// As V3: compressed queries, groups of experts, sigmoids with a correction.
pub(crate) fn deepseek3() -> Value {
    let fields = json!({
        "architectures": ["DeepseekV3ForCausalLM"], "q_lora_rank": 20, "n_routed_experts": 6,
        "n_group": 3, "topk_group": 2, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "norm_topk_prob": true, "routed_scaling_factor": 2.5, "rope_scaling": null,
    });
    with(deepseek2(), fields)
}

/// Windows, and layers that read the keys and values of the layer before.
pub(crate) fn hybrid() -> Value {
    let fields = json!({
        "architectures": ["HybridForCausalLM"], "sliding_window": 9,
        "kv_shared_with": [null, 0, null],
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    });
    with(qwen3(), fields)
}
