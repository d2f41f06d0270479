//! Whatever is wrong with the files or the request: a message that says what, where and what would
//! have been right. Never a panic, never an allocation out of proportion.

use ladder_tests::watched::{Watched, largest_while};
use naive_decode::{
    Config, Decoder, DenseLinear, Error, Isa, LoadOptions, Model, NaiveDecoder, Request, Sampler,
    Sampling, Tokenizer, generate,
};
use proptest::prelude::*;
use proptest::sample::Index;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
    "intermediate_size": 24, "vocab_size": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_position_embeddings": 32, "tie_word_embeddings": false, "eos_token_id": 0}"#;

/// One tensor of a checkpoint in the making.
#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The tensors of [`CONFIG`] in Hugging Face's Llama layout.
fn tensors() -> Vec<Tensor> {
    let mut shapes = vec![
        ("model.embed_tokens".to_owned(), vec![40, 16]),
        ("model.norm".to_owned(), vec![16]),
        ("lm_head".to_owned(), vec![40, 16]),
    ];
    for layer in 0..2 {
        for (part, shape) in [
            ("input_layernorm", vec![16]),
            ("post_attention_layernorm", vec![16]),
            ("self_attn.q_proj", vec![16, 16]),
            ("self_attn.k_proj", vec![8, 16]),
            ("self_attn.v_proj", vec![8, 16]),
            ("self_attn.o_proj", vec![16, 16]),
            ("mlp.gate_proj", vec![24, 16]),
            ("mlp.up_proj", vec![24, 16]),
            ("mlp.down_proj", vec![16, 24]),
        ] {
            shapes.push((format!("model.layers.{layer}.{part}"), shape));
        }
    }
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let value = |i: usize| ((i * 7919 + name.len() * 31) % 101) as f32 / 101.0 - 0.4;
        let values = (0..shape.iter().product()).map(value);
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        Tensor { name: format!("{name}.weight"), dtype: Dtype::F32, shape, bytes }
    };
    shapes.into_iter().map(tensor).collect()
}

fn serialize(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors.iter().map(|t| {
        let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes);
        (&t.name, view.unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

fn write(directory: &Path, config: &[u8], weights: &[u8]) {
    fs::write(directory.join("config.json"), config).unwrap();
    fs::write(directory.join("model.safetensors"), weights).unwrap();
}

/// What loading says, which must be an error.
fn refusal(directory: &Path) -> String {
    match Model::open(directory, LoadOptions::default()) {
        Ok(_) => panic!("loaded"),
        Err(error) => error.to_string(),
    }
}

fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{said}` lacks `{word}`");
    }
}

fn small_model() -> Arc<Model> {
    let config = Config::from_json("config.json", CONFIG.as_bytes()).unwrap();
    Arc::new(Model::random(config, 1, LoadOptions::default()).unwrap())
}

// --- Weights -----------------------------------------------------------------------------------

#[test]
fn the_checkpoint_that_all_others_are_made_from_is_good() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), CONFIG.as_bytes(), &serialize(&tensors()));
    let model = Model::open(directory.path(), LoadOptions::default()).unwrap();
    let logits = NaiveDecoder::new(Arc::new(model)).feed(&[1, 2, 3]).unwrap();
    assert!(logits.len() == 40 && logits.iter().all(|v| v.is_finite()));
}

#[test]
fn truncated_weights_at_any_length() {
    let directory = tempfile::tempdir().unwrap();
    let whole = serialize(&tensors());
    write(directory.path(), CONFIG.as_bytes(), &whole);
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    // Shorter and shorter: at every length around what has a meaning, at some of the others.
    let file = fs::File::options().write(true).open(directory.path().join("model.safetensors"));
    let file = file.unwrap();
    let near = |length: usize, end: usize| length.abs_diff(end) <= 2;
    for length in (0..whole.len()).rev() {
        let meaning = [0, 8, header, whole.len()].into_iter().any(|end| near(length, end));
        if meaning || length.is_multiple_of(41) {
            file.set_len(length as u64).unwrap();
            let said = refusal(directory.path());
            let size = format!("({length} bytes)");
            assert_says(&said, &["model.safetensors", "not a whole safetensors file", &size]);
            if length >= header {
                assert_says(&said, &["cut short", &whole.len().to_string()]);
            }
        }
    }
}

#[test]
fn weights_that_promise_more_than_can_be_counted() {
    let directory = tempfile::tempdir().unwrap();
    // One tensor as long would be refused for its bits, which are eight times as many.
    let longest = usize::MAX / 8;
    let tensor = |i: usize| {
        let (start, end) = (i * longest, (i + 1).saturating_mul(longest));
        let length = end - start;
        format!(r#""{i}":{{"dtype":"U8","shape":[{length}],"data_offsets":[{start},{end}]}}"#)
    };
    let header = format!("{{{}}}", (0..9).map(tensor).collect::<Vec<_>>().join(","));
    let weights = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    write(directory.path(), CONFIG.as_bytes(), &weights);
    let promised = usize::MAX.to_string();
    assert_says(&refusal(directory.path()), &["model.safetensors", "cut short", &promised]);
}

#[test]
fn weights_that_do_not_fit_the_configuration() {
    let q = "model.layers.1.self_attn.q_proj.weight";
    let find = |tensors: &mut Vec<Tensor>, name: &str| {
        tensors.iter().position(|t| t.name == name).expect("the tensor is there")
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<Tensor>, usize);
    let cases: [(&str, Change, &[&str]); 9] = [
        (q, &|all, i| drop(all.remove(i)), &["`", q, "is missing", "[16, 16]"]),
        ("lm_head.weight", &|all, i| drop(all.remove(i)), &["lm_head", "is missing", "[40, 16]"]),
        (q, &|all, i| all[i].shape = vec![8, 32], &[q, "has shape [8, 32]", "expected [16, 16]"]),
        (q, &|all, i| all[i].shape = vec![256], &[q, "has shape [256]", "expected [16, 16]"]),
        (
            "model.norm.weight",
            &|all, i| (all[i].shape, all[i].bytes) = (vec![15], vec![0; 60]),
            &["model.norm.weight", "[15]", "expected [16]"],
        ),
        (q, &|all, i| all[i].dtype = Dtype::I32, &[q, "has type I32", "F32, BF16 or F16"]),
        (
            q,
            &|all, i| all[i].bytes[4 * 9..][..4].copy_from_slice(&f32::NAN.to_le_bytes()),
            &[q, "holds NaN at 9", "finite"],
        ),
        (
            q,
            &|all, i| all[i].bytes[..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes()),
            &[q, "holds -inf at 0", "finite"],
        ),
        (
            q,
            &|all, i| {
                all[i].dtype = Dtype::BF16;
                all[i].bytes = [0x80, 0x7f].repeat(256);
            },
            &[q, "holds inf at 0", "finite"],
        ),
    ];
    for (name, change, words) in cases {
        let directory = tempfile::tempdir().unwrap();
        let mut tensors = tensors();
        let index = find(&mut tensors, name);
        change(&mut tensors, index);
        write(directory.path(), CONFIG.as_bytes(), &serialize(&tensors));
        let said = refusal(directory.path());
        assert_says(&said, words);
        assert_says(&said, &["model.safetensors"]);
    }
}

#[test]
fn matrices_of_nothing_or_of_more_than_there_can_be() {
    let most = usize::MAX;
    for (outputs, inputs) in [(0, 0), (0, 3), (3, 0), (2, 3), (most, 2), (2, most), (most, most)] {
        let said = DenseLinear::new(&[], outputs, inputs, Isa::best()).err().unwrap().to_string();
        let expected = format!("{outputs} outputs x {inputs} inputs, at least one of each");
        assert_eq!(said, format!("weight count of a linear layer is 0, expected {expected}"));
    }
}

#[test]
fn files_that_are_empty_missing_or_something_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_says(&refusal(path), &["cannot read", "config.json"]);
    fs::write(path.join("config.json"), CONFIG).unwrap();
    assert_says(&refusal(path), &["cannot read", "model.safetensors"]);
    fs::write(path.join("model.safetensors"), "").unwrap();
    assert_says(&refusal(path), &["model.safetensors", "not a whole safetensors file", "0 bytes"]);
    fs::write(path.join("model.safetensors"), "<!DOCTYPE html><html>Not found</html>").unwrap();
    assert_says(&refusal(path), &["model.safetensors", "not a whole safetensors file"]);
    fs::remove_file(path.join("model.safetensors")).unwrap();
    fs::create_dir(path.join("model.safetensors")).unwrap();
    assert_says(&refusal(path), &["cannot read", "model.safetensors"]);
    fs::write(path.join("config.json"), "").unwrap();
    assert_says(&refusal(path), &["config.json", "cut short", "line 1"]);
    fs::write(path.join("config.json"), "[]").unwrap();
    assert_says(&refusal(path), &["config.json", "invalid"]);
}

// --- Configuration -----------------------------------------------------------------------------

#[test]
fn configurations_of_other_models_and_of_none() {
    let directory = tempfile::tempdir().unwrap();
    let weights = serialize(&tensors());
    for (from, to, words) in [
        ("LlamaForCausalLM", "MambaForCausalLM", ["architectures", "Mamba", "LlamaForCausalLM"]),
        (r#"["LlamaForCausalLM"]"#, "[]", ["architectures", "empty", "LlamaForCausalLM"]),
        (r#"key_value_heads": 2"#, r#"key_value_heads": 3"#, ["key_value_heads", "3", "divisor"]),
        (r#"attention_heads": 4"#, r#"attention_heads": 0"#, ["attention_heads", "0", "between 1"]),
        (r#"head_dim": 4"#, r#"head_dim": 5"#, ["head_dim", "5", "even"]),
        (r#"hidden_size": 16"#, r#"hidden_size": -16"#, ["invalid value", "-16", "line 1"]),
        (r#""vocab_size": 40,"#, "", ["missing field", "vocab_size", "line"]),
        (r#"eos_token_id": 0"#, r#"hidden_act": "gelu""#, ["hidden_act", "gelu", "silu"]),
        (r#"eos_token_id": 0"#, r#"attention_bias": true"#, ["attention_bias", "true", "no bias"]),
        (r#""rope_theta": 10000.0"#, r#""rope_theta": 0"#, ["rope_theta", "0", "positive"]),
        // Sizes that are fine in themselves and contradict the weights.
        (r#"vocab_size": 40"#, r#"vocab_size": 41"#, ["embed_tokens", "[40, 16]", "[41, 16]"]),
        (r#"hidden_layers": 2"#, r#"hidden_layers": 3"#, ["model.layers.2", "missing", "[16, 16]"]),
        (r#"head_dim": 4"#, r#"head_dim": 8"#, ["q_proj", "[16, 16]", "[32, 16]"]),
        (r#"mediate_size": 24"#, r#"mediate_size": 25"#, ["gate_proj", "[24, 16]", "[25, 16]"]),
    ] {
        let json = CONFIG.replacen(from, to, 1);
        assert_ne!(json, CONFIG, "{from}");
        write(directory.path(), json.as_bytes(), &weights);
        assert_says(&refusal(directory.path()), &words);
    }
}

#[test]
fn a_tokenizer_of_another_vocabulary() {
    let json = embedded_models::TARGET.tokenizer;
    let tokenizer = Tokenizer::from_bytes("tokenizer.json", json).unwrap();
    let said = tokenizer.check_vocab_size(small_model().config.vocab_size).unwrap_err().to_string();
    assert_says(&said, &["tokenizer.json", "2048 tokens", "the model's 40", "do not belong"]);
    for bad in [&json[..json.len() / 2], b"", b"{}", b"null"] {
        let error = Tokenizer::from_bytes("tokenizer.json", bad).unwrap_err();
        assert_says(&error.to_string(), &["tokenizer.json"]);
    }
}

// --- Requests ----------------------------------------------------------------------------------

fn ask(prompt: Vec<u32>, tokens: usize) -> Result<usize, Error> {
    let mut decoder = NaiveDecoder::new(small_model());
    let sampler = Sampler::new(Sampling::default())?;
    let request = Request { prompt, tokens, end_tokens: vec![] };
    let steps = generate(&mut decoder, sampler, request)?;
    Ok(steps.collect::<Result<Vec<_>, _>>()?.len())
}

#[test]
fn requests_that_cannot_be_met() {
    for (prompt, tokens, words) in [
        (vec![], 5, &["prompt", "empty", "at least one token"][..]),
        (vec![1], 0, &["number of tokens", "0", "at least 1"]),
        (vec![1; 33], 1, &["prompt of 33 tokens", "1 more", "holds 32", "33 were asked"]),
        (vec![1; 30], 4, &["prompt of 30 tokens", "4 more", "holds 32", "33 were asked"]),
        (vec![1, 40], 1, &["token is 40", "below the vocabulary's 40"]),
        (vec![u32::MAX], 1, &["token is 4294967295", "below the vocabulary's 40"]),
        (vec![1], usize::MAX, &["do not fit", "holds 32"]),
    ] {
        assert_says(&ask(prompt, tokens).unwrap_err().to_string(), words);
    }
    // The last that do fit: the last token is never fed back.
    assert_eq!(ask(vec![1; 30], 3).unwrap(), 3);
    assert_eq!(ask(vec![1; 32], 1).unwrap(), 1);
}

#[test]
fn a_refused_feed_is_forgotten() {
    let mut decoder = NaiveDecoder::new(small_model());
    let mut other = NaiveDecoder::new(small_model());
    decoder.feed(&[1, 2]).unwrap();
    for bad in [vec![], vec![3, 40], vec![5; 31]] {
        decoder.feed(&bad).unwrap_err();
    }
    assert_eq!(decoder.feed(&[3]).unwrap(), other.feed(&[1, 2, 3]).unwrap());
}

// --- Anything at all ---------------------------------------------------------------------------

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Far more than anything here needs, far less than a size read from a broken file can say.
const ENOUGH: usize = 32 << 20;

/// Loads and, if that works, decodes. Errors are fine; panics and huge allocations are not.
fn survives(directory: &Path) -> Result<(), TestCaseError> {
    let ((), largest) = largest_while(|| {
        if let Ok(model) = Model::open(directory, LoadOptions::default()) {
            let mut decoder = NaiveDecoder::new(Arc::new(model));
            // Nothing is said of the logits: a flipped bit in a weight is a weight.
            for token in [1, 2, 39] {
                let _ = decoder.feed(&[token]);
            }
        }
    });
    prop_assert!(largest < ENOUGH, "{largest} bytes were asked for at once");
    Ok(())
}

#[test]
fn sizes_no_model_has() {
    let directory = tempfile::tempdir().unwrap();
    let weights = serialize(&tensors());
    let json: serde_json::Value = serde_json::from_str(CONFIG).unwrap();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    for field in fields {
        for value in [
            "0",
            "1",
            "2",
            "-1",
            "65536",
            "16777216",
            "16777217",
            "4294967296",
            "18446744073709551615",
            "1e300",
            "-1e-300",
            "null",
            "true",
            "\"\"",
            "[]",
            "{}",
            "[[1]]",
        ] {
            let mut changed = json.clone();
            changed[field] = serde_json::from_str(value).unwrap();
            write(directory.path(), changed.to_string().as_bytes(), &weights);
            survives(directory.path()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_in_the_weights(
        // Half of the flips in the header, which is a tenth of the file.
        flips in prop::collection::vec((any::<bool>(), any::<Index>(), 1u8..), 1..4),
        cut in prop::option::weighted(0.2, any::<Index>()),
    ) {
        let mut bytes = serialize(&tensors());
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for (in_header, index, change) in flips {
            let end = if in_header { header } else { bytes.len() };
            bytes[index.index(end)] ^= change;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), CONFIG.as_bytes(), &bytes);
        survives(directory.path())?;
    }

    #[test]
    fn flipped_bytes_in_the_configuration(
        flips in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<Index>()),
    ) {
        let mut bytes = CONFIG.as_bytes().to_vec();
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &bytes, &serialize(&tensors()));
        survives(directory.path())?;
    }
}
