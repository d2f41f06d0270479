//! The embedded files are what their configs promise, and fit the generated text.

use embedded_models::recall::World;
use embedded_models::{EmbeddedModel, HEADS, NAMES, TARGET, all, words};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tokenizers::Tokenizer;

fn tokenizer(model: &EmbeddedModel) -> Tokenizer {
    let json = str::from_utf8(model.tokenizer).expect("tokenizer.json is text");
    json.parse().expect("tokenizer.json parses")
}

fn size(config: &Value, key: &str) -> usize {
    config[key].as_u64().unwrap_or_else(|| panic!("config.json has no number {key}")) as usize
}

/// Every tensor of a tied model with this config: its name and shape.
fn tensors(config: &Value) -> Vec<(String, Vec<usize>)> {
    let size = |key| size(config, key);
    let (d, ff) = (size("hidden_size"), size("intermediate_size"));
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), vec![size("vocab_size"), d]),
        ("model.norm.weight".to_owned(), vec![d]),
    ];
    for layer in 0..size("num_hidden_layers") {
        let attention = match config["architectures"][0].as_str() {
            Some("LlamaForCausalLM") => grouped(config, true),
            Some("HybridForCausalLM") => {
                let own = config["kv_shared_with"][layer].is_null();
                let dim = size("head_dim");
                let mut parts = grouped(config, own);
                parts.push(("self_attn.q_norm", vec![dim]));
                parts.extend(own.then(|| ("self_attn.k_norm", vec![dim])));
                parts
            }
            Some("DeepseekV2ForCausalLM") => latent(config),
            other => panic!("an architecture that is not known here: {other:?}"),
        };
        let rest = [
            ("input_layernorm", vec![d]),
            ("post_attention_layernorm", vec![d]),
            ("mlp.gate_proj", vec![ff, d]),
            ("mlp.up_proj", vec![ff, d]),
            ("mlp.down_proj", vec![d, ff]),
        ];
        for (name, shape) in attention.into_iter().chain(rest) {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    tensors
}

/// Grouped queries; keys and values only where a layer makes its own.
fn grouped(config: &Value, makes_keys: bool) -> Vec<(&'static str, Vec<usize>)> {
    let (d, dim) = (size(config, "hidden_size"), size(config, "head_dim"));
    let q = size(config, "num_attention_heads") * dim;
    let kv = size(config, "num_key_value_heads") * dim;
    let mut parts = vec![("self_attn.q_proj", vec![q, d]), ("self_attn.o_proj", vec![d, q])];
    if makes_keys {
        parts.push(("self_attn.k_proj", vec![kv, d]));
        parts.push(("self_attn.v_proj", vec![kv, d]));
    }
    parts
}

/// A latent for all heads, without query compression.
fn latent(config: &Value) -> Vec<(&'static str, Vec<usize>)> {
    let size = |key| size(config, key);
    let (d, heads) = (size("hidden_size"), size("num_attention_heads"));
    let (rank, nope) = (size("kv_lora_rank"), size("qk_nope_head_dim"));
    let (rope, value) = (size("qk_rope_head_dim"), size("v_head_dim"));
    vec![
        ("self_attn.q_proj", vec![heads * (nope + rope), d]),
        ("self_attn.kv_a_proj_with_mqa", vec![rank + rope, d]),
        ("self_attn.kv_a_layernorm", vec![rank]),
        ("self_attn.kv_b_proj", vec![heads * (nope + value), rank]),
        ("self_attn.o_proj", vec![d, heads * value]),
    ]
}

fn assert_tensors(weights: &[u8], dtype: Dtype, mut expected: Vec<(String, Vec<usize>)>) {
    let file = SafeTensors::deserialize(weights).expect("model.safetensors parses");
    let mut found: Vec<_> =
        file.iter().map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec())).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert!(file.iter().all(|(_, tensor)| tensor.dtype() == dtype));
}

#[test]
fn the_family_has_the_tensors_its_configs_promise() {
    for model in all() {
        let config: Value = serde_json::from_slice(model.config).expect("config.json parses");
        assert_eq!(config["tie_word_embeddings"], true, "{}", model.name);
        assert_tensors(model.weights, Dtype::BF16, tensors(&config));
    }
}

#[test]
fn the_heads_have_the_tensors_that_the_target_asks_for() {
    let config: Value = serde_json::from_slice(TARGET.config).expect("config.json parses");
    let d = size(&config, "hidden_size");
    let medusa = (0..3).map(|place| (format!("medusa.{place}.weight"), vec![d, d])).collect();
    assert_tensors(HEADS.medusa, Dtype::BF16, medusa);
    // One of the target's blocks, and what joins a hidden state and a token.
    let name = "model.layers.0.";
    let is_part =
        |(part, _): &(String, Vec<usize>)| part.starts_with(name) || part == "model.norm.weight";
    let mut mtp: Vec<_> = tensors(&config).into_iter().filter(is_part).collect();
    for (part, shape) in [("eh_proj", vec![d, 2 * d]), ("enorm", vec![d]), ("hnorm", vec![d])] {
        mtp.push((format!("{name}{part}.weight"), shape));
    }
    assert_tensors(HEADS.mtp, Dtype::BF16, mtp);
}

#[test]
fn the_names_model_has_the_tensors_its_config_promises() {
    let config: Value = serde_json::from_slice(NAMES.config).expect("config.json parses");
    let (d, vocab) = (size(&config, "n_embd"), size(&config, "vocab_size"));
    let characters = config["characters"].as_str().expect("config.json lists its characters");
    assert_eq!(vocab, characters.len() + 1, "the characters, and one token around a name");
    assert_eq!(size(&config, "bos_token_id"), characters.len());
    let mut expected = vec![
        ("wte".to_owned(), vec![vocab, d]),
        ("wpe".to_owned(), vec![size(&config, "block_size"), d]),
        ("lm_head".to_owned(), vec![vocab, d]),
    ];
    for layer in 0..size(&config, "n_layer") {
        for part in ["attn_wq", "attn_wk", "attn_wv", "attn_wo"] {
            expected.push((format!("layer{layer}.{part}"), vec![d, d]));
        }
        expected.push((format!("layer{layer}.mlp_fc1"), vec![4 * d, d]));
        expected.push((format!("layer{layer}.mlp_fc2"), vec![d, 4 * d]));
    }
    assert_tensors(NAMES.weights, Dtype::F32, expected);
}

#[test]
fn the_family_shares_one_tokenizer_of_the_configured_size() {
    for model in all() {
        assert_eq!(model.tokenizer, all()[0].tokenizer, "{}", model.name);
        let config: Value = serde_json::from_slice(model.config).expect("config.json parses");
        assert_eq!(tokenizer(model).get_vocab_size(true), size(&config, "vocab_size"));
    }
}

#[test]
fn special_tokens_come_first() {
    let tokenizer = tokenizer(all()[0]);
    let special = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"];
    for (id, token) in special.into_iter().enumerate() {
        assert_eq!(tokenizer.token_to_id(token), Some(id as u32), "{token}");
        let ids = tokenizer.encode(token, false).expect("encodes").get_ids().to_vec();
        assert_eq!(ids, [id as u32], "{token} in a text is one token");
    }
}

#[test]
fn every_name_and_value_is_one_token() {
    let tokenizer = tokenizer(all()[0]);
    for word in words::NAMES.iter().chain(&words::VALUES) {
        let encoding = tokenizer.encode(format!(" {word}"), false).expect("encodes");
        assert_eq!(encoding.get_tokens(), [format!("Ġ{word}")]);
    }
}

/// What the recall tests of other crates build on: the answer is the next token after the question,
/// and the prompt's tokens have exactly one with that value in it.
#[test]
fn one_position_of_the_prompt_holds_the_answer() {
    let tokenizer = tokenizer(all()[0]);
    let world = World::held_out(0, 5, 2);
    for i in 0..world.facts.len() {
        let asked = format!("{}{}", world.prompt(), world.question(i));
        let before = tokenizer.encode(asked.as_str(), false).expect("encodes");
        let whole = tokenizer.encode(asked + world.answer(i), false).expect("encodes");
        let (answer, rest) = whole.get_ids().split_last().expect("not empty");
        assert_eq!(rest, before.get_ids());
        let positions: Vec<_> =
            (0..rest.len()).filter(|&position| rest[position] == *answer).collect();
        assert_eq!(positions.len(), 1);
        let (start, end) = before.get_offsets()[positions[0]];
        assert_eq!(start..end, world.facts[i].value_bytes);
    }
}

#[test]
fn text_survives_encoding_and_decoding() {
    let tokenizer = tokenizer(all()[0]);
    for text in
        ["Grüße, 世界! 🦀", "fn main() {\n    println!(\"1,234\");\n}", "  two  spaces\t\n\n"]
    {
        let ids = tokenizer.encode(text, false).expect("encodes").get_ids().to_vec();
        assert_eq!(tokenizer.decode(&ids, false).expect("decodes"), text);
    }
    let digits = tokenizer.encode("2048", false).expect("encodes");
    assert_eq!(digits.get_tokens(), ["2", "0", "4", "8"], "one token a digit");
}
