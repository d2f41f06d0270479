//! Reading a GGUF header from front to back, never past its end.

use naive_decode::{Error, Result};
use std::fmt::Display;

/// A place in the file. Everything that is read says what it is, so that a file which ends too
/// early can say what it lacks. That is written out only then: a vocabulary is hundreds of thousands
/// of texts.
pub(super) struct Cursor<'a> {
    pub(super) file: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: u64, what: impl Display) -> Result<&'a [u8]> {
        let left = self.left();
        let Some(count) = usize::try_from(count).ok().filter(|&count| count <= left) else {
            let problem = format!(
                "{what} at byte {} needs {count} bytes, but {left} are left in the file's {}: \
                 it is truncated or damaged",
                self.at,
                self.bytes.len()
            );
            return Err(Error::file(self.file, problem));
        };
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    pub(super) fn u32(&mut self, what: impl Display) -> Result<u32> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were taken")))
    }

    pub(super) fn u64(&mut self, what: impl Display) -> Result<u64> {
        let bytes = self.take(8, what)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    /// A string: its length in bytes, then UTF-8.
    pub(super) fn text(&mut self, what: impl Display) -> Result<&'a str> {
        let (length, at) = (self.u64(&what)?, self.at);
        let bytes = self.take(length, &what)?;
        std::str::from_utf8(bytes)
            .map_err(|e| Error::file(self.file, format!("{what} at byte {at} is not UTF-8: {e}")))
    }

    /// A number of things of which each takes at least `smallest` bytes: more than the file can
    /// hold are refused before anything is set aside for them.
    pub(super) fn count(&mut self, smallest: usize, what: impl Display) -> Result<usize> {
        let (count, left) = (self.u64(&what)?, self.left());
        match usize::try_from(count) {
            Ok(count) if count <= left / smallest => Ok(count),
            _ => {
                let most = left / smallest;
                let problem = format!(
                    "{what} is {count}, expected at most {most}: {left} bytes \
                     are left in the file: it is truncated or damaged"
                );
                Err(Error::file(self.file, problem))
            }
        }
    }
}
