//! Where things lie: the repository, and the book in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The checkout that the book belongs to.
#[derive(Clone)]
pub(crate) struct Place {
    /// The root of the repository. Paths in directives start here.
    pub(crate) root: PathBuf,
}

impl Place {
    /// The checkout that this program was built from.
    pub(crate) fn here() -> Self {
        let book = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: book.parent().expect("the book's crate lies in the repository").into() }
    }

    /// The folder that holds `book.toml`.
    pub(crate) fn book(&self) -> PathBuf {
        self.root.join("book")
    }

    /// The folder that holds the chapters.
    pub(crate) fn chapters(&self) -> PathBuf {
        self.root.join("book/src")
    }

    /// Reads a file named by its path from the root of the repository.
    pub(crate) fn read(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.root.join(path))
            .map_err(|e| format!("cannot read `{path}` from the root of the repository: {e}"))
    }
}

/// A path as chapters and readers have it. Windows would write `\`.
pub(crate) fn with_slashes(path: &Path) -> String {
    path.iter().map(OsStr::to_string_lossy).collect::<Vec<_>>().join("/")
}
