//! A model that turns long texts otherwise than short ones.

use crate::server::Server;
use embedded_models::DRAFT;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The embedded draft as Phi-3 has its matrices, several in one, with one list of factors for texts of up to 256 tokens and
/// another for texts of up to 1,024.
fn write_phi3(directory: &Path) {
    let mut config: Value = serde_json::from_slice(DRAFT.config).unwrap();
    config["architectures"] = json!(["Phi3ForCausalLM"]);
    config["model_type"] = json!("phi3");
    config["max_position_embeddings"] = json!(1_024);
    config["original_max_position_embeddings"] = json!(256);
    config["rope_scaling"] =
        json!({"type": "longrope", "short_factor": vec![1.0; 16], "long_factor": vec![4.0; 16]});
    let weights = SafeTensors::deserialize(DRAFT.weights).unwrap();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for name in weights.names() {
        let tensor = weights.tensor(name).unwrap();
        tensors.insert(name.to_owned(), (tensor.shape().to_vec(), tensor.data().to_vec()));
    }
    for layer in 0..config["num_hidden_layers"].as_u64().unwrap() {
        for (part, into, of) in [
            ("self_attn", "qkv_proj", &["q_proj", "k_proj", "v_proj"][..]),
            ("mlp", "gate_up_proj", &["gate_proj", "up_proj"]),
        ] {
            let name = |matrix: &str| format!("model.layers.{layer}.{part}.{matrix}.weight");
            let (mut shape, mut bytes) = (vec![0, 0], Vec::new());
            for matrix in of {
                let (own, more) = tensors.remove(&name(matrix)).unwrap();
                shape = vec![shape[0] + own[0], own[1]];
                bytes.extend(more);
            }
            tensors.insert(name(into), (shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
    write("config.json", config.to_string().as_bytes());
    write("model.safetensors", &bytes);
    write("tokenizer.json", DRAFT.tokenizer);
}

#[test]
fn a_model_with_frequencies_for_long_texts_takes_them_where_those_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    write_phi3(directory.path());
    let path = directory.path().to_str().unwrap();
    let model = ["--model", path];
    let of = |length: &[&str]| {
        let server = Server::start(&[&model[..], length].concat());
        let most = server.get("/v1/models")["data"][0]["max_model_len"].clone();
        let body =
            json!({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 1});
        (most, server.post("/v1/completions", &body)["choices"][0]["logprobs"].clone())
    };
    let (usual, short) = (of(&[]), of(&["--max-model-len", "256"]));
    assert_eq!((&usual.0, &usual), (&json!(256), &short));
    let long = of(&["--max-model-len", "257"]);
    assert_eq!(long.0, 257);
    assert_ne!(long.1, short.1, "other frequencies");
    assert_eq!(of(&["--max-model-len", "1024"]), (json!(1_024), long.1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    let refused =
        command.args(["serve", "--device", "cpu", "--max-model-len", "1025"]).args(model).output();
    let said = String::from_utf8(refused.unwrap().stderr).unwrap();
    assert!(said.contains("--max-model-len is 1025, expected at most 1024"), "{said}");
}

#[test]
fn generate_has_the_room_of_the_model_that_it_loads() {
    let directory = tempfile::tempdir().unwrap();
    write_phi3(directory.path());
    let generate = |prompt: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
        command.args(["generate", "--device", "cpu", "--prompt", prompt, "--model"]);
        let output = command.arg(directory.path()).args(more).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    // How many tokens went in, and how many came out.
    let counts = |(is_right, said): (bool, String)| {
        assert!(is_right, "{said}");
        let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<usize> = numbers.take(2).collect();
        (numbers[0], numbers[1])
    };
    // Nobody else can stretch it, so a climb that would leave its room does not begin.
    let climb = |tokens: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
        command.args(["climb", "--prompt", "Once", "--tokens", tokens, "--model"]);
        let output = command.arg(directory.path()).output().unwrap();
        (output.status.success(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let (is_right, told, said) = climb("1100");
    assert!(!is_right && told.is_empty() && said.contains("a stretching of its own"), "{said}");
    assert!(climb("8").0);
    // The prompt is within the short list's 256 tokens; what comes after it is not.
    let prompt = "Once upon a time there was a little fox. ".repeat(14);
    let (prompt_tokens, _) = counts(generate(&prompt, &[]));
    assert!((57..=256).contains(&prompt_tokens), "{prompt_tokens}");
    counts(generate(&prompt, &["--tokens", "700"]));
    let refused = generate(&prompt, &["--tokens", "1000"]);
    assert!(!refused.0 && refused.1.contains("do not fit"), "{}", refused.1);
    // A stretching in the config is room, too: 512 tokens, twice.
    let path = directory.path().join("config.json");
    let mut config: Value = serde_json::from_slice(DRAFT.config).unwrap();
    config["rope_scaling"] = json!({"rope_type": "yarn", "factor": 2.0});
    std::fs::write(path, config.to_string()).unwrap();
    std::fs::write(directory.path().join("model.safetensors"), DRAFT.weights).unwrap();
    let (prompt_tokens, written) = counts(generate(&prompt.repeat(3), &[]));
    assert!(prompt_tokens > 512 && written > 1, "{prompt_tokens} in, {written} out");
}
