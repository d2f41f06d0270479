//! Directories in Hugging Face's layout: whole, in shards, and with weights that do not fit.

use crate::model_directory::*;
use embedded_models::TARGET;
use model_files::{ModelFiles, open};
use naive_decode::{LoadOptions, NaiveAttention, Pass, Span, Want};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[test]
fn shards_are_the_whole() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_rest(one.path());
    write_shard(&one.path().join("model.safetensors"), &tensors());
    write_sharded(two.path());
    let one = ModelFiles::open_directory(one.path()).unwrap();
    let two = ModelFiles::open_directory(two.path()).unwrap();
    assert_eq!(one.config, two.config);
    for (name, (_, shape, bytes)) in tensors() {
        assert!(two.tensor(&name, &shape).unwrap() == one.tensor(&name, &shape).unwrap(), "{name}");
        assert!(*two.raw(&name).unwrap().bytes == bytes, "{name}");
    }
    assert!(two.raw("nothing").is_none());
}

#[test]
fn a_file_is_found_with_what_lies_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    write_rest(directory.path());
    let path = directory.path().join("other name.safetensors");
    write_shard(&path, &tensors());
    load(&path).unwrap();
    assert_refused(directory.path(), &["cannot read", "model.safetensors"]);
    assert_refused(&directory.path().join("config.json"), &["config.json", "expected", ".gguf"]);
    fs::remove_file(directory.path().join("config.json")).unwrap();
    assert_refused(
        &path,
        &["other name.safetensors: has no config.json beside it", "tokenizer.json"],
    );
}

#[test]
fn a_directory_with_one_gguf_model_is_that_model() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    assert_refused(here, &["has no config.json", "or with one GGUF model"]);
    let model = here.join("tiny-Q8_0.gguf");
    fs::write(&model, b"GGUF").unwrap();
    let of = |path: &Path| open(path.to_str().unwrap()).err().unwrap().to_string();
    assert_eq!(of(here), of(&model), "it is opened");
    // What reads pictures for it is none.
    fs::write(here.join("mmproj-tiny-F16.gguf"), b"GGUF").unwrap();
    assert_eq!(of(here), of(&model));
    fs::write(here.join("tiny-Q4_0.gguf"), b"GGUF").unwrap();
    assert_refused(here, &["has no config.json and 2 GGUF models", "tiny-Q4_0.gguf"]);
}

#[test]
fn indices_that_lie() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let index = write_sharded(path);
    load(path).unwrap();

    let mut lie = index.clone();
    lie["weight_map"]["model.norm.weight"] = "elsewhere.safetensors".into();
    write_index(path, &lie);
    assert_refused(path, &["index.json", "elsewhere.safetensors", "not there"]);

    for outside in ["../model.safetensors", "/etc/passwd", "", "a/b"] {
        lie["weight_map"]["model.norm.weight"] = outside.into();
        write_index(path, &lie);
        assert_refused(path, &["index.json", outside, "beside the index"]);
    }

    let mut lie = index.clone();
    lie["weight_map"]["lm_head.weight"] = SHARDS[0].into();
    write_index(path, &lie);
    assert_refused(path, &[SHARDS[0], "lm_head.weight", "has not"]);

    let mut lie = index.clone();
    lie["weight_map"].as_object_mut().unwrap().remove("model.norm.weight");
    write_index(path, &lie);
    assert_refused(path, &["index.json", "model.norm.weight", "missing"]);

    write_index(path, &json!({"weight_map": {}}));
    assert_refused(path, &["index.json", "empty"]);
    write_index(path, &json!([1]));
    assert_refused(path, &["index.json"]);
}

#[test]
fn shards_that_are_missing_or_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_sharded(path);
    let shard = path.join(SHARDS[1]);
    let bytes = fs::read(&shard).unwrap();
    for length in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&shard, &bytes[..length]).unwrap();
        assert_refused(path, &[SHARDS[1], "not a whole safetensors file", &length.to_string()]);
    }
    fs::remove_file(&shard).unwrap();
    assert_refused(path, &["index.json", SHARDS[1], "not there"]);
}

#[test]
fn tensors_that_are_not_what_they_should_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_rest(path);
    let name = "model.layers.0.mlp.up_proj.weight";
    let with = |edit: &dyn Fn(&mut Tensors), words: &[&str]| {
        let mut damaged = tensors();
        edit(&mut damaged);
        write_shard(&path.join("model.safetensors"), &damaged);
        assert_refused(path, &[&[name, "model.safetensors"], words].concat());
    };
    with(&|tensors| drop(tensors.remove(name)), &["missing"]);
    with(&|tensors| tensors.get_mut(name).unwrap().1.reverse(), &["[256, 704]", "[704, 256]"]);
    with(&|tensors| tensors.get_mut(name).unwrap().0 = Dtype::I16, &["I16", "expected F32"]);
    // The second number of bf16 becomes a NaN; then an infinity.
    let second = |bits: u16| {
        move |tensors: &mut Tensors| {
            tensors.get_mut(name).unwrap().2[2..4].copy_from_slice(&bits.to_le_bytes());
        }
    };
    with(&second(0x7fc0), &["NaN at 1", "finite"]);
    with(&second(0xff80), &["-inf at 1", "finite"]);
}

#[test]
fn configs_and_tokenizers_that_do_not_go_with_the_weights() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_rest(path);
    write_shard(&path.join("model.safetensors"), &tensors());
    load(path).unwrap();
    for (field, value, words) in [
        ("num_hidden_layers", json!(2), ["model.layers.1", "missing"]),
        ("intermediate_size", json!(705), ["[704, 256]", "[705, 256]"]),
        ("vocab_size", json!(4096), ["vocabulary", "belong together"]),
        ("tie_word_embeddings", json!(false), ["lm_head.weight", "missing"]),
        ("architectures", json!(["MambaForCausalLM"]), ["architectures", "Mamba"]),
    ] {
        let mut config = config();
        config[field] = value;
        fs::write(path.join("config.json"), config.to_string()).unwrap();
        assert_refused(path, &words);
    }
    fs::write(path.join("config.json"), "{").unwrap();
    assert_refused(path, &["config.json"]);
    write_rest(path);
    fs::write(path.join("tokenizer.json"), "{}").unwrap();
    assert_refused(path, &["tokenizer.json"]);
    fs::remove_file(path.join("tokenizer.json")).unwrap();
    assert_refused(path, &["cannot read", "tokenizer.json"]);
    write_rest(path);
    fs::write(path.join("tokenizer_config.json"), r#"{"chat_template": "{% endif %}"}"#).unwrap();
    assert_refused(path, &["tokenizer_config.json", "chat template", "line 1"]);
}

#[test]
fn a_template_of_its_own_and_every_end_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_rest(path);
    write_shard(&path.join("model.safetensors"), &tensors());
    assert!(ModelFiles::open_directory(path).unwrap().chat_template.is_none());
    fs::write(
        path.join("chat_template.jinja"),
        "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}",
    )
    .unwrap();
    let files = ModelFiles::open_directory(path).unwrap();
    let written = files.chat_template.unwrap();
    let written = written.render(&[model_files::Message::new("user", "Hi")], true).unwrap();
    assert_eq!(written, "Hi<|end|>");
    assert_eq!(files.config.end_tokens, [0, 4]);
}

#[test]
fn an_added_token_that_the_model_has_no_row_for_is_refused_when_it_is_fed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_rest(path);
    write_shard(&path.join("model.safetensors"), &tensors());
    let mut tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let mut image = added[0].clone();
    image["id"] = 2048.into();
    image["content"] = "<|image|>".into();
    added.push(image);
    fs::write(path.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    // Nor does one end a turn that never comes.
    let template = "{% for m in messages %}{{ m.content }}<|image|>{% endfor %}";
    fs::write(path.join("chat_template.jinja"), template).unwrap();
    let files = ModelFiles::open_directory(path).unwrap();
    assert_eq!(files.config.end_tokens, [0]);
    let tokens = files.tokenizer.encode("A lantern<|image|>").unwrap();
    assert_eq!(tokens.last(), Some(&2048));
    let model = files.load(LoadOptions::default()).unwrap();
    let pass = Pass::one(Span::new(0, 0, &tokens, Want::Last));
    let said = model.forward(&pass, &mut NaiveAttention::new(model.isa)).unwrap_err();
    assert_eq!(said.to_string(), "token is 2048, expected an id below the vocabulary's 2048");
}
