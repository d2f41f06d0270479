//! What tells a model's files from others, and from themselves before they changed: so that what was
//! made of them, and kept, is not taken for what would be made of them now.

use naive_decode::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a model came from, at the moment when its files were opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The directory, or the one file.
    pub path: PathBuf,
    /// Of each file that decides over weights: name, length, time of its last change, and what it says
    /// before the weights; hashed together.
    pub digest: [u8; 32],
    /// Whether other tools keep their files there too (the hub's cache): a place to read, not to write.
    pub is_shared: bool,
}

/// One file as it was when it was opened.
#[derive(Debug, Clone)]
pub(crate) struct Stamp {
    name: String,
    length: u64,
    modified: SystemTime,
    /// Of the bytes before the weights.
    head: blake3::Hash,
}

impl Origin {
    pub(crate) fn new(path: &Path, stamps: &[Stamp]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for Stamp { name, length, modified, head } in stamps {
            let since = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            hasher.update(&length.to_le_bytes()).update(&since.to_le_bytes());
            hasher.update(head.as_bytes());
        }
        Origin { path: path.to_owned(), digest: hasher.finalize().into(), is_shared: false }
    }
}

impl Stamp {
    /// When a file was last changed. To be asked before it is opened: if it is replaced between the two,
    /// the stamp is one that no file has again, and what is made of it is not used twice.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn modified(path: &Path) -> Result<SystemTime> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let found = path.metadata().map_err(io)?;
        // A system without such times has the other marks.
        Ok(found.modified().unwrap_or(UNIX_EPOCH))
    }

    /// The stamp of a file that was opened since.
    pub(crate) fn new(path: &Path, modified: SystemTime, length: usize, head: &[u8]) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Stamp { name, length: length as u64, modified, head: blake3::hash(head) }
    }
}
