//! Configs and checkpoints of latent attention that cannot be worked with: each refusal says what
//! was found, where, and what would have been right.

use gqa_mla::mla::{Form, MlaConfig, assemble, random};
use naive_decode::{Error, LoadOptions, dense, random_tensors};

const V2: &str = include_str!("configs/deepseek_v2_lite.json");
const V3: &str = include_str!("configs/deepseek_v3.json");

fn read(json: &str) -> naive_decode::Result<MlaConfig> {
    MlaConfig::from_json("config.json", json.as_bytes())
}

#[test]
fn published_configs_are_read() {
    let lite = read(V2).unwrap();
    assert_eq!((lite.model.layers, lite.kv_lora_rank, lite.q_lora_rank), (27, 512, None));
    let experts = lite.experts.unwrap();
    assert_eq!((experts.n_group, experts.in_layer(0), experts.in_layer(1)), (1, false, true));
    let v3 = read(V3).unwrap();
    assert_eq!((v3.model.heads, v3.q_lora_rank), (128, Some(1536)));
    let experts = v3.experts.unwrap();
    assert_eq!((experts.n_group, experts.topk_group, experts.norm_topk_prob), (8, 4, true));
    assert!(!experts.in_layer(2) && experts.in_layer(3));
    // What V2 leaves out is as in its own code.
    let fields = ["\"n_shared_experts\": 2,", "\"routed_scaling_factor\": 1.0,"];
    let short = fields.iter().fold(V2.to_owned(), |json, field| json.replace(field, ""));
    let experts = read(&short).unwrap().experts.unwrap();
    assert_eq!((experts.n_shared_experts, experts.routed_scaling_factor), (0, 1.0));
    // Without experts it is a model all the same.
    assert_eq!(read(&V2.replace("\"n_routed_experts\": 64,", "")).unwrap().experts, None);
}

#[test]
fn refusals_name_field_found_and_expected() {
    for (json, from, to, words) in [
        (V2, "DeepseekV2", "Llama", "architectures is [\"LlamaForCausalLM\"], expected one of"),
        (V2, "\"kv_lora_rank\": 512", "\"kv_lora_rank\": 0", "kv_lora_rank is 0, expected between"),
        (V2, "\"kv_lora_rank\": 512,", "", "missing field `kv_lora_rank`"),
        (
            V2,
            "\"v_head_dim\": 128",
            "\"v_head_dim\": \"x\"",
            "v_head_dim: invalid type: string \"x\"",
        ),
        (
            V2,
            "\"moe_layer_freq\": 1",
            "\"moe_layer_freq\": \"x\"",
            "moe_layer_freq: invalid type: string \"x\", expected a whole number, 0 or more",
        ),
        (
            V2,
            "_rope_head_dim\": 64",
            "_rope_head_dim\": 63",
            "qk_rope_head_dim is 63, expected an e",
        ),
        (V2, "_rope_head_dim\": 64", "_rope_head_dim\": 0", "qk_rope_head_dim is 0, expected at l"),
        (
            V2,
            "_nope_head_dim\": 128",
            "_nope_head_dim\": 0",
            "qk_nope_head_dim is 0, expected betw",
        ),
        (V2, "\"q_lora_rank\": null", "\"q_lora_rank\": 0", "q_lora_rank is 0, expected between 1"),
        (V2, "\"attention_bias\": false", "\"attention_bias\": true", "expected no biases"),
        (
            V2,
            "\"v_head_dim\"",
            "\"rope_interleave\": false, \"v_head_dim\"",
            "rope_interleave is f",
        ),
        (
            V2,
            "\"type\": \"yarn\"",
            "\"type\": \"dynamic\"",
            "is dynamic, expected linear, ntk, yarn or",
        ),
        (V2, "\"mscale\": 0.707", "\"mscale\": -1", "rope_scaling.mscale is -1, expected a number"),
        (V2, "\"num_experts_per_tok\": 6,", "", "num_experts_per_tok is missing, expected a num"),
        (V2, "_per_tok\": 6", "_per_tok\": 65", "num_experts_per_tok is 65, expected between 1 an"),
        (
            V2,
            "\"topk_method\": \"greedy\"",
            "\"topk_method\": \"noaux_tc\"",
            "noaux_tc with softmax",
        ),
        (
            V2,
            "\"moe_layer_freq\": 1",
            "\"moe_layer_freq\": 0",
            "moe_layer_freq is 0, expected betw",
        ),
        (
            V3,
            "\"n_group\": 8",
            "\"n_group\": 7",
            "n_group is 7, expected a divisor of n_routed_exp",
        ),
        // V3's numbers are not V2's: 1, 3, 8, 4 and 2.5 where V2 has 0, 0, 1, 1 and 1.
        (V3, "\"n_shared_experts\": 1,", "", "n_shared_experts is missing, expected a number"),
        (V3, "\"first_k_dense_replace\": 3,", "", "first_k_dense_replace is missing, expected a n"),
        (V3, "\"n_group\": 8,", "", "n_group is missing, expected a number"),
        (V3, "\"topk_group\": 4,", "", "topk_group is missing, expected a number"),
        (
            V3,
            "\"routed_scaling_factor\": 2.5,",
            "",
            "routed_scaling_factor is missing, expected a n",
        ),
        (V3, "\"topk_group\": 4", "\"topk_group\": 9", "topk_group is 9, expected between 1 and 8"),
    ] {
        let changed = json.replace(from, to);
        assert_ne!(changed, json, "{from}");
        let said = read(&changed).expect_err(to).to_string();
        assert!(said.contains(words) && said.contains("config.json"), "`{said}` lacks `{words}`");
    }
    assert!(read("[1, 2]").is_err());
}

/// A config that takes no time to build.
fn tiny() -> MlaConfig {
    let mut config = read(V2).unwrap();
    (config.model.hidden_size, config.model.vocab_size, config.model.layers) = (16, 20, 2);
    (config.model.heads, config.model.intermediate_size) = (2, 8);
    (config.kv_lora_rank, config.qk_nope_head_dim, config.v_head_dim) = (8, 4, 4);
    (config.qk_rope_head_dim, config.model.trained_context) = (4, 32);
    let experts = config.experts.as_mut().unwrap();
    (experts.moe_intermediate_size, experts.n_routed_experts) = (4, 8);
    config
}

#[test]
fn a_latent_of_the_wrong_width_is_named() {
    let options = LoadOptions::default();
    for (tensor, shape) in [
        ("kv_a_proj_with_mqa.weight", vec![12, 16]),
        ("kv_a_layernorm.weight", vec![8]),
        ("kv_b_proj.weight", vec![16, 8]),
        ("q_proj.weight", vec![16, 16]),
    ] {
        for form in [Form::Explicit, Form::Absorbed] {
            let plain = random_tensors(1);
            // A checkpoint whose latent is 9 wide, or whose matrix otherwise does not fit.
            let tensors = |name: &str, expected: &[usize]| match name.ends_with(tensor) {
                false => plain(name, expected),
                true => Err(Error::TensorShape {
                    file: "model.safetensors".into(),
                    tensor: name.into(),
                    expected: expected.to_vec(),
                    found: vec![9],
                }),
            };
            let built = assemble(&tiny(), form, options, &tensors, &dense(options.isa));
            let said = built.err().expect("refused").to_string();
            let expected = format!("self_attn.{tensor}` has shape [9], expected {shape:?}");
            assert!(said.contains(&expected), "`{said}` lacks `{expected}`");
        }
    }
}

#[test]
fn a_config_that_was_changed_by_hand_is_checked_again() {
    let build =
        |config: &MlaConfig| random(config, 1, Form::Absorbed, LoadOptions::default()).map(drop);
    build(&tiny()).unwrap();
    let said = |change: fn(&mut MlaConfig)| {
        let mut config = tiny();
        change(&mut config);
        build(&config).unwrap_err().to_string()
    };
    assert!(said(|config| config.kv_lora_rank = 0).starts_with("kv_lora_rank is 0, expected"));
    assert!(said(|config| config.qk_rope_head_dim = 5).starts_with("qk_rope_head_dim is 5"));
    let said = said(|config| config.experts.as_mut().unwrap().num_experts_per_tok = 9);
    assert_eq!(said, "num_experts_per_tok is 9, expected between 1 and 8");
}
