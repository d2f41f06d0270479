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
    // Both in one form, for the copy to be known where it lies inside what is copied: links are followed, and Windows writes
    // canonical paths in a way of its own.
    let (root, folder) = (place.root.canonicalize()?, folder.canonicalize()?);
    let wanted = |entry: &DirEntry| {
        let history = entry.file_name() == ".git";
        entry.path() != folder && !history && !entry.path().join(MADE_ANEW).exists()
    };
    for entry in WalkDir::new(&root).into_iter().filter_entry(wanted) {
        let entry = entry?;
        let to = folder.join(entry.path().strip_prefix(&root)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&to)?;
        } else if !entry.path_is_symlink() {
            // The workspace has no links: they are an editor's, or somebody's to a folder of models.
            fs::copy(entry.path(), &to).with_context(|| {
                format!("cannot copy {} to {}", entry.path().display(), to.display())
            })?;
        }
    }
    Ok(folder)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_copy_inside_the_checkout_is_not_copied_into_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::create_dir_all(real.join("a")).unwrap();
        fs::write(real.join("a/x.rs"), "").unwrap();
        symlink(&real, &link).unwrap();
        // As an editor leaves them, and as somebody has their models elsewhere.
        symlink("ada@host.7", real.join("a/.#x.rs")).unwrap();
        symlink(folder.path(), real.join("models")).unwrap();
        let copy = workspace(&Place { root: link.clone() }, &link.join("copy")).unwrap();
        assert!(copy.join("a/x.rs").is_file() && !copy.join("copy").exists());
        assert!(!copy.join("models").exists());
    }
}
