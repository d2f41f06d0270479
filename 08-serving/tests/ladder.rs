//! The command itself, as a reader runs it.

use embedded_models::TARGET;
use ladder_tests::real_model;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn ladder(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(arguments).env_remove("RUST_BACKTRACE").output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = ladder(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must be refused: not by a panic, and in words that hold all of `words`.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let output = ladder(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(!said.contains("panicked") && !said.is_empty(), "{arguments:?}: {said}");
    assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
}

/// The same of both commands that generate.
fn assert_both_refuse(arguments: &[&str], words: &[&str]) {
    for command in ["climb", "generate"] {
        assert_refused(&[&[command], arguments].concat(), words);
    }
}

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn climbing_as_json() {
    let report = json(&["--json", "--tokens", "3", "--prompt", "Once upon a time"]);
    assert_eq!(keys(&report), ["machine", "model", "prompt", "rungs"]);
    assert_eq!(report["prompt"], "Once upon a time");
    assert!(report["model"].as_str().unwrap().contains(TARGET.name));
    let rungs = report["rungs"].as_array().unwrap();
    assert_eq!(rungs.len(), serving::rungs().len() + serving::shapes::all().len());
    for rung in rungs {
        assert_eq!(
            keys(rung),
            [
                "change",
                "crate",
                "kv_bytes_per_token",
                "logits_identical",
                "model",
                "rows",
                "tokens_identical",
                "tokens_per_second",
                "ttft_ms",
            ]
        );
        assert_eq!(rung["tokens_identical"], true, "{rung}");
        assert_eq!(rung["logits_identical"], true, "{rung}");
        for measured in ["ttft_ms", "tokens_per_second"] {
            assert!(rung[measured].as_f64().unwrap() > 0.0, "{rung}");
        }
    }
    assert_eq!(rungs[0]["kv_bytes_per_token"], 0);
    assert_eq!(rungs[2]["kv_bytes_per_token"], 3_072);
    assert!(rungs[0]["rows"].as_u64() > rungs[2]["rows"].as_u64());
    let bytes_of = |name: &str| {
        let rung = rungs.iter().find(|rung| rung["change"].as_str().unwrap().starts_with(name));
        rung.unwrap()["kv_bytes_per_token"].as_u64().unwrap()
    };
    assert_eq!(["MHA", "GQA", "MQA"].map(bytes_of), [12_288, 3_072, 1_536]);
}

#[test]
fn climbing_is_what_happens_without_a_command() {
    let arguments = ["--json", "--tokens", "2", "--prompt", "Once"];
    let (short, long) = (json(&arguments), json(&[&["climb"], &arguments[..]].concat()));
    let rows = |report: &Value| -> Vec<Value> {
        report["rungs"].as_array().unwrap().iter().map(|rung| rung["rows"].clone()).collect()
    };
    assert_eq!(rows(&short), rows(&long));
}

#[test]
fn climbing_as_a_table() {
    let output = ladder(&["--tokens", "2", "--prompt", "Once upon a time"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for rung in serving::rungs() {
        assert!(text.contains(rung.package), "{text}");
    }
    for shape in serving::shapes::all() {
        assert!(text.contains(shape.model), "{text}");
    }
    assert!(text.contains("Once upon a time") && !text.contains("DIFFERENT"), "{text}");
}

#[test]
fn counts_of_tokens_that_nothing_can_come_of() {
    let with = |tokens| ["--prompt", "Once upon a time", "--tokens", tokens];
    assert_both_refuse(&with("0"), &["tokens", "0", "at least 1"]);
    assert_both_refuse(&with("18446744073709551615"), &["context", "holds", "were asked for"]);
    assert_both_refuse(&with("18446744073709551616"), &["--tokens", "too large"]);
    assert_both_refuse(&with("-1"), &["'-1' for '--tokens <TOKENS>'"]);
    assert_both_refuse(&with("many"), &["--tokens", "many"]);
}

#[test]
fn prompts_that_are_empty_or_too_long() {
    assert_both_refuse(&["--prompt", "", "--tokens", "2"], &["prompt is empty"]);
    let long = "once upon a time ".repeat(1_500);
    assert_both_refuse(
        &["--prompt", &long, "--tokens", "2"],
        &["context", "holds", "9002 were asked for"],
    );
}

/// The files of a model in `directory`, with the tokenizer given.
fn write_model(directory: &Path, tokenizer: &[u8]) {
    std::fs::write(directory.join("config.json"), TARGET.config).unwrap();
    std::fs::write(directory.join("model.safetensors"), TARGET.weights).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer).unwrap();
}

#[test]
fn models_that_are_not_there_or_do_not_fit_together() {
    let directory = tempfile::tempdir().unwrap();
    let from = |path: &Path, words: &[&str]| {
        let path = path.to_str().unwrap();
        assert_both_refuse(&["--prompt", "Once", "--tokens", "2", "--model", path], words);
    };
    from(&directory.path().join("nothing"), &["nothing", "not there", "mla", "owner/name"]);
    from(Path::new("targt"), &["targt", "not there", "target", ".gguf"]);
    from(directory.path(), &["has no config.json", "model.safetensors"]);

    let mut tokenizer: Value = serde_json::from_slice(TARGET.tokenizer).unwrap();
    tokenizer["model"]["vocab"]["one more"] = 100_000.into();
    write_model(directory.path(), &serde_json::to_vec(&tokenizer).unwrap());
    from(directory.path(), &["vocab"]);
}

#[test]
fn files_that_are_no_models() {
    let directory = tempfile::tempdir().unwrap();
    let from = |name: &str, contents: &[u8], words: &[&str]| {
        let path = directory.path().join(name);
        std::fs::write(&path, contents).unwrap();
        let path = path.to_str().unwrap();
        assert_both_refuse(&["--prompt", "Once", "--tokens", "2", "--model", path], words);
    };
    from("notes.txt", b"notes", &["notes.txt", "expected", ".gguf"]);
    from("model.gguf", b"notes", &["model.gguf", "note", "not a GGUF file"]);
    from("model.gguf", b"GGUF\x03\0\0\0", &["model.gguf", "number of tensors", "truncated"]);
    let words =
        ["model.safetensors: has no config.json beside it", "config.json and tokenizer.json"];
    from("model.safetensors", TARGET.weights, &words);
}

#[test]
fn a_model_on_the_hub_is_asked_for_in_one_sentence() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(["generate", "--prompt", "Once", "--model", "somebody/something"]);
    command.env("HF_HUB_OFFLINE", "1").env("HF_HUB_CACHE", cache.path());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for word in ["somebody/something", "is no path here", "HF_HUB_OFFLINE", "holds no models"] {
        assert!(said.contains(word), "`{said}` lacks `{word}`");
    }
}

/// `LADDER_REAL_MODEL=FILE.gguf` puts a published model on the ladder.
#[test]
fn climbing_with_a_real_model() {
    let Some(path) = real_model() else { return };
    let report = json(&["--json", "--tokens", "8", "--prompt", "Once upon", "--model", &path]);
    let rungs = report["rungs"].as_array().unwrap();
    assert!(rungs.iter().all(|rung| rung["logits_identical"] == true), "{report}");
    assert!(rungs.iter().all(|rung| rung["tokens_identical"] == true), "{report}");
}

#[test]
fn a_model_from_a_directory_is_the_embedded_one() {
    let directory = tempfile::tempdir().unwrap();
    write_model(directory.path(), TARGET.tokenizer);
    let arguments =
        ["generate", "--prompt", "Once upon a time", "--tokens", "4", "--device", "cpu"];
    let path = directory.path().to_str().unwrap();
    let (embedded, read) =
        (ladder(&arguments), ladder(&[&arguments[..], &["--model", path]].concat()));
    assert!(embedded.status.success() && read.status.success());
    let text = String::from_utf8(embedded.stdout).unwrap();
    assert!(text.starts_with("Once upon a time"), "{text}");
    assert_eq!(text.as_bytes(), read.stdout);
}

#[test]
fn the_list_of_break_its_as_json() {
    let list = json(&["break", "--list", "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), serving::break_its::all().len());
    for entry in list {
        assert_eq!(keys(entry), ["cites", "crate", "guard", "name", "symptom"]);
    }
}

#[test]
fn a_break_it_that_is_not_there_gets_those_near_it() {
    assert_refused(&["break", "stale-lenght"], &["stale-lenght", "near it", "stale-length"]);
    assert_refused(&["break", "zzz"], &["zzz", "ladder break"]);
    assert_refused(&["break", "stale-length", "--list"], &["--list"]);
}

#[test]
fn a_number_below_zero_is_a_number() {
    assert_refused(&["generate", "--prompt", "x", "--temperature", "-1"], &["temperature is -1"]);
    assert_refused(&["chat", "--temperature", "-1"], &["temperature is -1"]);
    assert_refused(&["generate", "--prompt", "x", "--seed", "-1"], &["'-1' for '--seed <SEED>'"]);
    assert_refused(&["serve", "--timeout", "-1"], &["'-1' for '--timeout <SECONDS>'"]);
    assert_refused(&["trace", "--requests", "-3"], &["'-3' for '--requests <REQUESTS>'"]);
}

#[test]
fn how_much_there_is_to_be_is_refused_by_the_options_names() {
    let words = ["'0' for '--tokens <TOKENS>'", "expected a whole number, at least 1"];
    assert_refused(&["chat", "--tokens", "0"], &words);
    for requests in ["0", "1000001"] {
        let words = format!("--requests is {requests}, expected 1 to 1000000");
        assert_refused(&["trace", "--requests", requests], &[&words]);
    }
    let words = "--rows is 1, expected at least 8: one row for each request of --running";
    assert_refused(&["trace", "--rows", "1"], &[words]);
}

#[test]
fn embedded_models_run_by_the_names_they_are_listed_by() {
    for name in embedded_models::all().map(|model| model.name) {
        let output = ladder(&["generate", "--prompt", "x", "--tokens", "2", "--model", name]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// `ladder models`, with a cache of its own.
fn models(cache: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.arg("models").args(arguments).env("HF_HUB_CACHE", cache).output().unwrap()
}

#[test]
fn models_are_listed_wherever_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let (cache, named) = (directory.path().join("cache"), directory.path().join("named"));
    let smol = "models--HuggingFaceTB--SmolLM2-135M-Instruct";
    let snapshot = cache.join(smol).join("snapshots/abc");
    for path in [&snapshot, &named.join("whole"), &named.join("broken"), &named.join("no model")] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::create_dir(cache.join(smol).join("refs")).unwrap();
    std::fs::write(cache.join(smol).join("refs/main"), "abc").unwrap();
    write_model(&snapshot, TARGET.tokenizer);
    write_model(&named.join("whole"), TARGET.tokenizer);
    std::fs::write(named.join("broken/config.json"), "{").unwrap();

    let output = models(&cache, &["--json", named.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = list.as_array().unwrap();
    let of = |place: &str| list.iter().filter(|m| m["place"] == place).collect::<Vec<_>>();
    let names = |place: &str| of(place).iter().map(|m| m["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names("embedded"), ["target", "draft", "mla", "hybrid"]);
    assert_eq!(names("cached"), ["HuggingFaceTB/SmolLM2-135M-Instruct"]);
    assert_eq!(names("named").len(), 2);
    // What is cached is not listed again as to be had.
    assert!(!names("hub").is_empty() && !names("hub").contains(&names("cached")[0]));

    let target = of("embedded")[0];
    let memory = target["memory"].as_array().unwrap();
    assert_eq!(memory.len(), serving::rungs().len());
    assert_eq!(memory[0]["kv_at_2048"], 0);
    assert_eq!(memory[2]["kv_at_2048"], 2_048 * 3_072);
    assert_eq!(memory[2]["kv_at_full_context"], 512 * 3_072);
    let cached = of("cached")[0];
    assert_eq!(
        (&cached["memory"], &cached["parameters"]),
        (&target["memory"], &target["parameters"])
    );
    // Its own files do not say; the list of known models does.
    assert_eq!(cached["licence"], "apache-2.0");
    let [broken, whole] = of("named")[..] else { panic!("{list:?}") };
    assert_eq!(keys(broken), ["name", "place", "problem"]);
    assert_eq!(whole["parameters"], target["parameters"]);
    assert_eq!(whole["licence"], Value::Null);

    let output = models(&cache, &[named.to_str().unwrap()]);
    let table = String::from_utf8(output.stdout).unwrap();
    for word in ["target", "cannot be run", "SmolLM2-135M", "apache-2.0", "KV at 2,048"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    // In a cell, a problem would make every line as wide as itself.
    assert!(table.contains("\ncannot be run: "), "{table}");
    let empty = tempfile::tempdir().unwrap();
    let output = models(&cache, &[empty.path().to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds no model, expected"));
    std::fs::write(empty.path().join("README.md"), "a model").unwrap();
    let output = models(&cache, &[empty.path().join("README.md").to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("README.md: holds no model"));
    // As downloads lie: an owner's folder, and in it a model's.
    let deep = directory.path().join("deep");
    std::fs::create_dir_all(deep.join("owner/model")).unwrap();
    write_model(&deep.join("owner/model"), TARGET.tokenizer);
    let output = models(&cache, &["--json", deep.to_str().unwrap()]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_named = |model: &&Value| model["place"] == "named";
    let [found] = list.as_array().unwrap().iter().filter(is_named).collect::<Vec<_>>()[..] else {
        panic!("{list}")
    };
    assert_eq!(found["name"], deep.join("owner/model").to_str().unwrap());
    let output = models(&cache, &["no such place"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read no such place"));
}

#[test]
fn a_weight_format_that_there_is_not() {
    let arguments = ["bench", "--device", "cpu", "--weights", "q5"];
    assert_refused(&arguments, &["weight format is q5, expected stored, or one of f32, bf16,"]);
}

#[test]
fn break_its_take_other_models_or_say_why_not() {
    assert_refused(&["break", "--model", "hybrid"], &["--model hybrid", "ladder break NAME"]);
    let directory = tempfile::tempdir().unwrap();
    write_model(directory.path(), TARGET.tokenizer);
    let model = ["--model", directory.path().to_str().unwrap()];
    let report = json(&[&["break", "wrong-layer", "--json"], &model[..]].concat());
    assert_eq!(report["guard"]["on_clean"], Value::Null);
    assert!(report["guard"]["on_broken"].is_string(), "{report}");
    for (name, why) in [
        ("overwritten-key", "needs the recall task"),
        ("rotated-latent", "needs the embedded latents"),
        ("group-scale", "needs the embedded weights"),
    ] {
        assert_refused(&[&["break", name], &model[..]].concat(), &["the embedded one", why]);
    }
    assert_refused(&["break", "wrong-layer", "--model", "nothing"], &["nothing"]);
}

#[test]
fn a_measurement_of_nothing_is_refused() {
    let words = ["prefill and decode are both 0, expected at least 1 token"];
    assert_refused(&["bench", "--prefill", "0", "--decode", "0"], &words);
}
