//! The workspace, copied.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use walkdir::{DirEntry, WalkDir};

use crate::place::Place;

/// What says that a folder is made anew when it is missing, as cargo does of its `target`.
const MADE_ANEW: &str = "CACHEDIR.TAG";

/// Copies the workspace into a folder, and gives the copy's root. The copy has a `target` of its own: cargo takes crates of
/// two copies of a workspace for the same, and would run here what was compiled there.
pub(super) fn workspace(place: &Place, folder: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let wanted = |entry: &DirEntry| {
        let history = entry.file_name() == ".git";
        entry.path() != folder && !history && !entry.path().join(MADE_ANEW).exists()
    };
    for entry in WalkDir::new(&place.root).into_iter().filter_entry(wanted) {
        let entry = entry?;
        let to = folder.join(entry.path().strip_prefix(&place.root)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&to)?;
        } else {
            fs::copy(entry.path(), &to)
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(folder)
}
