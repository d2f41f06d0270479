//! What is kept for the page: what it shows before anything is moved, and the module that was built from these
//! sources. `book/figures/simulator/build.sh` writes both anew.

use serde_json::{Map, Value, json};
use simulator_figure::page::said;
use simulator_figure::{Settings, answer, controls};
use std::path::{Path, PathBuf};

/// The files that the module is built from.
const SOURCES: [&str; 5] = [
    "01-naive-decode/src/roofline",
    "07-speculative/src",
    "08-serving/src/engine/policy",
    "08-serving/src/simulator",
    "book/figures/simulator/src",
];

/// Files among those that it is not built from, and one that lies elsewhere.
const OF_RUNG_07: [&str; 4] = ["acceptance.rs", "expected.rs", "pass_times.rs", "usual.rs"];
const NOT_OF_RUNG_01: &str = "probe.rs";
const MORE: [&str; 2] = ["01-naive-decode/src/error.rs", "08-serving/src/load/sizes.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A hash of what the module is built from: code, without comments and empty lines.
fn sources() -> String {
    let mut files: Vec<PathBuf> = MORE.map(PathBuf::from).into();
    for folder in SOURCES {
        let names = std::fs::read_dir(root().join(folder)).unwrap();
        for name in names.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            let is_built = match folder {
                "07-speculative/src" => OF_RUNG_07.contains(&&*name),
                _ => name.ends_with(".rs") && name != NOT_OF_RUNG_01,
            };
            if is_built {
                files.push(Path::new(folder).join(name));
            }
        }
    }
    files.sort();
    let mut hash = blake3::Hasher::new();
    for file in files {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//")) {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        }
    }
    hash.finalize().to_hex().to_string()
}

/// What every control says at first.
fn first() -> Value {
    let field = |control: &simulator_figure::Control| {
        (control.name.to_string(), control.choices[control.first].1.clone())
    };
    Value::Object(controls().iter().map(field).collect::<Map<_, _>>())
}

fn fresh() -> Value {
    let settings: Settings = serde_json::from_value(first()).unwrap();
    let answer = answer(&settings).unwrap();
    json!({ "sources": sources(), "controls": controls(), "answer": answer })
}

#[test]
fn the_page_shows_what_this_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept.json");
    if std::env::var_os("KEEP").is_some() {
        let text = serde_json::to_string_pretty(&fresh()).unwrap() + "\n";
        return std::fs::write(file, text).unwrap();
    }
    let kept: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let fresh = fresh();
    assert_eq!(kept["answer"], fresh["answer"], "run book/figures/simulator/build.sh");
    assert_eq!(kept["controls"], fresh["controls"], "run book/figures/simulator/build.sh");
    assert_eq!(
        kept["sources"], fresh["sources"],
        "simulator.wasm was built from other sources: run book/figures/simulator/build.sh"
    );
}

#[test]
fn every_choice_is_answered() {
    for control in controls() {
        for (word, value) in &control.choices {
            let mut settings = first();
            settings[control.name] = value.clone();
            let said = said(settings.to_string().as_bytes());
            let said: Value = serde_json::from_slice(&said).unwrap();
            let answer = &said["Ok"];
            let what = format!("{}: {word}: {said}", control.label);
            assert!(answer["roofline"].as_array().unwrap().len() >= 5, "{what}");
            let is_run = !answer["run"].as_array().unwrap().is_empty();
            assert_eq!(is_run, answer["problem"].is_null(), "{what}");
        }
    }
}

#[test]
fn a_model_that_does_not_fit_is_an_answer() {
    let mut settings = first();
    settings["model"] = json!("llama-3-70b");
    let said: Value = serde_json::from_slice(&said(settings.to_string().as_bytes())).unwrap();
    assert!(said["Ok"]["problem"].as_str().unwrap().contains("more cards"), "{said}");
    assert!(said["Ok"]["memory"][0].as_f64().unwrap() > 100.0);
    assert_eq!(row(&said, "requests that fit").unwrap(), "0");
    assert_eq!(row(&said, "tokens a second, then"), None, "of nobody");
}

/// What the roofline's list says under a name.
fn row<'a>(said: &'a Value, name: &str) -> Option<&'a str> {
    let rows = said["Ok"]["roofline"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).map(|row| row["text"].as_str().unwrap())
}

#[test]
fn no_more_run_at_once_than_fit() {
    let then = |running: usize| {
        let mut settings = first();
        // 24 GB, and 16 of them are weights.
        settings["card"] = json!("l4");
        settings["running"] = json!(running);
        let said: Value = serde_json::from_slice(&said(settings.to_string().as_bytes())).unwrap();
        let fit: usize = row(&said, "requests that fit").unwrap().parse().unwrap();
        assert!((32..256).contains(&fit), "{fit}");
        row(&said, "tokens a second, then").unwrap().to_string()
    };
    assert_eq!(then(128), then(256), "limits that memory does not reach");
    assert_ne!(then(16), then(32));
}

#[test]
fn what_is_no_settings_is_refused() {
    for text in ["", "{}", "[1]", "\u{0}"] {
        let said: Value = serde_json::from_slice(&said(text.as_bytes())).unwrap();
        assert!(said["Err"].as_str().unwrap().starts_with("the settings is"), "{said}");
    }
    let mut settings = first();
    settings["running"] = json!(0);
    let said: Value = serde_json::from_slice(&said(settings.to_string().as_bytes())).unwrap();
    assert!(said["Err"].as_str().unwrap().contains("requests that run at once is 0"), "{said}");
}
