//! What can be wrong with a checkpoint of each family ends in one error that names file, tensor or
//! field, what was found and what was expected.

use super::checkpoint::{self as tiny, Checkpoint, with};
use ladder_tests::watched::most_held_while;
use model_files::{Architecture, ModelFiles};
use naive_decode::{Error, LoadOptions};
use serde_json::{Value, json};

fn refused(config: &Value) -> String {
    match Architecture::from_json("config.json", config.to_string().as_bytes()) {
        Ok(_) => panic!("{config} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_unknown_architecture_is_told_the_known_ones() {
    for named in [json!(["MambaForCausalLM"]), json!([]), Value::Null, json!("LlamaForCausalLM")] {
        let said = refused(&with(tiny::llama(), json!({ "architectures": named })));
        let known: Vec<_> = Architecture::known().collect();
        assert!(said.starts_with("config.json: architectures is "), "{said}");
        if named.is_array() {
            assert!(said.ends_with(&format!("expected one of: {}", known.join(", "))), "{said}");
        }
    }
}

/// Each family, and a tensor that only some families have.
fn families() -> Vec<(Value, &'static str, Vec<usize>)> {
    vec![
        (tiny::llama(), "model.layers.1.self_attn.k_proj.weight", vec![24, 48]),
        (tiny::mistral(), "model.layers.1.self_attn.v_proj.weight", vec![24, 48]),
        (tiny::qwen2(), "model.layers.1.self_attn.k_proj.bias", vec![24]),
        (tiny::qwen3(), "model.layers.1.self_attn.q_norm.weight", vec![16]),
        (tiny::qwen3_moe(), "model.layers.1.mlp.gate.weight", vec![5, 48]),
        (tiny::qwen3_moe(), "model.layers.1.mlp.experts.4.down_proj.weight", vec![48, 24]),
        (tiny::phi3(), "model.layers.1.self_attn.qkv_proj.weight", vec![96, 48]),
        (tiny::phi3(), "model.layers.1.mlp.gate_up_proj.weight", vec![160, 48]),
        (tiny::granite(), "model.layers.1.mlp.gate_proj.weight", vec![80, 48]),
        (tiny::olmo2(), "model.layers.1.post_feedforward_layernorm.weight", vec![48]),
        (tiny::olmo3(), "model.layers.1.self_attn.k_norm.weight", vec![24]),
        (tiny::gemma2(), "model.layers.1.pre_feedforward_layernorm.weight", vec![48]),
        (tiny::gemma3(), "model.layers.1.self_attn.k_norm.weight", vec![16]),
        (tiny::deepseek2(), "model.layers.1.self_attn.kv_b_proj.weight", vec![112, 24]),
        (tiny::deepseek3(), "model.layers.1.mlp.gate.e_score_correction_bias", vec![6]),
        (tiny::hybrid(), "model.layers.1.self_attn.q_norm.weight", vec![16]),
    ]
}

#[test]
fn a_tensor_that_is_missing_or_of_another_shape_is_named() {
    for (config, tensor, shape) in families() {
        let directory = tempfile::tempdir().unwrap();
        let mut checkpoint = Checkpoint::random(config);
        let load = |checkpoint: &Checkpoint| {
            let path = checkpoint.write(directory.path());
            let files = ModelFiles::open_directory(directory.path()).unwrap();
            (path.display().to_string(), files.load(LoadOptions::default()).map(drop))
        };
        load(&checkpoint).1.unwrap();
        let (found, _) = &mut checkpoint.tensors.get_mut(tensor).unwrap();
        assert_eq!(*found, shape, "{tensor}");
        found.insert(0, 1);
        match load(&checkpoint) {
            (path, Err(Error::TensorShape { file, tensor: named, expected, found })) => {
                assert_eq!((file, named.as_str(), &expected), (path, tensor, &shape));
                assert_eq!(found[1..], shape);
            }
            (_, other) => panic!("{tensor}: {other:?}"),
        }
        checkpoint.tensors.remove(tensor);
        match load(&checkpoint) {
            (path, Err(Error::MissingTensor { file, tensor: named, expected })) => {
                assert_eq!((file, named.as_str(), expected), (path, tensor, shape));
            }
            (_, other) => panic!("{tensor}: {other:?}"),
        }
    }
}

#[test]
fn configs_that_contradict_themselves_are_refused_by_field() {
    let long = |scaling: Value| {
        json!({ "original_max_position_embeddings": 16,
        "rope_scaling": scaling })
    };
    for (config, fields, words) in [
        (tiny::llama(), json!({ "attention_bias": true }), ["attention_bias", "true", "no bias"]),
        (tiny::llama(), json!({ "hidden_act": "gelu" }), ["hidden_act", "gelu", "silu"]),
        (
            tiny::smollm3(),
            json!({ "no_rope_layers": [1, 0] }),
            ["no_rope_layers", "[1,0]", "3 numbers"],
        ),
        (
            tiny::smollm3(),
            json!({ "no_rope_layers": [1, 2, 0] }),
            ["no_rope_layers", "[1,2,0]", "0 for one that does not"],
        ),
        (
            tiny::smollm3(),
            json!({ "no_rope_layers": null, "no_rope_layer_interval": 0 }),
            ["no_rope_layer_interval", "0", "at least 1"],
        ),
        (tiny::smollm3(), json!({ "mlp_bias": true }), ["mlp_bias", "true", "no bias"]),
        (tiny::qwen2(), json!({ "num_key_value_heads": 3 }), ["num_key_value_heads", "3", "4"]),
        (
            tiny::qwen2(),
            json!({ "use_sliding_window": true, "max_window_layers": null }),
            ["max_window_layers", "missing", "layer_types"],
        ),
        (tiny::qwen3_moe(), json!({ "num_experts": null }), ["num_experts", "null", "at least 1"]),
        (
            tiny::qwen3_moe(),
            json!({ "num_experts_per_tok": 6 }),
            ["num_experts_per_tok", "6", "between 1 and 5"],
        ),
        (
            tiny::qwen3_moe(),
            json!({ "decoder_sparse_step": 2 }),
            ["decoder_sparse_step", "2", "every layer has experts"],
        ),
        (
            tiny::qwen3_moe(),
            json!({ "use_sliding_window": true }),
            ["use_sliding_window", "true", "every layer sees everything"],
        ),
        (
            tiny::qwen3_moe(),
            json!({ "mlp_only_layers": [0] }),
            ["mlp_only_layers", "[0]", "every layer has experts"],
        ),
        (
            tiny::qwen3_moe(),
            json!({ "norm_topk_prob": 1 }),
            ["norm_topk_prob", "1", "true or false"],
        ),
        (tiny::phi3(), json!({ "sliding_window": 0 }), ["sliding_window", "0", "between 1"]),
        (
            tiny::phi3(),
            json!({ "partial_rotary_factor": 1.5 }),
            ["partial_rotary_factor", "1.5", "part of a head"],
        ),
        (
            tiny::phi3(),
            json!({ "partial_rotary_factor": 0.5, "head_dim": 12, "rope_scaling":
                { "type": "linear", "factor": 2.0 } }),
            ["partial_rotary_factor", "0.5", "1"],
        ),
        (
            tiny::phi3(),
            long(json!({ "type": "longrope", "short_factor": [1.0, 2.0] })),
            ["short_factor", "2", "6"],
        ),
        (
            tiny::phi3(),
            long(json!({ "type": "longrope", "short_factor": "no" })),
            ["short_factor", "no", "a list of numbers"],
        ),
        (
            tiny::phi3(),
            long(json!({ "type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1],
                "attention_factor": 0.0 })),
            ["rope_scaling.attention_factor", "0.0", "a number above 0"],
        ),
        (
            tiny::phi3(),
            long(json!({ "type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1],
                "attention_factor": "1.2" })),
            ["rope_scaling.attention_factor", "\"1.2\"", "a number above 0"],
        ),
        (
            tiny::phi3(),
            json!({ "rope_scaling": { "type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1] } }),
            ["original_max_position_embeddings", "missing", "a number of tokens"],
        ),
        (
            tiny::granite(),
            json!({ "embedding_multiplier": 0.0 }),
            ["embedding_multiplier", "0.0", "above 0"],
        ),
        (
            tiny::granite(),
            json!({ "residual_multiplier": "x" }),
            ["residual_multiplier", "x", "a number"],
        ),
        (
            tiny::granite(),
            json!({ "attention_multiplier": -0.5 }),
            ["attention_multiplier", "-0.5", "above 0"],
        ),
        (
            tiny::granite(),
            json!({ "logits_scaling": 1e-60 }),
            ["logits_scaling", "1e-60", "32 bits"],
        ),
        (tiny::olmo2(), json!({ "attention_bias": true }), ["attention_bias", "true", "no bias"]),
        (
            tiny::olmo3(),
            json!({ "layer_types": null, "sliding_window_pattern": 0 }),
            ["sliding_window_pattern", "0", "at least 1"],
        ),
        (
            tiny::olmo3(),
            json!({ "rope_parameters": { "sliding_attention": { "rope_theta": 0 } } }),
            ["rope_parameters.sliding_attention.rope_theta", "0", "a number above 0"],
        ),
        (tiny::granite(), json!({ "attention_bias": true }), ["attention_bias", "true", "no bias"]),
        (
            tiny::gemma2(),
            json!({ "hidden_activation": "relu" }),
            ["hidden_activation", "relu", "gelu_pytorch_tanh"],
        ),
        (
            tiny::gemma2(),
            json!({ "attn_logit_softcapping": -2.0 }),
            ["attn_logit_softcapping", "-2", "above 0"],
        ),
        (
            tiny::gemma2(),
            json!({ "final_logit_softcapping": "x" }),
            ["final_logit_softcapping", "x", "a number"],
        ),
        (
            tiny::gemma3(),
            json!({ "sliding_window_pattern": 0 }),
            ["sliding_window_pattern", "0", "at least 1"],
        ),
        (
            tiny::gemma3(),
            json!({ "rope_local_base_freq": 0.0 }),
            ["rope_local_base_freq", "0", "above 0"],
        ),
        (
            tiny::gemma3(),
            json!({ "num_hidden_layers": 1u64 << 60 }),
            ["num_hidden_layers", "1152921504606846976", "at most 65536"],
        ),
        (
            tiny::gemma3(),
            json!({ "layer_types": ["full_attention"] }),
            ["layer_types", "1", "3 layers"],
        ),
        (tiny::deepseek2(), json!({ "qk_rope_head_dim": 7 }), ["qk_rope_head_dim", "7", "even"]),
        (
            tiny::hybrid(),
            json!({ "kv_shared_with": [null, null, 0] }),
            ["kv_shared_with[2]", "0", "null or 1"],
        ),
    ] {
        let config = with(config, fields);
        let said = refused(&config);
        for word in words.iter().chain(&["config.json"]) {
            assert!(said.contains(word), "`{said}` lacks `{word}`");
        }
    }
}

/// Whoever runs Llama's blocks by other means, as a GPU does, is not handed others in their place.
#[test]
fn blocks_that_are_not_llamas_are_not_taken_for_them() {
    let plain = |config: Value| {
        let directory = tempfile::tempdir().unwrap();
        Checkpoint::random(config).write(directory.path());
        let files = ModelFiles::open_directory(directory.path()).unwrap();
        files.plain_llama(None).map(drop).map_err(|error| error.to_string())
    };
    plain(tiny::llama()).unwrap();
    for config in [tiny::qwen2(), tiny::granite(), tiny::olmo2(), tiny::gemma2()] {
        let said = plain(config.clone()).unwrap_err();
        assert!(said.contains("another family's, expected Llama's blocks"), "{config}: {said}");
    }
}

#[test]
fn a_stretching_that_is_not_known_is_refused_on_loading() {
    let scaling = json!({ "rope_scaling": { "type": "dynamic", "factor": 2.0 } });
    let config = with(tiny::qwen2(), scaling);
    let read = Architecture::from_json("config.json", config.to_string().as_bytes()).unwrap();
    let said = match read.random(1, LoadOptions::default()) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains("dynamic") && said.contains("linear, ntk, yarn or llama3"), "{said}");
}

/// A config of a kilobyte must not ask for memory out of proportion, whatever its sizes.
#[test]
fn sizes_no_model_has() {
    let values = [0, 1, 2, 65_536, 65_537, 1 << 24, (1 << 24) + 1, 1 << 32, u64::MAX];
    for (config, ..) in families() {
        let fields = config.as_object().unwrap();
        for (field, _) in fields.iter().filter(|(_, value)| value.is_u64()) {
            for value in values {
                let changed = with(config.clone(), json!({ field: value })).to_string();
                let (_, most) = most_held_while(|| {
                    Architecture::from_json("config.json", changed.as_bytes()).map(drop)
                });
                // The widest head there may be has eight million pairs to turn.
                assert!(most < 128 << 20, "{most} bytes were held: {changed}");
            }
        }
    }
}
