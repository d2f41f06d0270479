//! The hub, played by a small HTTP server on this machine: nothing here leaves it.

use embedded_models::DRAFT;
use ladder_tests::hub::{COMMIT, FakeHub, Files, Stumble};
use model_files::{Hub, HubName, ModelFiles, ModelSummary};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub(crate) fn model() -> Files {
    BTreeMap::from([
        ("config.json", DRAFT.config.to_vec()),
        ("tokenizer.json", DRAFT.tokenizer.to_vec()),
        ("tokenizer_config.json", DRAFT.tokenizer_config.to_vec()),
        ("model.safetensors", DRAFT.weights.to_vec()),
        ("README.md", b"not needed".to_vec()),
    ])
}

pub(crate) fn hub(endpoint: &str, cache: &Path) -> Hub {
    let (endpoint, cache, patience) = (endpoint.into(), cache.into(), Duration::from_secs(60));
    Hub { endpoint, cache, token: None, offline: false, patience }
}

pub(crate) fn name(what: &str) -> HubName {
    HubName::parse(what).unwrap()
}

pub(crate) fn assert_refused(hub: &Hub, what: &str, words: &[&str]) {
    let said = hub.fetch(&name(what)).expect_err(&format!("{words:?} expected")).to_string();
    assert!(words.iter().all(|word| said.contains(word)), "`{said}` lacks one of {words:?}");
    assert!(!said.contains('\n'), "{said}");
}

/// Where downloads of the model lie, whole or begun.
fn blobs(cache: &Path) -> PathBuf {
    let blobs = cache.join("models--owner--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    blobs
}

/// The lock of whoever downloads the weights.
fn locked(blobs: &Path) -> fs::File {
    let lock = fs::File::create(blobs.join("tag-of-model.lock")).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn a_model_is_downloaded_once_and_then_runs_offline() {
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(model(), None);
    let mut hub = hub(&server.endpoint, cache.path());
    let path = hub.fetch(&name("owner/name")).unwrap();
    let files = ModelFiles::open_directory(&path).unwrap();
    assert!(files.chat_template.is_some());
    assert!(!path.join("README.md").exists());
    // Where other tools look for it.
    let kept = cache.path().join("models--owner--name");
    assert_eq!(fs::read_to_string(kept.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(path, kept.join("snapshots").join(COMMIT));

    let asked = server.requests.lock().unwrap().len();
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    assert_eq!(server.requests.lock().unwrap().len(), asked);
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    assert_eq!(hub.fetch(&name(&format!("owner/name@{COMMIT}"))).unwrap(), path);
    let words = ["owner/other", "no path here", "HF_HUB_OFFLINE", "holds owner/name"];
    assert_refused(&hub, "owner/other", &words);
}

#[test]
fn a_download_that_broke_off_is_taken_up_where_it_stopped() {
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(model(), None);
    let blobs = blobs(cache.path());
    let half = DRAFT.weights.len() / 2;
    let begun = "tag-of-model.part";
    fs::write(blobs.join(begun), &DRAFT.weights[..half]).unwrap();
    let path = hub(&server.endpoint, cache.path()).fetch(&name("owner/name")).unwrap();
    assert!(fs::read(path.join("model.safetensors")).unwrap() == DRAFT.weights);
    let asked = format!("/owner/name/resolve/main/model.safetensors {half}");
    let requests = server.requests.lock().unwrap();
    assert!(requests.contains(&asked), "{requests:?}");
}

#[test]
fn a_hub_that_stumbles_over_the_rest_of_a_file_damages_nothing() {
    let half = DRAFT.weights.len() / 2;
    let longer = [DRAFT.weights, &DRAFT.weights[..half]].concat();
    for (stumble, begun) in [
        (Stumble::Busy, &DRAFT.weights[..half]),
        (Stumble::Whole, &DRAFT.weights[..half]),
        // What such hubs left behind: more than the file has, and all of it.
        (Stumble::Busy, &longer),
        (Stumble::Busy, DRAFT.weights),
    ] {
        let cache = tempfile::tempdir().unwrap();
        let server = FakeHub::serve_stumbling(model(), stumble);
        let blobs = blobs(cache.path());
        fs::write(blobs.join("tag-of-model.part"), begun).unwrap();
        let path = hub(&server.endpoint, cache.path()).fetch(&name("owner/name")).unwrap();
        let downloaded = fs::read(path.join("model.safetensors")).unwrap();
        assert!(downloaded == DRAFT.weights, "{stumble:?}: {} bytes", downloaded.len());
    }
}

#[test]
fn a_hub_that_falls_silent_is_not_waited_for_and_what_came_is_kept() {
    let (cache, half) = (tempfile::tempdir().unwrap(), DRAFT.weights.len() / 2);
    let server = FakeHub::serve_stumbling(model(), Stumble::Silent);
    let blobs = blobs(cache.path());
    fs::write(blobs.join("tag-of-model.part"), &DRAFT.weights[..half]).unwrap();
    let patience = Duration::from_millis(500);
    let hub = Hub { patience, ..hub(&server.endpoint, cache.path()) };
    assert_refused(&hub, "owner/name", &["owner/name", "nothing has come for 500ms", "is kept"]);
    let part = fs::read(blobs.join("tag-of-model.part")).unwrap();
    assert!(part.len() >= half && DRAFT.weights.starts_with(&part), "{} bytes", part.len());
}

#[test]
fn what_another_program_downloads_is_waited_for() {
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(model(), None);
    let blobs = blobs(cache.path());
    let lock = locked(&blobs);
    // Less patience than the other takes: what that has grows, and the hub is not asked for anything.
    let patience = Duration::from_secs(2);
    let hub = Hub { patience, ..hub(&server.endpoint, cache.path()) };
    thread::scope(|scope| {
        let fetched = scope.spawn(|| hub.fetch(&name("owner/name")).unwrap());
        for length in 1..14 {
            fs::write(blobs.join("tag-of-model.part"), &DRAFT.weights[..length]).unwrap();
            thread::sleep(patience / 8);
        }
        assert!(!fetched.is_finished());
        // As hf-hub has it: the lock is let go of before the file is in its place.
        fs::remove_file(blobs.join("tag-of-model.part")).unwrap();
        drop(lock);
        thread::sleep(patience / 40);
        let snapshot = cache.path().join("models--owner--name/snapshots").join(COMMIT);
        fs::write(snapshot.join("model.safetensors"), DRAFT.weights).unwrap();
        assert_eq!(fetched.join().unwrap(), snapshot);
    });
    let requests = server.requests.lock().unwrap();
    let asked = requests.iter().filter(|asked| asked.contains("model.safetensors"));
    // How long the file is, and nothing of it.
    assert_eq!(asked.count(), 1, "{requests:?}");
}

#[test]
fn whoever_has_begun_a_download_and_does_nothing_is_not_waited_for() {
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(model(), None);
    let blobs = blobs(cache.path());
    let _lock = locked(&blobs);
    fs::write(blobs.join("tag-of-model.part"), &DRAFT.weights[..100]).unwrap();
    let patience = Duration::from_millis(500);
    let hub = Hub { patience, ..hub(&server.endpoint, cache.path()) };
    assert_refused(&hub, "owner/name", &["owner/name", "nothing has come for 500ms"]);
}

#[test]
fn a_file_that_would_leave_the_cache_is_refused() {
    for file in ["../../../../stolen.gguf", "/tmp/stolen.gguf", "a/../../stolen.gguf", "./a.gguf"] {
        let cache = tempfile::tempdir().unwrap();
        let server = FakeHub::serve(Files::from([(file, b"GGUF a".to_vec())]), None);
        let hub = hub(&server.endpoint, cache.path());
        assert_refused(&hub, "owner/name", &["owner/name", file, "paths within the repository"]);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0, "{file}");
    }
}

#[test]
fn shards_are_downloaded_as_the_index_names_them() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.remove("model.safetensors");
    let index = br#"{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}"#;
    files.insert("model.safetensors.index.json", index.to_vec());
    files.insert("one.safetensors", b"1".to_vec());
    files.insert("two.safetensors", b"2".to_vec());
    let server = FakeHub::serve(files, None);
    let path = hub(&server.endpoint, cache.path()).fetch(&name("owner/name")).unwrap();
    assert_eq!(fs::read(path.join("two.safetensors")).unwrap(), b"2");
    assert_eq!(fs::read(path.join("one.safetensors")).unwrap(), b"1");
}

#[test]
fn what_the_hub_does_not_give_out() {
    let cache = tempfile::tempdir().unwrap();
    let server = FakeHub::serve(model(), Some("secret"));
    let mut hub = hub(&server.endpoint, cache.path());
    assert_refused(&hub, "owner/name", &["owner/name", "does not give it out", "HF_TOKEN"]);
    hub.token = Some("expired".into());
    assert_refused(&hub, "owner/name", &["owner/name", "the token", "HF_TOKEN", "expired"]);
    hub.token = Some("secret".into());
    assert_refused(&hub, "owner/other", &["owner/other", "is not on http://127.0.0.1"]);
    hub.fetch(&name("owner/name")).unwrap();
    let open = FakeHub::serve(BTreeMap::from([("config.json", Vec::new())]), None);
    hub.endpoint = open.endpoint;
    assert_refused(&hub, "owner/name@other", &["no tokenizer.json"]);
}

#[test]
fn without_a_network_one_sentence_says_so() {
    let cache = tempfile::tempdir().unwrap();
    // A port that nobody listens on any more.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let hub = hub(&endpoint, cache.path());
    assert_refused(&hub, "owner/name", &["cannot be reached", &endpoint, "holds no models"]);
    put(cache.path(), "models--someone--model--large", Some("main"), &model());
    assert_refused(&hub, "owner/name", &["cannot be reached", "holds someone/model--large"]);
}

/// Puts files into a cache, as the snapshot that `revision` names.
pub(crate) fn put(cache: &Path, directory: &str, revision: Option<&str>, files: &Files) {
    let directory = cache.join(directory);
    let commit = revision.unwrap_or("loose");
    let snapshot = directory.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    for (name, bytes) in files {
        let path = snapshot.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    if let Some(revision) = revision {
        fs::create_dir_all(directory.join("refs")).unwrap();
        fs::write(directory.join("refs").join(revision), format!("{commit}\n")).unwrap();
    }
}

/// Puts the model into a cache as other tools may: under `main`, without what only some of them ask for.
fn put_in_part(cache: &Path) {
    let mut part = model();
    part.remove("tokenizer_config.json");
    put_main(cache, &part);
}

/// Puts files into a cache as those of the hub's commit, which `main` names.
pub(crate) fn put_main(cache: &Path, files: &Files) {
    put(cache, "models--owner--name", Some(COMMIT), files);
    let refs = cache.join("models--owner--name/refs");
    fs::rename(refs.join(COMMIT), refs.join("main")).unwrap();
}

#[test]
fn what_other_tools_left_out_of_the_cache_is_fetched() {
    let cache = tempfile::tempdir().unwrap();
    put_in_part(cache.path());
    let mut files = model();
    files.insert("generation_config.json", DRAFT.generation_config.to_vec());
    let server = FakeHub::serve(files, None);
    let mut hub = hub(&server.endpoint, cache.path());
    // What cannot be had is done without.
    hub.offline = true;
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert!(ModelFiles::open_directory(&path).unwrap().chat_template.is_none());
    assert!(server.requests.lock().unwrap().is_empty());
    hub.offline = false;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    assert!(ModelFiles::open_directory(&path).unwrap().chat_template.is_some());
    assert!(path.join("generation_config.json").exists());
    // Nothing else was, and the commit is known by its branch alone.
    let asked = server.requests.lock().unwrap().clone();
    assert!(!asked.iter().any(|path| path.contains("safetensors")), "{asked:?}");
    let names: Vec<String> = hub.cached_models().into_iter().map(|model| model.name).collect();
    assert_eq!(names, ["owner/name"]);
    hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(server.requests.lock().unwrap().len(), asked.len());
}

#[test]
fn a_hub_is_asked_once_for_what_it_does_not_have() {
    let cache = tempfile::tempdir().unwrap();
    put_in_part(cache.path());
    let mut files = model();
    files.remove("tokenizer_config.json");
    let server = FakeHub::serve(files, None);
    let mut hub = hub(&server.endpoint, cache.path());
    let endpoint = std::mem::replace(&mut hub.endpoint, "http://127.0.0.1:1".into());
    hub.fetch(&name("owner/name")).unwrap();
    hub.endpoint = endpoint;
    hub.fetch(&name("owner/name")).unwrap();
    let asked = server.requests.lock().unwrap().len();
    assert!(asked > 0);
    hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(server.requests.lock().unwrap().len(), asked);
}

/// Some have a file of its own for the template, which other tools may not have asked for.
#[test]
fn a_template_that_was_left_out_is_fetched() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.insert("tokenizer_config.json", br#"{"eos_token": "<|end|>"}"#.to_vec());
    put_main(cache.path(), &files);
    files.insert("chat_template.jinja", b"{{ messages }}".to_vec());
    let server = FakeHub::serve(files, None);
    let hub = hub(&server.endpoint, cache.path());
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert!(path.join("chat_template.jinja").exists());
    let asked = server.requests.lock().unwrap().len();
    hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(server.requests.lock().unwrap().len(), asked);
    // With a template among its settings nothing is lacking.
    let cache = tempfile::tempdir().unwrap();
    put_main(cache.path(), &model());
    let hub = self::hub(&server.endpoint, cache.path());
    hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(server.requests.lock().unwrap().len(), asked);
}

#[test]
fn a_model_that_is_not_read_is_refused_before_its_weights_come() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.insert("config.json", br#"{"architectures": ["MambaForCausalLM"]}"#.to_vec());
    let server = FakeHub::serve(files, None);
    let hub = hub(&server.endpoint, cache.path());
    assert_refused(&hub, "owner/name", &["config.json", "MambaForCausalLM", "LlamaForCausalLM"]);
    let asked = server.requests.lock().unwrap();
    assert!(!asked.iter().any(|path| path.contains("safetensors")), "{asked:?}");
}

#[test]
fn the_cache_lists_what_runs_from_it() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub("http://nowhere", cache.path());
    assert_eq!(hub.cached_models(), []);
    put(cache.path(), "models--o--whole", Some("main"), &model());
    put(cache.path(), "models--o--whole", Some("v2"), &model());
    put(cache.path(), "models--o--whole", None, &model());
    let gguf = ["a.gguf", "more/b.gguf", "mmproj-a.gguf", "b.txt"].map(|file| (file, Vec::new()));
    let gguf = BTreeMap::from(gguf);
    put(cache.path(), "models--o--gguf", Some("main"), &gguf);
    // Not whole, no model, no directory.
    let mut part = model();
    part.remove("model.safetensors");
    put(cache.path(), "models--o--part", Some("main"), &part);
    put(cache.path(), "datasets--o--data", Some("main"), &model());
    fs::write(cache.path().join("models--o--file"), "").unwrap();
    fs::create_dir(cache.path().join("models--o--empty")).unwrap();
    let names: Vec<String> = hub.cached_models().into_iter().map(|model| model.name).collect();
    let ggufs = ["o/gguf:a.gguf", "o/gguf:more/b.gguf"];
    assert_eq!(names, [&ggufs[..], &["o/whole", "o/whole@loose", "o/whole@v2"]].concat());
    // Each is what its name says, without the hub.
    for model in hub.cached_models() {
        assert_eq!(hub.fetch(&name(&model.name)).unwrap(), model.path);
    }
}

#[test]
fn a_summary_reads_no_weights_and_no_vocabulary() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.insert("README.md", b"---\nlicense: apache-2.0\n---\n".to_vec());
    files.remove("tokenizer.json");
    put(cache.path(), "model", None, &files);
    let path = cache.path().join("model/snapshots/loose");
    let summary = ModelSummary::read(&path).unwrap();
    let embedded = ModelSummary::embedded(&DRAFT).unwrap();
    assert_eq!(summary.config, embedded.config);
    assert_eq!(
        (summary.parameters, summary.stored_bytes),
        (embedded.parameters, DRAFT.weights.len() as u64)
    );
    // Weights in bf16, and a header.
    assert!((1..100_000).contains(&(summary.stored_bytes - 2 * summary.parameters)));
    assert_eq!(summary.licence.as_deref(), Some("apache-2.0"));
    let file = ModelSummary::read(&path.join("model.safetensors")).unwrap();
    assert_eq!(file.parameters, summary.parameters);
    let path = crate::writer::tiny().write(cache.path());
    let summary = ModelSummary::read(&path).unwrap();
    assert_eq!(summary.stored_bytes, fs::metadata(&path).unwrap().len());
    // Embedding, four matrices of attention, three of the feed-forward, three norms.
    assert_eq!(summary.parameters, 12 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 32 + 3 * 32);
    fs::write(&path, b"GGUF").unwrap();
    assert!(ModelSummary::read(&path).unwrap_err().to_string().contains("truncated"));
}
