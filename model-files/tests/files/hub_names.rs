//! What a name on the hub means, where a repository has several files of which each may be a model.

use crate::hub::{assert_refused, hub, model, name, put, put_main};
use embedded_models::DRAFT;
use ladder_tests::hub::{COMMIT, EARLIER, FakeHub, Files};
use model_files::Hub;
use std::collections::BTreeMap;
use std::fs;

#[test]
fn one_file_of_several() {
    let cache = tempfile::tempdir().unwrap();
    let files = BTreeMap::from([("a.gguf", b"GGUF a".to_vec()), ("b.gguf", b"GGUF b".to_vec())]);
    let server = FakeHub::serve(files, None);
    let hub = hub(&server.endpoint, cache.path());
    let words = ["no config.json", "owner/name:FILE", "a.gguf, b.gguf"];
    assert_refused(&hub, "owner/name", &words);
    let path = hub.fetch(&name("owner/name:b.gguf")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF b");
    assert_refused(&hub, "owner/name:c.gguf", &["no c.gguf", "a.gguf, b.gguf"]);
    // None of two is meant, whichever of them the cache has.
    assert_refused(&hub, "owner/name", &words);
    hub.fetch(&name("owner/name:a.gguf")).unwrap();
    assert_refused(&hub, "owner/name", &words);
}

#[test]
fn a_name_alone_means_the_same_whatever_the_cache_has() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.insert("a.gguf", b"GGUF a".to_vec());
    let server = FakeHub::serve(files, None);
    let mut hub = hub(&server.endpoint, cache.path());
    let file = hub.fetch(&name("owner/name:a.gguf")).unwrap();
    // The model in parts is meant, which the cache does not have.
    hub.offline = true;
    let words = ["HF_HUB_OFFLINE", "holds of it owner/name:a.gguf, to be named in full"];
    assert_refused(&hub, "owner/name", &words);
    assert_eq!(hub.fetch(&name("owner/name:a.gguf")).unwrap(), file);
    hub.offline = false;
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert!(path.is_dir());
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    assert_eq!(hub.fetch(&name("owner/name:a.gguf")).unwrap(), file);
}

#[test]
fn whether_a_file_is_the_only_one_the_hub_is_asked_once() {
    let cache = tempfile::tempdir().unwrap();
    let files = Files::from([("a.gguf", b"GGUF a".to_vec())]);
    let server = FakeHub::serve(files.clone(), None);
    let mut hub = hub(&server.endpoint, cache.path());
    // As another tool left it.
    put_main(cache.path(), &files);
    hub.offline = true;
    assert_refused(&hub, "owner/name", &["holds of it owner/name:a.gguf"]);
    hub.offline = false;
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF a");
    let asked = server.requests.lock().unwrap().len();
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    assert_eq!(server.requests.lock().unwrap().len(), asked);
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
    // A note that was damaged is none.
    fs::write(cache.path().join("models--owner--name/.files").join(COMMIT), "[").unwrap();
    assert_refused(&hub, "owner/name", &["holds of it owner/name:a.gguf"]);
}

/// What was downloaded stays what it is, though nobody has noted which files were beside it, until another revision is asked for.
#[test]
fn the_hub_is_asked_about_the_commit_that_the_cache_has() {
    let cache = tempfile::tempdir().unwrap();
    put(
        cache.path(),
        "models--owner--name",
        Some(EARLIER),
        &[("a.gguf", b"earlier".to_vec())].into(),
    );
    let refs = cache.path().join("models--owner--name/refs");
    fs::rename(refs.join(EARLIER), refs.join("main")).unwrap();
    let server = FakeHub::serve([("a.gguf", b"now".to_vec())].into(), None);
    let mut hub = hub(&server.endpoint, cache.path());
    for offline in [false, true] {
        hub.offline = offline;
        let path = hub.fetch(&name("owner/name")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
    }
    hub.offline = false;
    let path = hub.fetch(&name(&format!("owner/name@{COMMIT}"))).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"now");
    // Whether the other one is the only one is not known where the hub is gone, and its name is said.
    fs::remove_dir_all(cache.path().join("models--owner--name/.files")).unwrap();
    hub.endpoint = "http://127.0.0.1:1".into();
    assert_refused(&hub, "owner/name", &["holds of it owner/name:a.gguf, to be named in full"]);
}

#[test]
fn a_configuration_beside_the_only_file_hides_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let mut files = model();
    files.remove("model.safetensors");
    files.insert("a.gguf", b"GGUF a".to_vec());
    let server = FakeHub::serve(files, None);
    let mut hub = hub(&server.endpoint, cache.path());
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF a");
    // Another tool may have asked for it.
    fs::write(path.with_file_name("config.json"), DRAFT.config).unwrap();
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
}

#[test]
fn one_file_by_how_its_weights_are_stored() {
    let cache = tempfile::tempdir().unwrap();
    let files = [
        "model-Q4_K_M.gguf",
        "model-q8_0.gguf",
        "more/model.IQ8_0.gguf",
        "model-F16.gguf",
        "mmproj-model-F16.gguf",
        "model-Q6_K-1.gguf",
        "a-Q2_K.gguf",
        "b-Q2_K.gguf",
    ];
    let server = FakeHub::serve(files.map(|name| (name, name.as_bytes().to_vec())).into(), None);
    let mut hub = hub(&server.endpoint, cache.path());
    let fetched = |hub: &Hub, what: &str| {
        String::from_utf8(fs::read(hub.fetch(&name(what)).unwrap()).unwrap()).unwrap()
    };
    for (what, file) in [
        ("Q4_K_M", "model-Q4_K_M.gguf"),
        ("Q8_0", "model-q8_0.gguf"),
        ("iq8_0", "more/model.IQ8_0.gguf"),
        // Pictures' encoders come beside models and are none.
        ("F16", "model-F16.gguf"),
    ] {
        assert_eq!(fetched(&hub, &format!("owner/name:{what}")), file);
    }
    let words = ["no GGUF file of Q6_K", "model-Q6_K-1.gguf", "owner/name:FILE"];
    assert_refused(&hub, "owner/name:Q6_K", &words);
    assert_refused(&hub, "owner/name:Q2_K", &["more than one", "a-Q2_K.gguf, b-Q2_K.gguf"]);
    for file in ["a-Q2_K.gguf", "b-Q2_K.gguf"] {
        assert_eq!(fetched(&hub, &format!("owner/name:{file}")), file);
    }
    // What was downloaded is found again without the hub, and never taken for what it need not be.
    hub.offline = true;
    assert_refused(&hub, "owner/name:Q2_K", &["HF_HUB_OFFLINE"]);
    assert_eq!(fetched(&hub, "owner/name:iq8_0"), "more/model.IQ8_0.gguf");
    assert_refused(&hub, "owner/name:Q5_0", &["HF_HUB_OFFLINE"]);
}

#[test]
fn the_only_file_need_not_be_named() {
    let cache = tempfile::tempdir().unwrap();
    let files = [("a.gguf", b"GGUF a".to_vec()), ("mmproj-a.gguf", b"GGUF b".to_vec())].into();
    let server = FakeHub::serve(files, None);
    let mut hub = hub(&server.endpoint, cache.path());
    let path = hub.fetch(&name("owner/name")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"GGUF a");
    hub.offline = true;
    assert_eq!(hub.fetch(&name("owner/name")).unwrap(), path);
}
