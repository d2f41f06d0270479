//! Models whose cache is smaller by design: latents with and without absorption and experts, windows,
//! shared layers. And families that add something to Llama: biases, caps, norms, other turns.

use crate::judge::{Feed, Judge};
use crate::matrix::remembering;
use crate::models::{CONTEXT, noise};
use gqa_mla::hybrid::{self, HybridConfig};
use gqa_mla::mla::{self, Form, MlaConfig};
use model_files::Architecture;
use naive_decode::{Element, Isa, LoadOptions, Model};
use std::sync::Arc;

const VOCAB: usize = 97;

/// Two layers of three heads, the second with experts; queries with a latent of their own or without.
fn latent(form: Form, q_rank: Option<usize>, isa: Isa, kv_element: Element) -> Model {
    let q_rank = q_rank.map_or("null".into(), |rank| rank.to_string());
    let json = format!(
        r#"{{"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": {q_rank},
            "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
            "intermediate_size": 64, "moe_intermediate_size": 20, "n_routed_experts": 5,
            "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
            "norm_topk_prob": false, "routed_scaling_factor": 1.0, "topk_method": "greedy",
            "scoring_func": "softmax", "moe_layer_freq": 1, "vocab_size": {VOCAB},
            "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": {CONTEXT},
            "tie_word_embeddings": false}}"#
    );
    let config = MlaConfig::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(CONTEXT), kv_element, isa };
    mla::random(&config, 11, form, options).unwrap()
}

/// Windows of 48 in four layers of six; the second of each three reads the first one's keys and values.
fn windowed(isa: Isa, kv_element: Element) -> Model {
    let json = format!(
        r#"{{"architectures": ["HybridForCausalLM"], "hidden_size": 48, "num_hidden_layers": 6,
            "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
            "intermediate_size": 64, "vocab_size": {VOCAB}, "rms_norm_eps": 1e-5,
            "max_position_embeddings": {CONTEXT}, "tie_word_embeddings": true,
            "sliding_window": 48, "kv_shared_with": [null, 0, null, null, 3, null],
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                            "sliding_attention", "sliding_attention", "full_attention"]}}"#
    );
    let config = HybridConfig::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(CONTEXT), kv_element, isa };
    hybrid::random(config, 12, options).unwrap()
}

/// A model of another family: what all have in common, and the fields that are its own.
fn family(own: &str, isa: Isa, kv_element: Element) -> Model {
    let json = format!(
        r#"{{"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": {VOCAB},
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": {CONTEXT}, {own}}}"#
    );
    let architecture = Architecture::from_json("config.json", json.as_bytes()).unwrap();
    let options = LoadOptions { context: Some(CONTEXT), kv_element, isa };
    architecture.random(13, options).unwrap()
}

const QWEN2: &str = r#""architectures": ["Qwen2ForCausalLM"]"#;

const SMOLLM3: &str = r#""architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 0, 1]"#;

const QWEN3_MOE: &str = r#""architectures": ["Qwen3MoeForCausalLM"], "head_dim": 16, "num_experts": 5,
    "num_experts_per_tok": 2, "moe_intermediate_size": 20, "norm_topk_prob": true"#;

/// Half of each head is turned, by frequencies of its own; windows in all layers.
const PHI3: &str = r#""architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.5,
    "sliding_window": 70"#;

const GRANITE: &str = r#""architectures": ["GraniteForCausalLM"], "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 3.0"#;

const OLMO2: &str = r#""architectures": ["Olmo2ForCausalLM"]"#;

const OLMO3: &str = r#""architectures": ["Olmo3ForCausalLM"], "sliding_window": 48,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}"#;

const GEMMA2: &str = r#""architectures": ["Gemma2ForCausalLM"], "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 20, "sliding_window": 48"#;

const GEMMA3: &str = r#""architectures": ["Gemma3ForCausalLM"], "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16, "sliding_window": 48, "sliding_window_pattern": 3,
    "rope_local_base_freq": 500.0"#;

type Build = fn(Isa, Element) -> Model;

const MODELS: [(&str, Build); 14] = [
    ("latents, explicit", |isa, element| latent(Form::Explicit, None, isa, element)),
    ("latents, absorbed", |isa, element| latent(Form::Absorbed, None, isa, element)),
    ("compressed queries, explicit", |isa, element| latent(Form::Explicit, Some(20), isa, element)),
    ("compressed queries, absorbed", |isa, element| latent(Form::Absorbed, Some(20), isa, element)),
    ("windows and shared layers", windowed),
    ("SmolLM3", |isa, element| family(SMOLLM3, isa, element)),
    ("Qwen2", |isa, element| family(QWEN2, isa, element)),
    ("Qwen3 MoE", |isa, element| family(QWEN3_MOE, isa, element)),
    ("Phi-3", |isa, element| family(PHI3, isa, element)),
    ("Granite", |isa, element| family(GRANITE, isa, element)),
    ("OLMo 2", |isa, element| family(OLMO2, isa, element)),
    ("OLMo 3", |isa, element| family(OLMO3, isa, element)),
    ("Gemma 2", |isa, element| family(GEMMA2, isa, element)),
    ("Gemma 3", |isa, element| family(GEMMA3, isa, element)),
];

#[test]
fn every_rung_on_every_architecture_element_and_chunk() {
    for (name, build) in MODELS {
        for element in [Element::F32, Element::Bf16] {
            let model = Arc::new(build(Isa::best(), element));
            let judge = Judge::new(model.clone(), noise(560, VOCAB));
            let name = format!("{name}, {element:?}");
            for rung in remembering() {
                for prefill_chunk in [Some(1), Some(7), Some(64), Some(513), None] {
                    let feed = Feed { prompt: 550, prefill_chunk, ..Feed::new(&name, &model) };
                    judge.check(&rung, feed);
                }
                let feed = Feed { prompt: 550, piece: 7, ..Feed::new(&name, &model) };
                judge.check(&rung, feed);
            }
        }
    }
}

#[test]
fn every_architecture_on_every_instruction_set_and_thread_count() {
    for (name, build) in MODELS {
        let plain = Arc::new(build(Isa::SCALAR, Element::F32));
        let judge = Judge::new(plain, noise(90, VOCAB));
        for isa in Isa::available() {
            let model = Arc::new(build(isa, Element::F32));
            for rung in serving::rungs() {
                for threads in [1, 2, 3] {
                    let feed = Feed { prompt: 80, piece: 80, threads, ..Feed::new(name, &model) };
                    judge.check(&rung, feed);
                }
            }
        }
    }
}

/// The same on every processor: these hashes were taken on x86-64, and whatever else these tests are run on has to find
/// them too. (CI's emulator of AArch64 runs the kernels' tests alone.) The tests above compare what one processor can do
/// with itself.
#[test]
fn every_processor_gives_these_bits() {
    let hash_of = |(name, build): (&str, Build)| {
        [Element::F32, Element::Bf16].map(|element| {
            let judge = Judge::new(Arc::new(build(Isa::best(), element)), noise(560, VOCAB));
            let bytes: Vec<u8> =
                judge.logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            format!("{name}, {element:?}: {:.16}", blake3::hash(&bytes).to_hex())
        })
    };
    insta::assert_snapshot!(MODELS.map(hash_of).as_flattened().join("\n"), @r"
    latents, explicit, F32: bbb123a01f483d1c
    latents, explicit, Bf16: a1b62fc9985a0496
    latents, absorbed, F32: 57572e63a18f5e9e
    latents, absorbed, Bf16: 6efd8b3c46b7416c
    compressed queries, explicit, F32: 96f7da1a26cb2325
    compressed queries, explicit, Bf16: 9082b5393050e14b
    compressed queries, absorbed, F32: f50bd408b1214548
    compressed queries, absorbed, Bf16: 93a007f81ede0ceb
    windows and shared layers, F32: bd89b699f5345f20
    windows and shared layers, Bf16: f55b27c3683a7afb
    SmolLM3, F32: afef89df5bc372d1
    SmolLM3, Bf16: 3d75bbc3c8e91b7d
    Qwen2, F32: de19f9e986c89070
    Qwen2, Bf16: 5f2330f48848729e
    Qwen3 MoE, F32: cf2685e8f09d3c43
    Qwen3 MoE, Bf16: 7503c21ecff7fe29
    Phi-3, F32: 6cc2a07e309cd1ff
    Phi-3, Bf16: bb23e8e9135d1174
    Granite, F32: 7bebeb2788015d5a
    Granite, Bf16: f52b131d4a048111
    OLMo 2, F32: 0d8ff2a7ad255d1f
    OLMo 2, Bf16: 1ba23c6414248b49
    OLMo 3, F32: eea37343f53bd9d5
    OLMo 3, Bf16: 33b6885f958d261b
    Gemma 2, F32: 727c6374d6ad5093
    Gemma 2, Bf16: 3d301a93d71b8301
    Gemma 3, F32: feda672747046c01
    Gemma 3, Bf16: 01e86241fc3a1125
    ");
}

/// The two forms are different sums of the same weights: close, and never the same bits by right.
#[test]
fn absorption_changes_no_greedy_token() {
    for q_rank in [None, Some(20)] {
        let tokens = noise(560, VOCAB);
        let [explicit, absorbed] = [Form::Explicit, Form::Absorbed].map(|form| {
            let model = Arc::new(latent(form, q_rank, Isa::best(), Element::F32));
            Judge::new(model, tokens.clone()).logits
        });
        let largest = explicit.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
        for (a, b) in explicit.rows().into_iter().zip(absorbed.rows()) {
            let (a, b) = (a.as_slice().unwrap(), b.as_slice().unwrap());
            assert_eq!(naive_decode::argmax(a).unwrap(), naive_decode::argmax(b).unwrap());
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= mla::FORMS_AGREE * largest, "{a} and {b} of {largest}");
            }
        }
    }
}
