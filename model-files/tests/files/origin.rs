//! What tells a model's files from others: their content does, and where they lie only for whoever wants to know.

use crate::gguf_model::target_as_gguf;
use crate::model_directory::{SHARDS, config, write_sharded};
use model_files::{ModelFiles, Origin, open};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn origin(path: &Path) -> Origin {
    open(path.to_str().unwrap()).unwrap().origin().unwrap().clone()
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn copies_have_the_same_content_whatever_their_times() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&here, &there] {
        write_sharded(directory.path());
    }
    let long_ago = SystemTime::now() - Duration::from_secs(1_000);
    set_modified(&there.path().join(SHARDS[1]), long_ago);
    let (here, there) = (origin(here.path()), origin(there.path()));
    assert_eq!(here.content, there.content);
    assert_ne!(here.digest, there.digest);
}

#[test]
fn a_gguf_file_may_have_any_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = target_as_gguf().write(directory.path());
    let before = origin(&path);
    let renamed = directory.path().join("other name.gguf");
    fs::rename(&path, &renamed).unwrap();
    let after = origin(&renamed);
    assert_eq!(before.content, after.content);
    assert_ne!(before.digest, after.digest);
    assert!(ModelFiles::embedded(&embedded_models::TARGET).unwrap().origin().is_none());
}

#[test]
fn other_content_is_seen_where_time_length_and_head_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sharded(directory);
    let gguf = target_as_gguf().write(directory);
    let weights = [(directory, directory.join(SHARDS[1])), (&gguf, gguf.clone())];
    for (model, file) in weights {
        let before = origin(model);
        let time = file.metadata().unwrap().modified().unwrap();
        let mut bytes = fs::read(&file).unwrap();
        // The last matrix or so, a sign in each number of 16 bits.
        let from = bytes.len() - 100_000;
        bytes[from..].iter_mut().skip(1).step_by(2).for_each(|byte| *byte ^= 0x80);
        fs::write(&file, bytes).unwrap();
        set_modified(&file, time);
        let after = origin(model);
        assert_ne!(before.content, after.content, "{}", file.display());
        assert_ne!(before.digest, after.digest, "{}", file.display());
    }
    let before = origin(directory);
    let epsilon = config()["rms_norm_eps"].to_string();
    let other = config().to_string().replace(&epsilon, &epsilon.replace('1', "3"));
    assert_ne!(other, config().to_string());
    fs::write(directory.join("config.json"), other).unwrap();
    assert_ne!(before.content, origin(directory).content, "another config");
}
