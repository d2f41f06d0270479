//! The embedded target, written as a GGUF file the way llama.cpp's conversion does, is the target:
//! same sizes, same tokens, same weights, same template, to the bit.

use crate::writer::{GgufFile, Meta, Tensor, text, texts, tiny};
use embedded_models::TARGET;
use model_files::{BlockType, ModelFiles, RawTensor};
use naive_decode::{Checkpoint, LoadOptions, NaiveAttention, Pass, Span, Want};
use serde_json::Value;
use std::collections::BTreeMap;

/// Hugging Face's names of all tensors of the target, and GGUF's.
fn names(layers: usize) -> Vec<(String, String)> {
    let mut names = vec![
        ("model.embed_tokens.weight".to_owned(), "token_embd.weight".to_owned()),
        ("model.norm.weight".to_owned(), "output_norm.weight".to_owned()),
    ];
    for layer in 0..layers {
        for (theirs, own) in [
            ("input_layernorm", "attn_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("post_attention_layernorm", "ffn_norm"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ] {
            let (theirs, own) =
                (format!("model.layers.{layer}.{theirs}"), format!("blk.{layer}.{own}"));
            names.push((format!("{theirs}.weight"), format!("{own}.weight")));
        }
    }
    names
}

/// Rows of each head reordered so that RoPE turns neighbours: what was in the halves of a head is
/// interleaved.
fn interleaved(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let (width, row) = (rows / heads, bytes.len() / rows);
    let order = (0..rows).map(|at| {
        let (head, within) = (at / width, at % width);
        head * width + within % 2 * (width / 2) + within / 2
    });
    order.flat_map(|from| bytes[from * row..(from + 1) * row].to_vec()).collect()
}

pub(crate) fn target_as_gguf() -> GgufFile {
    let config: Value = serde_json::from_slice(TARGET.config).unwrap();
    let number = |field: &str| Meta::U32(config[field].as_u64().unwrap() as u32);
    let float = |field: &str| Meta::F32(config[field].as_f64().unwrap() as f32);
    let tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
    let by_id: BTreeMap<u64, &str> = tokenizer["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.as_str()))
        .collect();
    let special: Vec<u64> = tokenizer["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["id"].as_u64().unwrap())
        .collect();
    let kinds = by_id.keys().map(|id| if special.contains(id) { 3 } else { 1 }).collect();
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter().map(|merge| match merge {
        Value::String(merge) => merge.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    });
    let settings: Value = serde_json::from_slice(TARGET.tokenizer_config).unwrap();
    let metadata = [
        ("general.architecture", text("llama")),
        ("llama.block_count", number("num_hidden_layers")),
        ("llama.context_length", number("max_position_embeddings")),
        ("llama.embedding_length", number("hidden_size")),
        ("llama.feed_forward_length", number("intermediate_size")),
        ("llama.attention.head_count", number("num_attention_heads")),
        ("llama.attention.head_count_kv", number("num_key_value_heads")),
        ("llama.attention.layer_norm_rms_epsilon", float("rms_norm_eps")),
        ("llama.rope.freq_base", float("rope_theta")),
        ("llama.rope.dimension_count", number("head_dim")),
        ("llama.vocab_size", number("vocab_size")),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.tokens", texts(by_id.values().copied())),
        ("tokenizer.ggml.token_type", Meta::I32s(kinds)),
        ("tokenizer.ggml.merges", texts(merges)),
        ("tokenizer.ggml.bos_token_id", Meta::U32(0)),
        ("tokenizer.ggml.eos_token_id", Meta::U32(0)),
        ("tokenizer.chat_template", text(settings["chat_template"].as_str().unwrap())),
    ];
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let weights = Checkpoint::embedded("target", TARGET.weights).unwrap();
    let layers = config["num_hidden_layers"].as_u64().unwrap() as usize;
    let heads = |field: &str| config[field].as_u64().unwrap() as usize;
    let tensors = names(layers).into_iter().map(|(theirs, name)| {
        let view = weights.view(&theirs).unwrap();
        let rows = view.shape()[0];
        let bytes = match theirs.split('.').nth_back(1) {
            Some("q_proj") => interleaved(view.data(), rows, heads("num_attention_heads")),
            Some("k_proj") => interleaved(view.data(), rows, heads("num_key_value_heads")),
            _ => view.data().to_vec(),
        };
        let shape = view.shape().iter().map(|&size| size as u64).collect();
        Tensor { name, shape, code: 30, bytes }
    });
    GgufFile { version: 3, metadata, tensors: tensors.collect() }
}

fn logits(files: &ModelFiles, tokens: &[u32]) -> Vec<u32> {
    let model = files.load(LoadOptions::default()).unwrap();
    let pass = Pass::one(Span::new(0, 0, tokens, Want::All));
    let logits = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn the_target_as_gguf_is_the_target() {
    let directory = tempfile::tempdir().unwrap();
    let path = target_as_gguf().write(directory.path());
    let read = ModelFiles::open_gguf(&path).unwrap();
    let embedded = ModelFiles::embedded(&TARGET).unwrap();

    let mut config = read.config.clone();
    config.rms_norm_eps = embedded.config.rms_norm_eps;
    assert!((read.config.rms_norm_eps - embedded.config.rms_norm_eps).abs() < 1e-12);
    assert_eq!(config, embedded.config);

    for text in ["Once upon a time", "  12345 x=1\n\n\tZürich — 東京 👩‍🚀", "<|user|>\nHi<|end|>\n"]
    {
        let tokens = embedded.tokenizer.encode(text).unwrap();
        assert_eq!(read.tokenizer.encode(text).unwrap(), tokens);
        assert_eq!(read.tokenizer.encode_with_special(text).unwrap(), tokens);
        assert_eq!(read.tokenizer.decode_with_special(&tokens).unwrap(), text);
    }

    for (name, _) in names(read.config.layers) {
        let stored = embedded.raw(&name).unwrap();
        let RawTensor { kind, shape, bytes } = read.raw(&name).unwrap();
        assert_eq!((kind, &shape), (BlockType::BF16, &stored.shape), "{name}");
        assert!(bytes == stored.bytes, "{name}");
        let values = embedded.tensor(&name, &shape).unwrap();
        assert!(read.tensor(&name, &shape).unwrap() == values, "{name}");
    }

    let messages = [model_files::Message::new("user", "Who has the lamp?")];
    let written =
        |files: &ModelFiles| files.chat_template.as_ref().unwrap().render(&messages, true).unwrap();
    assert_eq!(written(&read), written(&embedded));
    let tokens = read.tokenizer.encode(&written(&read)).unwrap();
    assert_eq!(logits(&read, &tokens), logits(&embedded, &tokens));
}

#[test]
fn an_architecture_without_its_head_is_tied_and_with_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = tiny();
    let open = |file: &GgufFile| ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    assert!(open(&file).config.tied_head);
    let mut head = file.tensor("token_embd.weight").clone();
    head.name = "output.weight".into();
    file.tensors.push(head);
    let files = open(&file);
    assert!(!files.config.tied_head);
    files.load(LoadOptions::default()).unwrap();
}

#[test]
fn what_stretches_rope_is_handed_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = tiny();
    file.set("llama.rope.scaling.type", text("yarn"));
    file.set("llama.rope.scaling.factor", Meta::F32(4.0));
    file.set("llama.rope.scaling.original_context_length", Meta::U32(16));
    file.set("llama.rope.scaling.yarn_beta_fast", Meta::F32(24.0));
    file.set("llama.rope.scaling.yarn_beta_slow", Meta::F32(2.0));
    // As llama.cpp takes them where they are left out.
    file.set("llama.rope.scaling.yarn_ext_factor", Meta::F32(-1.0));
    file.set("llama.rope.scaling.yarn_attn_factor", Meta::F32(1.0));
    file.set("llama.rope.scaling.attn_factor", Meta::F32(1.0));
    file.version = 2;
    let files = ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    let scaling = files.config.rope_scaling.unwrap();
    assert_eq!(scaling["rope_type"], "yarn");
    assert_eq!(scaling["factor"], 4.0);
    assert_eq!(scaling["original_max_position_embeddings"], 16);
    assert_eq!(scaling["beta_fast"], 24.0);
    assert_eq!(scaling["beta_slow"], 2.0);
}

/// As llama.cpp reads it.
#[test]
fn a_factor_without_a_type_stretches_rope_linearly() {
    let directory = tempfile::tempdir().unwrap();
    let scaling = |said: &[(&str, Meta)]| {
        let mut file = tiny();
        said.iter().for_each(|(key, value)| file.set(&format!("llama.rope.{key}"), value.clone()));
        ModelFiles::open_gguf(&file.write(directory.path())).unwrap().config.rope_scaling
    };
    for key in ["scaling.factor", "scale_linear"] {
        let linear = scaling(&[(key, Meta::F32(8.0))]).unwrap();
        assert_eq!((&linear["rope_type"], &linear["factor"]), (&"linear".into(), &8.0.into()));
        for nothing in [0.0, 1.0] {
            assert_eq!(scaling(&[(key, Meta::F32(nothing))]), None, "{key} {nothing}");
        }
        let none = ("scaling.type", text("none"));
        assert_eq!(scaling(&[(key, Meta::F32(8.0)), none]), None, "{key}");
    }
    let both = [("scaling.factor", Meta::F32(4.0)), ("scale_linear", Meta::F32(8.0))];
    assert_eq!(scaling(&both).unwrap()["factor"], 4.0, "the newer name counts");
}

#[test]
fn every_end_that_the_file_names_is_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = tiny();
    file.set("tokenizer.ggml.eos_token_id", Meta::U32(3));
    file.set("tokenizer.ggml.eot_token_id", Meta::U32(4));
    // The template of the file ends turns with token 11.
    let files = ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
    assert_eq!(files.config.end_tokens, [3, 4, 11]);
}

/// Nothing else says that a text ends there: neither the file nor its template.
#[test]
fn a_token_that_is_written_as_an_end_is_one_whatever_the_file_calls_it() {
    let directory = tempfile::tempdir().unwrap();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    for (end, ends) in
        [("<|eot_id|>", &[10, 11][..]), ("<|end_of_text|>", &[10, 11]), ("<|other|>", &[10])]
    {
        for kind in [3, 4, 1] {
            let mut file = tiny();
            let tokens = "a b c d e f Ġ ab Ġa cd <|im_end|>".split(' ');
            file.set("tokenizer.ggml.tokens", texts(tokens.chain([end])));
            file.set("tokenizer.ggml.token_type", Meta::I32s([vec![1; 11], vec![kind]].concat()));
            file.set("tokenizer.ggml.eos_token_id", Meta::U32(10));
            file.set("tokenizer.chat_template", text(template));
            let files = ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
            assert_eq!(files.config.end_tokens, ends, "{end}, kind {kind}");
        }
    }
}

#[test]
fn a_turn_ends_where_the_template_ends_it_whatever_the_file_calls_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let template = "{% for m in messages %}{{ m.content }}<|end|>\n{% endfor %}";
    for kind in [4, 1] {
        let mut file = tiny();
        let mut kinds = vec![1; 10];
        kinds.extend([3, kind]);
        file.set("tokenizer.ggml.token_type", Meta::I32s(kinds));
        file.set("tokenizer.ggml.eos_token_id", Meta::U32(10));
        file.set("tokenizer.chat_template", text(template));
        let files = ModelFiles::open_gguf(&file.write(directory.path())).unwrap();
        assert_eq!(files.config.end_tokens, [10, 11], "kind {kind}");
        assert!(files.tokenizer.is_silent(11), "kind {kind}");
    }
}
