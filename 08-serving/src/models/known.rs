//! Models on the hub that are known by name: what they are, as their makers say.

use model_files::Architecture;
use naive_decode::Result;

/// A model on the hub.
pub(super) struct Known {
    /// `owner/name`
    pub(super) name: &'static str,
    /// As its card names it. Some want their terms accepted first.
    pub(super) licence: &'static str,
    /// Numbers in its weights.
    pub(super) parameters: u64,
    /// What its config.json says of its shape.
    config: &'static str,
}

impl Known {
    fn architecture(&self) -> Result<Architecture> {
        Architecture::from_json(self.name, self.config.as_bytes())
    }
}

/// All of them.
pub(super) fn known() -> Result<Vec<(&'static Known, Architecture)>> {
    KNOWN.iter().map(|known| Ok((known, known.architecture()?))).collect()
}

/// Smallest first within an architecture.
const KNOWN: [Known; 15] = [
    Known {
        name: "HuggingFaceTB/SmolLM2-135M-Instruct",
        licence: "apache-2.0",
        parameters: 134_515_008,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 576,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 1e5, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "HuggingFaceTB/SmolLM2-360M-Instruct",
        licence: "apache-2.0",
        parameters: 361_821_120,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 960,
            "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5,
            "intermediate_size": 2560, "vocab_size": 49152, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 1e5, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        licence: "apache-2.0",
        parameters: 1_100_048_384,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
            "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5}"#,
    },
    Known {
        name: "meta-llama/Llama-3.2-1B-Instruct",
        licence: "llama3.2",
        parameters: 1_235_814_400,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
            "tie_word_embeddings": true}"#,
    },
    Known {
        name: "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        licence: "apache-2.0",
        parameters: 1_711_376_384,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32,
            "intermediate_size": 8192, "vocab_size": 49152, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 1.3e5, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "meta-llama/Llama-2-7b-chat-hf",
        licence: "llama2",
        parameters: 6_738_415_616,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5}"#,
    },
    Known {
        name: "meta-llama/Llama-3.1-8B-Instruct",
        licence: "llama3.1",
        parameters: 8_030_261_248,
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5, "rope_theta": 5e5}"#,
    },
    Known {
        name: "mistralai/Mistral-7B-Instruct-v0.3",
        licence: "apache-2.0",
        parameters: 7_248_023_552,
        config: r#"{"architectures": ["MistralForCausalLM"], "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 14336, "vocab_size": 32768, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": null}"#,
    },
    Known {
        name: "HuggingFaceTB/SmolLM3-3B",
        licence: "apache-2.0",
        parameters: 3_075_098_624,
        config: r#"{"architectures": ["SmolLM3ForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
            "intermediate_size": 11008, "vocab_size": 128256, "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-6, "rope_theta": 5e6, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "Qwen/Qwen2.5-0.5B-Instruct",
        licence: "apache-2.0",
        parameters: 494_032_768,
        config: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "use_sliding_window": false,
            "tie_word_embeddings": true}"#,
    },
    Known {
        name: "Qwen/Qwen3-0.6B",
        licence: "apache-2.0",
        parameters: 596_049_920,
        config: r#"{"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
            "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
            "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
            "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "use_sliding_window": false, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "ibm-granite/granite-3.3-2b-instruct",
        licence: "apache-2.0",
        parameters: 2_533_539_840,
        config: r#"{"architectures": ["GraniteForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 49159, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5, "rope_theta": 1e7, "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22, "attention_multiplier": 0.015625, "logits_scaling": 8.0,
            "tie_word_embeddings": true}"#,
    },
    Known {
        name: "allenai/OLMo-2-0425-1B-Instruct",
        licence: "apache-2.0",
        parameters: 1_484_916_736,
        config: r#"{"architectures": ["Olmo2ForCausalLM"], "hidden_size": 2048,
            "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
            "intermediate_size": 8192, "vocab_size": 100352, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6, "rope_theta": 5e5}"#,
    },
    Known {
        name: "allenai/Olmo-3-7B-Instruct",
        licence: "apache-2.0",
        parameters: 7_298_011_136,
        config: r#"{"architectures": ["Olmo3ForCausalLM"], "hidden_size": 4096,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "intermediate_size": 11008, "vocab_size": 100278, "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-6, "rope_theta": 5e5, "sliding_window": 4096}"#,
    },
    Known {
        name: "microsoft/Phi-3-mini-4k-instruct",
        licence: "mit",
        parameters: 3_821_079_552,
        config: r#"{"architectures": ["Phi3ForCausalLM"], "hidden_size": 3072,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "intermediate_size": 8192, "vocab_size": 32064, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5, "sliding_window": 2047}"#,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shapes_agree() {
        for known in &KNOWN {
            let shape: serde_json::Value = serde_json::from_str(known.config).unwrap();
            let size = |field: &str| shape[field].as_u64();
            let [hidden, layers, heads, kv_heads, inner, vocab] = [
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "num_key_value_heads",
                "intermediate_size",
                "vocab_size",
            ]
            .map(|field| size(field).unwrap());
            let head = size("head_dim").unwrap_or(hidden / heads);
            let attention = 2 * hidden * head * (heads + kv_heads);
            let more = match shape["architectures"][0].as_str().unwrap() {
                "Qwen2ForCausalLM" => head * (heads + 2 * kv_heads), // biases
                "Qwen3ForCausalLM" => 2 * head,                      // norms
                "Olmo2ForCausalLM" | "Olmo3ForCausalLM" => (heads + kv_heads) * head,
                _ => 0,
            };
            let block = attention + 3 * hidden * inner + 2 * hidden + more;
            let tables = if shape["tie_word_embeddings"] == true { 1 } else { 2 };
            let total = layers * block + hidden + tables * vocab * hidden;
            assert_eq!(total, known.parameters, "{}", known.name);
        }
    }

    #[test]
    fn what_is_read_here_is_listed() {
        let names: Vec<&str> = known().unwrap().iter().map(|(known, _)| known.name).collect();
        assert!(names.contains(&"HuggingFaceTB/SmolLM2-135M-Instruct"), "{names:?}");
    }
}
