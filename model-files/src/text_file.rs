//! The small files around the weights, read whole, and doubted first: what is named like a file may
//! be a directory, a device that never ends, or a link that leads nowhere.

use naive_decode::{Error, Result};
use std::path::Path;

/// Longest text that is read, in bytes. The largest tokenizers there are have 35 MB.
const LONGEST: u64 = 256 << 20;

/// Whether something has that name, be it a link to nowhere: then reading it says so. (A link to
/// nowhere is what a cleaned-up cache leaves behind; to do without the file would be to run the
/// model without its template, or without the token that ends it.)
pub(crate) fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Checks that there is a file to open: opening a pipe could wait for ever.
///
/// # Errors
/// If the path leads nowhere, or to something else than a file.
pub(crate) fn check_is_file(path: &Path) -> Result<u64> {
    let found = path.metadata().map_err(|source| Error::Io { path: path.to_owned(), source })?;
    if found.is_file() {
        return Ok(found.len());
    }
    let what = if found.is_dir() { "a directory" } else { "a device or a pipe" };
    Err(Error::file(path.display().to_string(), format!("is {what}, expected a file")))
}

/// The bytes of a file of text.
///
/// # Errors
/// If it is not there, no file, cannot be read, or is longer than any such file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let length = check_is_file(path)?;
    if length > LONGEST {
        let problem = format!("has {length} bytes, expected a text of at most {LONGEST}");
        return Err(Error::file(path.display().to_string(), problem));
    }
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// A small file with the name that errors call it by.
pub(crate) struct TextFile {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl TextFile {
    /// A file of a directory, if it is there.
    ///
    /// # Errors
    /// As [`read`].
    pub(crate) fn of(directory: &Path, name: &str) -> Result<Option<Self>> {
        let path = directory.join(name);
        if !is_there(&path) {
            return Ok(None);
        }
        Ok(Some(TextFile { bytes: read(&path)?, name: path.display().to_string() }))
    }
}
