//! Model directories with everything wrong that can be wrong with the files around the weights:
//! each ends in one sentence that names the file.

use crate::model_directory::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// A directory with the whole model in it.
fn whole() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_rest(directory.path());
    write_shard(&directory.path().join("model.safetensors"), &tensors());
    load(directory.path()).unwrap();
    directory
}

/// Every file that a directory may have, and a form in which it is good.
fn files() -> Vec<(&'static str, Option<&'static str>)> {
    vec![
        ("config.json", None),
        ("tokenizer.json", None),
        ("model.safetensors", None),
        ("generation_config.json", Some(r#"{"eos_token_id": 4}"#)),
        ("tokenizer_config.json", Some(r#"{"eos_token": "<|end|>"}"#)),
        ("chat_template.jinja", Some("{{ messages[0].content }}")),
    ]
}

#[test]
fn sizes_that_lie() {
    let directory = whole();
    let path = directory.path();
    let far = 1 << 24;
    for (field, value, words) in [
        ("num_attention_heads", json!(7), ["num_key_value_heads", "7"]),
        ("num_key_value_heads", json!(3), ["num_key_value_heads", "8"]),
        ("num_key_value_heads", json!(0), ["num_key_value_heads", "between 1"]),
        ("head_dim", json!(31), ["head_dim", "even"]),
        ("head_dim", json!(far), ["q_proj.weight", "[256, 256]"]),
        ("hidden_size", json!(255), ["embed_tokens.weight", "255]"]),
        ("hidden_size", json!(far), ["embed_tokens.weight", "16777216]"]),
        ("hidden_size", json!(-1), ["config.json", "-1"]),
        ("hidden_size", json!(1.5), ["config.json", "1.5"]),
        ("hidden_size", json!(u64::MAX), ["hidden_size", "16,777,216"]),
        ("intermediate_size", json!(far), ["gate_proj.weight", "[16777216, 256]"]),
        ("num_hidden_layers", json!(1 << 16), ["model.layers.1.", "missing"]),
        ("num_hidden_layers", json!(far), ["num_hidden_layers", "at most 65536"]),
        ("num_hidden_layers", json!(0), ["num_hidden_layers", "between 1"]),
        ("vocab_size", json!(far), ["vocabulary", "16777216"]),
        ("max_position_embeddings", json!(u32::MAX), ["max_position_embeddings", "16,777,216"]),
        ("rms_norm_eps", json!(0), ["rms_norm_eps", "positive"]),
        ("rope_theta", json!(-1), ["rope_theta", "positive"]),
        (
            "rope_scaling",
            json!({ "type": "dynamic", "factor": 2.0 }),
            ["config.json: rope_scaling.type is dynamic", "expected linear, ntk, yarn or llama3"],
        ),
    ] {
        let mut lying = config();
        lying[field] = value;
        fs::write(path.join("config.json"), lying.to_string()).unwrap();
        assert_refused(path, &words);
    }
}

#[test]
fn files_that_are_empty_cut_short_or_not_text() {
    for (name, good) in files() {
        let directory = whole();
        let path = directory.path().join(name);
        if let Some(good) = good {
            fs::write(&path, good).unwrap();
            load(directory.path()).unwrap();
        }
        let bytes = fs::read(&path).unwrap();
        if name.ends_with(".jinja") {
            // The empty template is one: it says nothing.
            fs::write(&path, "{% if").unwrap();
            assert_refused(directory.path(), &[name, "line 1"]);
            continue;
        }
        for damaged in
            [&b""[..], b"\0", b"[1, 2", b"\xff\xfe\xfd", b"null", &bytes[..bytes.len() / 2]]
        {
            fs::write(&path, damaged).unwrap();
            assert_refused(directory.path(), &[name]);
        }
    }
}

#[test]
fn directories_in_the_place_of_files() {
    for (name, _) in files() {
        let directory = whole();
        let path = directory.path().join(name);
        let _ = fs::remove_file(&path);
        fs::create_dir(&path).unwrap();
        assert_refused(directory.path(), &[name]);
    }
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_or_to_no_file() {
    use std::os::unix::fs::symlink;
    for (name, _) in files() {
        // Round and round, to nothing, and to a device that never ends.
        for to in [name, "nothing", "/dev/zero"] {
            let directory = whole();
            let path = directory.path().join(name);
            let _ = fs::remove_file(&path);
            symlink(to, &path).unwrap();
            assert_refused(directory.path(), &[name]);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model");
    symlink("model", &path).unwrap();
    assert_refused(&path, &["cannot read", "model"]);
    let path = directory.path().join("model.gguf");
    for to in ["model.gguf", "nothing", "/dev/zero"] {
        let _ = fs::remove_file(&path);
        symlink(to, &path).unwrap();
        assert_refused(&path, &["model.gguf"]);
    }
}

#[test]
fn nothing_and_empty_files() {
    let directory = tempfile::tempdir().unwrap();
    assert_refused(directory.path(), &["has no config.json", "tokenizer.json"]);
    assert_refused(&directory.path().join("not there"), &["which is not there", "expected"]);
    for name in ["model.gguf", "model.safetensors"] {
        let path = directory.path().join(name);
        fs::write(&path, "").unwrap();
        write_rest(directory.path());
        assert_refused(&path, &[name]);
    }
}

/// A safetensors file with this header, and as many bytes after it as the model has.
fn with_header(path: &Path, header: &str) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.resize(bytes.len() + 4096, 0);
    fs::write(path.join("model.safetensors"), bytes).unwrap();
}

#[test]
fn safetensors_headers_that_lie() {
    let directory = whole();
    let path = directory.path();
    let entry = |kind: &str, shape: Value, from: u64, to: u64| {
        let entry = json!({"dtype": kind, "shape": shape, "data_offsets": [from, to]});
        json!({"model.embed_tokens.weight": entry}).to_string()
    };
    for header in [
        entry("F32", json!([1024]), 0, u64::MAX),
        entry("F32", json!([u64::MAX]), 0, 4096),
        entry("F32", json!([1_u64 << 40, 1_u64 << 40]), 0, 4096),
        entry("F32", json!([1024]), 4096, 0),
        entry("F32", json!([1024]), 8, 4104),
        entry("F32", json!([1023]), 0, 4096),
        entry("Q9", json!([1024]), 0, 4096),
        "{}".into(),
        "[]".into(),
        " ".into(),
        "{\"a\": ".repeat(50_000),
    ] {
        with_header(path, &header);
        assert_refused(path, &["model.safetensors"]);
    }
    for length in [0, 1, u32::MAX as u64, u64::MAX] {
        fs::write(path.join("model.safetensors"), length.to_le_bytes()).unwrap();
        assert_refused(path, &["model.safetensors"]);
    }
}

#[test]
fn a_text_file_of_absurd_size_is_not_read() {
    let directory = whole();
    for name in ["config.json", "tokenizer.json", "model.safetensors.index.json"] {
        let path = directory.path().join(name);
        let before = fs::read(&path).ok();
        // A file with a hole: it says four gigabytes, and takes none.
        fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
        if name.ends_with("index.json") {
            fs::remove_file(directory.path().join("model.safetensors")).unwrap();
        }
        assert_refused(directory.path(), &[name, "4294967296 bytes", "at most"]);
        if let Some(before) = before {
            fs::write(&path, before).unwrap();
        }
    }
}

#[test]
fn a_tokenizer_of_another_model() {
    let directory = whole();
    let mut tokenizer: Value = serde_json::from_slice(embedded_models::TARGET.tokenizer).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.insert("one more that the model has no row for".into(), 9_999.into());
    fs::write(directory.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    assert_refused(directory.path(), &["vocabulary", "tokenizer.json", "10000", "belong together"]);
}

/// Each of these would end the program: the first three when the file is read, the others when a text is written or read.
#[test]
fn tokenizers_that_say_what_is_not_so() {
    let directory = whole();
    let good: Value = serde_json::from_slice(embedded_models::TARGET.tokenizer).unwrap();
    let vocabulary = good["model"]["vocab"].as_object().unwrap();
    let longest = vocabulary.keys().max_by_key(|token| token.len()).unwrap();
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let template = |single: Value| json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}});
    let nobody = json!({"SpecialToken": {"id": "<nobody>", "type_id": 0}});
    for (place, value, words) in [
        ("/model/merges/0", json!([longest, longest]), ["model.merges[0]", "together are a third"]),
        ("/model/continuing_subword_prefix", json!("a prefix"), ["model.merges[0]", "`a prefix`"]),
        ("/model/continuing_subword_prefix", json!("#"), ["model.merges[0]", "`#`"]),
        (
            "/decoder",
            json!({"type": "Strip", "content": "!", "start": 0, "stop": 2}),
            ["decoder `Strip`", "stop 2"],
        ),
        (
            "/post_processor",
            template(json!([nobody, text("A")])),
            ["`<nobody>`", "`special_tokens`"],
        ),
        ("/post_processor", template(json!([text("B")])), ["second text (`B`)", "`A`"]),
    ] {
        let mut tokenizer = good.clone();
        *tokenizer.pointer_mut(place).unwrap() = value;
        fs::write(directory.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        assert_refused(directory.path(), &[&["tokenizer.json"], &words[..]].concat());
    }
}
