//! What is read from `config.json`, and what is refused.

use gqa_mla::hybrid::HybridConfig;

const QWEN3: &str = r#"{"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 96, "vocab_size": 300, "rms_norm_eps": 1e-6, "attention_bias": false,
    "hidden_act": "silu", "max_position_embeddings": 128, "rope_theta": 1000000,
    "max_window_layers": 4, "sliding_window": 16, "use_sliding_window": true}"#;

const TYPES: &str = r#""layer_types": ["sliding_attention", "sliding_attention", "full_attention",
    "sliding_attention", "sliding_attention", "full_attention"]"#;

/// `QWEN3` with fields put in front.
fn with(fields: &str) -> String {
    QWEN3.replacen('{', &format!("{{{fields}, "), 1)
}

/// A list of layer types, and who shares with whom.
fn shared(with_whom: &str) -> String {
    with(&format!("{TYPES}, \"kv_shared_with\": {with_whom}"))
        .replace("Qwen3ForCausalLM", "HybridForCausalLM")
}

fn read(json: &str) -> HybridConfig {
    HybridConfig::from_json("config.json", json.as_bytes()).unwrap()
}

#[test]
fn qwen3_says_its_windows_layer_by_layer_or_from_a_layer_on() {
    let (w, full) = (Some(16), None);
    let from_a_layer_on = read(QWEN3);
    assert_eq!(from_a_layer_on.windows, [full, full, full, full, w, w]);
    assert!(from_a_layer_on.qk_norm);
    assert_eq!((from_a_layer_on.base.head_dim, from_a_layer_on.base.rope_theta), (32, 1e6));
    assert_eq!(read(&with(TYPES)).windows, [w, w, full, w, w, full]);
    // The list alone will do.
    let unsaid = with(TYPES).replace(", \"use_sliding_window\": true", "");
    assert_eq!(read(&unsaid).windows, [w, w, full, w, w, full]);
    let off = |json: &str| json.replace("_window\": true", "_window\": false");
    assert_eq!(read(&off(QWEN3)).windows, [full; 6]);
    assert_eq!(read(&off(&with(TYPES))).windows, [full; 6]);
    // As published: no window at all, and said in every field there is.
    let published = off(QWEN3).replace("\"sliding_window\": 16", "\"sliding_window\": null");
    assert_eq!(read(&published).windows, [full; 6]);
}

#[test]
fn mistral_has_one_window_for_all_layers_and_no_qk_norm() {
    let mistral = QWEN3.replace("Qwen3", "Mistral");
    let config = read(&mistral);
    assert_eq!((config.windows, config.qk_norm), (vec![Some(16); 6], false));
    let later = mistral.replace("\"sliding_window\": 16", "\"sliding_window\": null");
    assert_eq!(read(&later).windows, [None; 6]);
}

#[test]
fn sharing_is_read_layer_by_layer() {
    let config = read(&shared("[null, 0, null, null, 3, null]"));
    assert_eq!(config.shares, [None, Some(0), None, None, Some(3), None]);
    assert!(config.qk_norm);
    assert_eq!(read(&with(TYPES)).shares, [None; 6]);
}

#[test]
fn refusals_name_field_found_and_expected() {
    let replaced = |from: &str, to: &str| {
        assert!(QWEN3.contains(from));
        QWEN3.replace(from, to)
    };
    for (json, words) in [
        (replaced("Qwen3", "Gemma"), ["architectures", "Gemma", "HybridForCausalLM"]),
        (replaced("\"Qwen3ForCausalLM\"", ""), ["architectures", "empty", "MistralForCausalLM"]),
        (replaced("_window\": 16", "_window\": 0"), ["sliding_window", "0", "between 1"]),
        (
            replaced("_window\": 16", "_window\": -3"),
            ["-3", "a whole number, 0 or more at line", "config.json"],
        ),
        (
            replaced("_window\": 16", "_window\": 99999999"),
            ["sliding_window", "99999999", "16777216"],
        ),
        (replaced("_window\": 16", "_window\": null"), ["sliding_window", "null", "layer 4"]),
        (replaced("\"max_window_layers\": 4,", ""), ["max_window_layers", "missing", "how many"]),
        (replaced("\"hidden_size\": 64", "\"hidden_size\": 0"), ["hidden_size", "0", "between 1"]),
        (replaced("bias\": false", "bias\": true"), ["attention_bias", "true", "no biases"]),
        (with("\"layer_types\": [\"full_attention\"]"), ["layer_types", "list of 1", "6 layers"]),
        (
            with(&TYPES.replacen("full_attention", "linear_attention", 1)),
            ["layer_types[2]", "linear_attention", "full_attention"],
        ),
        (
            replaced("Qwen3", "Mistral").replace("\"sliding_window\": 16, ", ""),
            ["sliding_window", "missing", "null for no window"],
        ),
        (
            with("\"kv_shared_with\": [null, 0, null, null, 3, null]"),
            ["kv_shared_with", "a list", "HybridForCausalLM"],
        ),
        (shared("[null, 0]"), ["kv_shared_with", "list of 2", "6 layers"]),
        (shared("[0, 0, null, null, 3, null]"), ["kv_shared_with[0]", "is 0", "no layer comes"]),
        (shared("[null, 2, null, null, 3, null]"), ["kv_shared_with[1]", "is 2", "null or 0"]),
        // A layer shares with one that shares itself, and with one that is not the nearest.
        (shared("[null, 0, null, null, 3, 4]"), ["kv_shared_with[5]", "is 4", "null or 3"]),
        (shared("[null, 0, null, null, 0, null]"), ["kv_shared_with[4]", "is 0", "null or 3"]),
        (
            shared("[null, 0, 0, null, 3, null]"),
            ["kv_shared_with[2]", "is 0, which sees 16 tokens", "sees everything"],
        ),
        ("[1, 2]".into(), ["config.json", "invalid type", "an object"]),
        ("{\"architectures\":".into(), ["config.json", "EOF", "line 1"]),
    ] {
        let error = HybridConfig::from_json("config.json", json.as_bytes()).unwrap_err();
        let said = error.to_string();
        for word in words {
            assert!(said.contains(word), "`{said}` lacks `{word}`");
        }
    }
}

#[test]
fn a_configuration_made_by_hand_is_checked_before_it_is_used() {
    let right = read(&shared("[null, 0, null, null, 3, null]"));
    let refused = |config: HybridConfig| {
        let options = naive_decode::LoadOptions::default();
        gqa_mla::hybrid::random(config, 1, options).err().expect("refused").to_string()
    };
    gqa_mla::hybrid::random(right.clone(), 1, naive_decode::LoadOptions::default()).unwrap();
    let said = refused(HybridConfig { windows: vec![None; 5], ..right.clone() });
    assert!(said.contains("list of 5") && said.contains("6 layers"), "{said}");
    let said = refused(HybridConfig { windows: vec![Some(0); 6], ..right.clone() });
    assert!(said.contains("sliding_window is 0"), "{said}");
    let mut later = right.clone();
    later.windows[5] = Some(0);
    assert!(refused(later).contains("sliding_window is 0"));
    let said = refused(HybridConfig { qk_norm: false, ..right });
    assert!(said.contains("QK norm"), "{said}");
}
