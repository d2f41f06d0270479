//! The Hugging Face hub: models by name, downloaded once into the cache that other tools share.
//!
//! What the cache has is used as it is, without asking the hub. So a model that was downloaded once
//! runs offline, and stays the same until somebody asks for another revision. Only the small files
//! that other tools may have left out are asked for, once, at the commit that is there.
//!
//! A name means the same with the hub and without it. What `owner/name` alone means, all files of the repository decide:
//! its model in parts if it has one, or else its only GGUF file. A cache that has one GGUF file may have one of many, so
//! which files there are is noted beside what was downloaded. Without that note the hub is asked which there are at the commit
//! that the cache has.

mod cached;
mod download;
mod knock;
mod refusal;
mod silence;

pub use cached::CachedModel;

use super::{HubName, Wanted, first, parts};
use crate::architectures::Architecture;
use crate::safetensors::{INDEX, WHOLE, read_index};
use crate::text_file::read;
use download::Repository;
use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};
use naive_decode::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files that every model must have.
const NEEDED: [&str; 2] = [CONFIG, "tokenizer.json"];

/// The one that says what the model is.
const CONFIG: &str = "config.json";

/// Files that a model may have.
const WELCOME: [&str; 3] = ["generation_config.json", SETTINGS, TEMPLATE];

/// The one that nearly every model has.
const SETTINGS: &str = "tokenizer_config.json";

/// What newer models have a file of their own for, and others in their settings.
const TEMPLATE: &str = "chat_template.jinja";

/// Why the hub is not asked.
const OFFLINE: &str = "HF_HUB_OFFLINE is set";

/// Where models come from, and where they are kept.
// No Debug: it would write the token into logs.
#[derive(Clone)]
pub struct Hub {
    /// Address of the hub.
    pub endpoint: String,
    /// Directory of downloaded models.
    pub cache: PathBuf,
    /// What proves who is asking, for models that not everybody may have.
    pub token: Option<String>,
    /// Whether to leave the network alone.
    pub offline: bool,
    /// How long nothing may come before it is no longer waited for.
    pub patience: Duration,
}

impl Hub {
    /// The hub as the environment describes it, by the variables that Hugging Face's own tools
    /// read: `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`. Without them
    /// the cache is `~/.cache/huggingface/hub`, and the token is the one kept beside it.
    ///
    /// # Errors
    /// If there is neither a variable nor a home directory to say where the cache is.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = variable("HF_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface")));
        let cache = variable("HF_HUB_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub"))).ok_or_else(|| {
            Error::invalid("HF_HOME", "not set", "a directory for downloaded models")
        })?;
        let kept =
            || home.as_ref().and_then(|home| std::fs::read_to_string(home.join("token")).ok());
        let token = variable("HF_TOKEN").or_else(kept).map(|token| token.trim().to_owned());
        let offline = variable("HF_HUB_OFFLINE").is_some_and(|value| is_yes(&value));
        let endpoint = variable("HF_ENDPOINT").unwrap_or("https://huggingface.co".into());
        let token = token.filter(|token| !token.is_empty());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Hub { endpoint, cache, token, offline, patience: Duration::from_secs(60) })
    }

    /// The model's directory, or the one file that was named, downloaded if it is not in the cache.
    /// A download that broke off is taken up where it stopped. Progress goes to standard error,
    /// where somebody is looking.
    ///
    /// # Errors
    /// If the model is neither in the cache nor to be had: a hub that cannot be reached, a name
    /// that it does not know or does not give out, a repository that lacks a needed file.
    pub fn fetch(&self, name: &HubName) -> Result<PathBuf> {
        if let Some(path) = self.cached(name) {
            if path.is_dir() {
                self.complete(name, &path);
            }
            return Ok(path);
        }
        if self.offline {
            return Err(self.unreachable(name, OFFLINE));
        }
        let name = &self.at_what_is_there(name);
        let repository = Repository::open(self, name)?;
        let there: Vec<&str> = repository.there.iter().map(String::as_str).collect();
        let snapshot = &repository.snapshot;
        if let Some(file) = one_file(name, &there)? {
            let parts = parts(file);
            if let Some(missing) = parts.iter().find(|part| !there.contains(&part.as_str())) {
                return Err(refusal::lacks(name, missing, &there));
            }
            parts.iter().try_for_each(|part| repository.get(part))?;
            repository.note_files();
            return Ok(snapshot.join(file));
        }
        if let Some(missing) = NEEDED.iter().find(|file| !there.contains(file)) {
            return Err(refusal::lacks(name, missing, &there));
        }
        NEEDED.iter().try_for_each(|file| repository.get(file))?;
        // Whoever asks for a family that is not read here learns it before gigabytes have come.
        let config = snapshot.join(CONFIG);
        Architecture::from_json(&config.display().to_string(), &read(&config)?)?;
        WELCOME.iter().try_for_each(|file| repository.get_or_note(file))?;
        if there.contains(&WHOLE) {
            repository.get(WHOLE)?;
        } else if there.contains(&INDEX) {
            repository.get(INDEX)?;
            let mut shards: Vec<String> =
                read_index(&snapshot.join(INDEX))?.into_values().collect();
            shards.sort_unstable();
            shards.dedup();
            shards.iter().try_for_each(|shard| repository.get(shard))?;
        } else {
            return Err(refusal::lacks(name, WHOLE, &there));
        }
        Ok(snapshot.clone())
    }

    /// Fetches what a snapshot may lack: other tools download file by file, each those that it asks for. Without its
    /// settings or its template a model cannot be talked to, and may not know where its turns end. That is said, and no reason
    /// to stop.
    fn complete(&self, name: &HubName, snapshot: &Path) {
        let commit = snapshot.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let noted = self.noted(name, &commit);
        let is_known = |file: &str| snapshot.join(file).exists() || noted.join(file).exists();
        let has_template = || {
            let settings = std::fs::read_to_string(snapshot.join(SETTINGS));
            settings.is_ok_and(|settings| settings.contains("\"chat_template\""))
        };
        let lacking = match (is_known(SETTINGS), is_known(TEMPLATE)) {
            (false, _) => SETTINGS,
            (true, false) if !has_template() => TEMPLATE,
            (true, _) => return,
        };
        if self.offline && lacking == TEMPLATE {
            return;
        }
        let same = HubName { revision: commit, ..name.clone() };
        let fetch = || {
            if self.offline {
                return Err(self.unreachable(name, OFFLINE));
            }
            let repository = Repository::open(self, &same)?;
            WELCOME.iter().try_for_each(|file| repository.get_or_note(file))
        };
        match fetch() {
            Ok(()) => {}
            Err(problem) if lacking == SETTINGS => {
                tell(format_args!("{problem}; goes on without {lacking}, which the cache lacks"));
            }
            // As likely as not there is none: base models have none.
            Err(_) => tell(format_args!("{}: no chat template in the cache", name.repository)),
        }
    }

    /// What the cache has of the model, if that is everything.
    fn cached(&self, name: &HubName) -> Option<PathBuf> {
        let commit = self.commit(name);
        let snapshot = self.snapshot(name, &commit);
        if name.file.is_none() {
            if is_complete(&snapshot) {
                return Some(snapshot);
            }
            let files = std::fs::read(self.files_noted(name, &commit)).ok()?;
            let there: Vec<String> = serde_json::from_slice(&files).ok()?;
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            return all_of(&snapshot, one_file(name, &there).ok()??);
        }
        let there = files_below(&snapshot, "");
        let mut of_these = there.iter().filter(|file| name.may_be(file));
        all_of(&snapshot, of_these.next().filter(|_| of_these.next().is_none())?)
    }

    /// The same at the commit that the cache has, if it has a file there that the name alone may mean: what was downloaded is
    /// not downloaded again because the branch has moved on.
    fn at_what_is_there(&self, name: &HubName) -> HubName {
        let commit = self.commit(name);
        let may_be = |file: &String| name.file.is_none() && name.may_be(file);
        match files_below(&self.snapshot(name, &commit), "").iter().any(may_be) {
            true => HubName { revision: commit, ..name.clone() },
            false => name.clone(),
        }
    }

    /// The commit that a revision is in the cache; the revision itself if the cache does not know it.
    fn commit(&self, name: &HubName) -> String {
        let kept = self.directory(name).join("refs").join(&name.revision);
        let commit = std::fs::read_to_string(kept);
        commit.map_or_else(|_| name.revision.clone(), |commit| commit.trim().to_owned())
    }

    fn repo(&self, name: &HubName) -> Repo {
        Repo::with_revision(name.repository.clone(), RepoType::Model, name.revision.clone())
    }

    fn directory(&self, name: &HubName) -> PathBuf {
        self.cache.join(self.repo(name).folder_name())
    }

    fn snapshot(&self, name: &HubName, commit: &str) -> PathBuf {
        self.directory(name).join("snapshots").join(commit)
    }

    /// Where the cache has a note of each file that the hub does not have, as Hugging Face's own tools keep it.
    fn noted(&self, name: &HubName, commit: &str) -> PathBuf {
        self.directory(name).join(".no_exist").join(commit)
    }

    /// Where the cache has a note of all files that the hub has of a commit: a list in JSON. Other tools have none.
    fn files_noted(&self, name: &HubName, commit: &str) -> PathBuf {
        self.directory(name).join(".files").join(commit)
    }

    fn api(&self) -> Result<Api> {
        let builder = ApiBuilder::from_cache(Cache::new(self.cache.clone()))
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_retries(0);
        builder.build().map_err(|e| Error::file(&self.endpoint, e))
    }
}

/// Says something on standard error. Where nobody reads that any more, all goes on.
fn tell(words: std::fmt::Arguments) {
    writeln!(std::io::stderr(), "{words}").ok();
}

/// Whether a variable says yes, as Hugging Face's own tools read it: anything else is no.
fn is_yes(value: &str) -> bool {
    matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
}

/// The one file of a repository that is all of the model, if it is one file: the one that was named, or the only GGUF
/// file where the repository does not have all files of a model in parts. A configuration alone comes beside many a GGUF.
fn one_file<'a>(name: &HubName, there: &[&'a str]) -> Result<Option<&'a str>> {
    let found: Vec<&str> = there.iter().copied().filter(|file| name.may_be(file)).collect();
    let has = |file: &&str| there.contains(file);
    let in_parts = NEEDED.iter().all(has) && [WHOLE, INDEX].iter().any(has);
    match (&name.file, &found[..]) {
        (None, _) if in_parts => Ok(None),
        (_, &[file]) => Ok(Some(file)),
        (None, _) => Ok(None),
        (Some(Wanted::File(file)), _) => Err(refusal::lacks(name, &first(file), there)),
        (Some(Wanted::Stored(how)), []) => {
            Err(refusal::lacks(name, &format!("GGUF file of {how}"), there))
        }
        (Some(Wanted::Stored(how)), files) => {
            let problem = format!("has more than one GGUF file of {how}: {}", files.join(", "));
            Err(Error::file(&name.repository, problem))
        }
    }
}

/// Paths of all files below a directory, as they are in the repository.
fn files_below(directory: &Path, before: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let file = format!("{before}{}", entry.file_name().to_string_lossy());
        match path.is_dir() {
            true => files.extend(files_below(&path, &format!("{file}/"))),
            false if path.exists() => files.push(file),
            false => {}
        }
    }
    files
}

/// Where a GGUF file is, if all parts of it are there.
fn all_of(snapshot: &Path, file: &str) -> Option<PathBuf> {
    parts(file).iter().all(|part| snapshot.join(part).exists()).then(|| snapshot.join(file))
}

/// Whether a directory has everything that a model needs.
fn is_complete(directory: &Path) -> bool {
    let has = |file: &str| directory.join(file).exists();
    let has_shards = || {
        let index = read_index(&directory.join(INDEX));
        index.is_ok_and(|index| index.values().all(|shard| has(shard)))
    };
    NEEDED.iter().all(|file| has(file)) && (has(WHOLE) || has_shards())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_hugging_faces_tools_take_for_yes_is_yes() {
        for yes in ["1", "on", "ON", "yes", "Yes", "true", "True", "TRUE"] {
            assert!(is_yes(yes), "{yes}");
        }
        for no in ["0", "false", "False", "FALSE", "no", "NO", "off", "Off", "2", "", " 1"] {
            assert!(!is_yes(no), "{no}");
        }
    }
}
