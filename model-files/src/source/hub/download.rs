//! One file of a repository, from the hub into the cache.
//!
//! What has come so far of a file lies beside where the whole will be, and the next attempt asks for the rest. hf-hub's
//! own retries do not: they count from where the first attempt of the same call began to write, so that after an early
//! failure the whole file is written behind the part that was there. Here each attempt is a call of its own, which looks
//! how long the part is, and the whole file has the length that the hub says before anybody takes it for the model's.
//!
//! Nor does it wait for another program that downloads the same file for longer than five seconds. Here that is waited for, as
//! it saves a download.

use super::silence::{Signs, Watched, while_it_lives};
use super::{Hub, HubName, refusal, tell};
use hf_hub::api::sync::{Api, ApiError};
use hf_hub::{Cache, Repo};
use indicatif::ProgressBar;
use naive_decode::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often a download that breaks off is taken up again.
const RETRIES: u32 = 3;

/// How long to wait before the first time; twice as long before each time after it.
const PAUSE: Duration = Duration::from_millis(300);

/// How often to look whether another program has downloaded what it is at.
const GLANCE: Duration = Duration::from_millis(100);

/// How often to look, once it has, whether that is where it should be.
const GLANCES: u32 = 10;

/// One commit of a repository on the hub.
pub(super) struct Repository<'a> {
    hub: &'a Hub,
    name: &'a HubName,
    api: Api,
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
        let info = while_it_lives(hub.patience, move |_| files.info());
        let info = info.ok_or_else(|| hub.silent(name))?.map_err(|e| hub.refusal(name, &e))?;
        let there: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
        // What the hub says becomes paths in the cache.
        if let Some(path) = there.iter().chain([&info.sha]).find(|path| !is_below(path)) {
            let problem = format!("names {path:?}, expected paths within the repository");
            return Err(Error::file(&name.repository, problem));
        }
        let snapshot = hub.snapshot(name, &info.sha);
        Ok(Repository { hub, name, api, commit: info.sha, there, snapshot })
    }

    /// Downloads one file, if the cache does not have it.
    pub(super) fn get(&self, file: &str) -> Result<()> {
        let path = self.snapshot.join(file);
        if path.exists() {
            return Ok(());
        }
        let mut tried = 0;
        loop {
            let attempt = Attempt {
                api: self.api.clone(),
                repo: self.hub.repo(self.name),
                cache: self.hub.cache.clone(),
                path: path.clone(),
                file: file.to_owned(),
            };
            let done = while_it_lives(self.hub.patience, move |signs| attempt.run(signs));
            match done.ok_or_else(|| self.hub.silent(self.name))? {
                Ok(()) => break,
                Err(problem) if tried == RETRIES || !refusal::may_pass(&problem) => {
                    return Err(self.hub.refusal(self.name, &problem));
                }
                Err(_) => {
                    thread::sleep(PAUSE * 2_u32.pow(tried));
                    tried += 1;
                }
            }
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
}

/// One attempt at a file.
struct Attempt {
    api: Api,
    repo: Repo,
    cache: PathBuf,
    /// Where it is once it is there.
    path: PathBuf,
    file: String,
}

impl Attempt {
    /// Goes on where the last attempt stopped.
    fn run(&self, signs: &Signs) -> std::result::Result<(), ApiError> {
        let files = self.api.repo(self.repo.clone());
        let said = self.api.metadata(&files.url(&self.file))?;
        let expected = said.size() as u64;
        let blob = Cache::new(self.cache.clone()).repo(self.repo.clone()).blob_path(said.etag());
        let part = blob.with_extension("part");
        if self.wait_for_others(&blob, &part, signs)? {
            // The whole file has its name before it is where the model's files are.
            for _ in 0..GLANCES {
                if self.path.exists() {
                    return Ok(());
                }
                thread::sleep(GLANCE);
            }
        }
        if part.metadata().is_ok_and(|part| part.len() >= expected) {
            // Nothing is left to be asked for, and what is too long was never right.
            fs::remove_file(&part)?;
        }
        let watched = Watched { bar: ProgressBar::new(0), signs: signs.clone() };
        let link = files.download_with_progress(&self.file, watched)?;
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
        let problem = format!("`{}` has {found} bytes, expected {expected}", self.file);
        Err(std::io::Error::other(problem).into())
    }

    /// Waits for whoever downloads the same file, by the lock that hf-hub has for it; whether anybody did. As long as what they
    /// have of it grows, they are alive.
    fn wait_for_others(&self, blob: &Path, part: &Path, signs: &Signs) -> std::io::Result<bool> {
        fs::create_dir_all(blob.parent().expect("a blob lies in a directory"))?;
        let lock = File::create(blob.with_extension("lock"))?;
        let (mut is_said, mut seen) = (false, 0);
        // On file systems that know no locks nobody is waited for.
        while let Err(TryLockError::WouldBlock) = lock.try_lock() {
            if !is_said {
                let file = &self.file;
                tell(format_args!("another program downloads {file}: waiting for it"));
                is_said = true;
            }
            let there = part.metadata().map_or(0, |part| part.len());
            if there != seen {
                seen = there;
                signs.send(()).ok();
            }
            thread::sleep(GLANCE);
        }
        Ok(is_said)
    }
}

/// Whether a path, wherever it is joined to a directory, is below it.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}
