//! A file's bytes, mapped into memory.

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

/// A file, mapped to be read: its pages come from disk when something on them is first asked for.
///
/// Only [`FileMap::open`] makes one, so behind it there is always a file that its pages can come from again.
pub struct FileMap(Mmap);

impl FileMap {
    /// Maps a file.
    ///
    /// The file must stay as it is while the map lives. To change it, write a new file beside it and rename.
    ///
    /// # Errors
    /// If the file cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        // SAFETY: the map is read-only, and nobody may change or shorten the file while it is
        // mapped: that is this function's stated condition, as it is of every loader that maps.
        Ok(FileMap(unsafe { Mmap::map(&file) }.map_err(io)?))
    }

    /// Lets go of the pages that were read. They count as the program's memory for as long as they are
    /// mapped; what is asked for again comes from the system's cache, or from the file. Only a wish.
    pub fn release_pages(&self) {
        // SAFETY: the map is shared with its file and read-only, so no page has anything that the file does not: it comes
        // back, when it is next read, with the same bytes. Slices of the map that are alive see no difference, as the
        // file stays as it is. (A map of memory without a file would come back as zeros.)
        #[cfg(unix)]
        let _ = unsafe { self.0.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_somebody_looks_at_stay_when_their_pages_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bytes");
        let written: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &written).unwrap();
        let map = FileMap::open(&path).unwrap();
        let slice = &map[..];
        assert!(slice == written);
        map.release_pages();
        assert!(slice == written, "the pages come back as the file has them");
        let absent = FileMap::open(&directory.path().join("absent"));
        assert!(matches!(absent, Err(Error::Io { .. })));
    }
}
