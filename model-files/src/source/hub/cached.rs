//! What the hub's cache has: every model that runs without asking the hub.

use super::{Hub, all_of, files_below, is_complete};
use crate::source::is_model;
use std::path::{Path, PathBuf};

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// What [`open`](crate::open) knows it by: `owner/name`, `owner/name@revision`, or either with
    /// `:FILE.gguf`.
    pub name: String,
    /// Where it lies: a directory or a GGUF file.
    pub path: PathBuf,
}

impl Hub {
    /// Every model of which the cache has all that is needed, by name.
    pub fn cached_models(&self) -> Vec<CachedModel> {
        let mut models = Vec::new();
        for directory in entries(&self.cache) {
            let Some(repository) = name_of(&directory).and_then(repository_of) else { continue };
            for (revision, commit) in revisions(&directory) {
                let snapshot = directory.join("snapshots").join(commit);
                let name = called(&repository, &revision);
                let ggufs = files_below(&snapshot, "").into_iter().filter(|file| is_model(file));
                models.extend(ggufs.filter_map(|file| {
                    let path = all_of(&snapshot, &file)?;
                    Some(CachedModel { name: format!("{name}:{file}"), path })
                }));
                if is_complete(&snapshot) {
                    models.push(CachedModel { name, path: snapshot });
                }
            }
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }
}

/// What a repository's model is called.
fn called(repository: &str, revision: &str) -> String {
    match revision {
        "main" => repository.to_owned(),
        revision => format!("{repository}@{revision}"),
    }
}

/// `models--owner--name` → `owner/name`
fn repository_of(directory: &str) -> Option<String> {
    Some(directory.strip_prefix("models--")?.replacen("--", "/", 1))
}

/// Branches and tags with their commits, and commits that no other name is kept for.
fn revisions(directory: &Path) -> Vec<(String, String)> {
    let refs = entries(&directory.join("refs")).into_iter().filter_map(|path| {
        let commit = std::fs::read_to_string(&path).ok()?;
        let (name, commit) = (name_of(&path)?, commit.trim());
        (name != commit).then(|| (name.to_owned(), commit.to_owned()))
    });
    let mut revisions: Vec<(String, String)> = refs.collect();
    for snapshot in entries(&directory.join("snapshots")) {
        if let Some(commit) = name_of(&snapshot)
            && !revisions.iter().any(|(_, known)| known == commit)
        {
            revisions.push((commit.to_owned(), commit.to_owned()));
        }
    }
    revisions
}

/// What is in a directory; nothing if it is none.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}
