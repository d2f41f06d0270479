//! A file on the disk that one process has to itself: positioned reads and writes, and errors that name it.

use naive_decode::{Error, Result};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An open, locked file.
///
/// The lock ends with it, or with the process. One thread may read where another writes elsewhere.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    file: File,
}

impl Disk {
    /// Opens the file, or makes an empty one, and locks it.
    ///
    /// # Errors
    /// If it cannot be opened, or another process has it locked.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let unreadable = |source| Error::Io { path: path.to_path_buf(), source };
        let mut options = File::options();
        // Not truncated: whose it is has yet to be seen.
        options.read(true).write(true).create(true).truncate(false);
        // What users have said can be read back from their keys and values.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(unreadable)?;
        let disk = Disk { path: path.to_path_buf(), file };
        match disk.file.try_lock() {
            Ok(()) => Ok(disk),
            Err(TryLockError::WouldBlock) => {
                Err(disk.refused("is in use; end the process that has it, or name another file"))
            }
            Err(TryLockError::Error(source)) => Err(unreadable(source)),
        }
    }

    /// An error about the file as a whole.
    pub(super) fn refused(&self, problem: impl ToString) -> Error {
        Error::file(self.path.display().to_string(), problem)
    }

    /// Length in bytes.
    pub(super) fn length(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|source| self.unreadable(source))?.len())
    }

    /// Cuts the file off at a length.
    pub(super) fn truncate(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(|error| self.unwritable(&error))
    }

    /// Reads from an offset until the buffer is full or the file ends; returns how much there was.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            match positioned::read(&self.file, &mut buffer[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.unreadable(source)),
            }
        }
        Ok(length)
    }

    /// Writes all bytes at an offset.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut length = 0;
        while length < bytes.len() {
            match positioned::write(&self.file, &bytes[length..], offset + length as u64) {
                Ok(0) => return Err(self.unwritable(&ErrorKind::WriteZero.into())),
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unwritable(&error)),
            }
        }
        Ok(())
    }

    fn unreadable(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }

    fn unwritable(&self, error: &std::io::Error) -> Error {
        self.refused(format!("cannot be written: {error}"))
    }
}

/// Reads and writes at an offset, wherever another thread reads or writes.
mod positioned {
    use std::fs::File;
    use std::io::Result;
    #[cfg(unix)]
    use std::os::unix::fs::FileExt;
    #[cfg(windows)]
    use std::os::windows::fs::FileExt;

    pub(super) fn read(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
        #[cfg(unix)]
        return file.read_at(buffer, offset);
        #[cfg(windows)]
        return file.seek_read(buffer, offset);
    }

    pub(super) fn write(file: &File, bytes: &[u8], offset: u64) -> Result<usize> {
        #[cfg(unix)]
        return file.write_at(bytes, offset);
        #[cfg(windows)]
        return file.seek_write(bytes, offset);
    }
}

impl Drop for Disk {
    /// Closing is not enough: a child process that another thread is just starting has a copy of the open
    /// file until it runs its own program, and the lock with it. Unlocking ends the lock for both.
    fn drop(&mut self) {
        // Nobody is left to tell, and the lock ends with the process at the latest.
        let _ = self.file.unlock();
    }
}
