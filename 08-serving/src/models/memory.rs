//! What each rung needs to run a model.

use crate::rungs;
use gqa_mla::hybrid::RING;
use kv_cache::CONTIGUOUS;
use model_files::LayerKv;
use naive_decode::{Config, KvSize, NAIVE, Rung};
use serde::Serialize;

/// A context that a conversation fits in.
const SHORT: usize = 2_048;

/// What one rung needs to run a model with one sequence, in bytes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Memory {
    #[serde(rename = "crate")]
    pub(super) package: &'static str,
    pub(super) change: &'static str,
    /// The weights as f32.
    pub(super) weights: u64,
    /// Keys and values of [`SHORT`] tokens.
    pub(super) kv_at_2048: u64,
    /// Keys and values of as many tokens as the model was trained to see.
    pub(super) kv_at_full_context: u64,
}

/// What each rung needs.
pub(super) fn memory(config: &Config, layers: &[LayerKv], parameters: u64) -> Vec<Memory> {
    let bytes = |numbers: u64| numbers * size_of::<f32>() as u64;
    let needs = |rung: Rung| Memory {
        package: rung.package,
        change: rung.change,
        weights: bytes(parameters),
        kv_at_2048: bytes(kept(&rung, layers, SHORT)),
        kv_at_full_context: bytes(kept(&rung, layers, config.trained_context)),
    };
    rungs().into_iter().map(needs).collect()
}

/// Numbers that a rung keeps of one sequence of so many tokens.
fn kept(rung: &Rung, layers: &[LayerKv], tokens: usize) -> u64 {
    let numbers = |size: KvSize, tokens: usize| size.numbers() as u64 * tokens as u64;
    let own = || layers.iter().filter_map(|layer| layer.size);
    if rung.package == NAIVE.package {
        0
    } else if rung.package == CONTIGUOUS.package {
        // Room in every layer as in the first.
        own().next().map_or(0, |first| layers.len() as u64 * numbers(first, tokens))
    } else if rung.change == RING.change {
        let seen = rings(layers).into_iter();
        seen.map(|(size, window)| numbers(size, window.unwrap_or(tokens).min(tokens))).sum()
    } else {
        own().map(|size| numbers(size, tokens)).sum()
    }
}

/// Of each layer that makes keys and values, how many tokens back it is looked at: by itself, and by the
/// layers after it that share what it made.
fn rings(layers: &[LayerKv]) -> Vec<(KvSize, Option<usize>)> {
    let mut rings: Vec<(KvSize, Option<usize>)> = Vec::new();
    for &LayerKv { size, window } in layers {
        match (size, rings.last_mut()) {
            (Some(size), _) => rings.push((size, window)),
            (None, Some((_, widest))) => *widest = widest.zip(window).map(|(a, b)| a.max(b)),
            (None, None) => {}
        }
    }
    rings
}

#[cfg(test)]
mod tests {
    use super::*;
    use flash_attention::TILES;
    use gqa_mla::{HybridCache, Room};
    use kv_cache::{ContiguousStore, KvCache, KvShape, Store};
    use model_files::Architecture;
    use naive_decode::{LoadOptions, Model};

    const TOKENS: usize = 64;

    /// Numbers in f32.
    fn held(bytes: usize) -> u64 {
        (bytes / size_of::<f32>()) as u64
    }

    fn is_kept(model: &Model, layers: &[LayerKv]) {
        let slab = ContiguousStore::new(KvShape::of(model), TOKENS, 1).unwrap();
        assert_eq!(kept(&CONTIGUOUS, layers, TOKENS), held(slab.allocated_bytes()));
        let room = Room { capacity: TOKENS, sequences: 1, spare: 0 };
        let rings = HybridCache::new(model, room).unwrap();
        assert_eq!(kept(&RING, layers, TOKENS), held(rings.allocated_bytes()));
        assert_eq!(
            kept(&TILES, layers, TOKENS),
            held(TOKENS * model.kv_bytes_per_token()),
            "tiles are whole at this length"
        );
        assert_eq!(kept(&NAIVE, layers, TOKENS), 0);
    }

    #[test]
    fn it_is_what_caches_set_aside() {
        for own in [
            r#""architectures": ["LlamaForCausalLM"]"#,
            r#""architectures": ["HybridForCausalLM"], "kv_shared_with": [null, 0, null, 2],
               "sliding_window": 16, "layer_types": ["sliding_attention", "sliding_attention",
               "full_attention", "full_attention"]"#,
            r#""architectures": ["Gemma3ForCausalLM"], "sliding_window": 16,
               "sliding_window_pattern": 2, "hidden_activation": "gelu_pytorch_tanh""#,
            r#""architectures": ["DeepseekV2ForCausalLM"], "q_lora_rank": null, "kv_lora_rank": 24,
               "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
               "moe_intermediate_size": 20, "n_routed_experts": null,
               "first_k_dense_replace": 4, "tie_word_embeddings": false"#,
        ] {
            let json = format!(
                r#"{{"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
                "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 64,
                "vocab_size": 97, "rms_norm_eps": 1e-6, "max_position_embeddings": 128, {own}}}"#
            );
            let architecture = Architecture::from_json("config.json", json.as_bytes()).unwrap();
            let model = architecture.random(1, LoadOptions::default()).unwrap();
            is_kept(&model, &architecture.kv());
        }
    }
}
