//! One file of a repository, from the hub into the cache.
//!
//! What has come so far of a file lies beside where the whole will be, and the next attempt asks for the rest. hf-hub's
//! own retries do not: they count from where the first attempt of the same call began to write, so that after an early
//! failure the whole file is written behind the part that was there. Here each attempt is a call of its own, which looks
//! how long the part is, and the whole file has the length that the hub says before anybody takes it for the model's.

use super::{Hub, HubName, refusal};
use hf_hub::Cache;
use hf_hub::api::sync::{Api, ApiError, ApiRepo};
use naive_decode::{Error, Result};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How often a download that breaks off is taken up again.
const RETRIES: u32 = 3;

/// How long to wait before the first time; twice as long before each time after it.
const PAUSE: Duration = Duration::from_millis(300);

/// One commit of a repository on the hub.
pub(super) struct Repository<'a> {
    hub: &'a Hub,
    name: &'a HubName,
    api: Api,
    files: ApiRepo,
    commit: String,
    /// Every file that it has.
    pub(super) there: Vec<String>,
    /// Where its files are in the cache.
    pub(super) snapshot: PathBuf,
}

impl<'a> Repository<'a> {
    /// Asks the hub what there is.
    pub(super) fn open(hub: &'a Hub, name: &'a HubName) -> Result<Self> {
        hub.knock(name)?;
        let api = hub.api()?;
        let files = api.repo(hub.repo(name));
        let info = files.info().map_err(|e| hub.refusal(name, &e))?;
        let there: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        // What the hub says becomes paths in the cache.
        if let Some(path) = there.iter().chain([&info.sha]).find(|path| !is_below(path)) {
            let problem = format!("names {path:?}, expected paths within the repository");
            return Err(Error::file(&name.repository, problem));
        }
        let snapshot = hub.snapshot(name, &info.sha);
        Ok(Repository { hub, name, api, files, commit: info.sha, there, snapshot })
    }

    /// Downloads one file, if the cache does not have it.
    pub(super) fn get(&self, file: &str) -> Result<()> {
        let path = self.snapshot.join(file);
        if path.exists() {
            return Ok(());
        }
        let mut tried = 0;
        while let Err(problem) = self.attempt(file) {
            if tried == RETRIES || !refusal::may_pass(&problem) {
                return Err(self.hub.refusal(self.name, &problem));
            }
            std::thread::sleep(PAUSE * 2_u32.pow(tried));
            tried += 1;
        }
        if path.exists() {
            return Ok(());
        }
        let problem =
            format!("`{file}` changed while it was downloaded, expected one commit: again?");
        Err(Error::file(&self.name.repository, problem))
    }

    /// Downloads one file, or notes that there is none.
    pub(super) fn get_or_note(&self, file: &str) -> Result<()> {
        if self.there.iter().any(|there| there == file) {
            return self.get(file);
        }
        let noted = self.hub.noted(self.name, &self.commit);
        // A cache without the note is a cache all the same: the hub is asked again.
        fs::create_dir_all(&noted).and_then(|()| fs::write(noted.join(file), "")).ok();
        Ok(())
    }

    /// Notes which files there are, for names that all of them decide the meaning of.
    pub(super) fn note_files(&self) {
        let note = self.hub.files_noted(self.name, &self.commit);
        let files = serde_json::to_vec(&self.there).expect("text is JSON");
        let directory = note.parent().expect("a note lies in a directory");
        // As above.
        fs::create_dir_all(directory).and_then(|()| fs::write(&note, files)).ok();
    }

    /// Goes on where the last attempt stopped.
    fn attempt(&self, file: &str) -> std::result::Result<(), ApiError> {
        let said = self.api.metadata(&self.files.url(file))?;
        let expected = said.size() as u64;
        let cache = Cache::new(self.hub.cache.clone()).repo(self.hub.repo(self.name));
        let part = cache.blob_path(said.etag()).with_extension("part");
        if part.metadata().is_ok_and(|part| part.len() >= expected) {
            // Nothing is left to be asked for, and what is too long was never right.
            fs::remove_file(&part)?;
        }
        let link = self.files.download(file)?;
        let blob = fs::canonicalize(&link)?;
        let found = blob.metadata()?.len();
        if found == expected {
            return Ok(());
        }
        fs::remove_file(&blob)?;
        if link != blob {
            // Where there are no links, the two are one.
            fs::remove_file(&link).ok();
        }
        let problem = format!("`{file}` has {found} bytes, expected {expected}");
        Err(std::io::Error::other(problem).into())
    }
}

/// Whether a path, wherever it is joined to a directory, is below it.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}
