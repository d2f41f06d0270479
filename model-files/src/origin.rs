//! What tells a model's files from others, and from themselves before they changed: so that what was
//! made of them, and kept, is not taken for what would be made of them now.

use naive_decode::{Error, Result};
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a piece of a file's weights. The system reads a whole page for it.
const PIECE: u64 = 1 << 10;

/// Pieces of one file at most: some milliseconds from a cache, and little more from a disk without moving parts. A file of
/// four gigabytes has one in every four megabytes, which few of its matrices are shorter than.
const PIECES: u64 = 1 << 10;

/// Pieces that a thread reads at least, with a file that it opens for them.
const PIECES_AT_ONCE: usize = 1 << 7;

/// Where a model came from, at the moment when its files were opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The directory, or the one file.
    pub path: PathBuf,
    /// Of each file that decides over weights: name, length, time of its last change, what it says before
    /// the weights, and pieces of these; hashed together. Tells the files here from what they were.
    pub digest: [u8; 32],
    /// The same without names and times, so that copies have the same wherever they are.
    pub content: [u8; 32],
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
    /// Of pieces of the weights.
    weights: blake3::Hash,
}

impl Origin {
    pub(crate) fn new(path: &Path, stamps: &[Stamp]) -> Self {
        let (mut digest, mut content) = (blake3::Hasher::new(), blake3::Hasher::new());
        for Stamp { name, length, modified, head, weights } in stamps {
            content.update(&length.to_le_bytes());
            content.update(head.as_bytes()).update(weights.as_bytes());
            let since = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            digest.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            digest.update(&since.to_le_bytes());
        }
        let content = content.finalize();
        let digest = digest.update(content.as_bytes()).finalize();
        let (digest, content) = (digest.into(), content.into());
        Origin { path: path.to_owned(), digest, content, is_shared: false }
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

    /// The stamp of a file that was opened since, and begins with `head`.
    pub(crate) fn new(path: &Path, modified: SystemTime, length: usize, head: &[u8]) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let length = length as u64;
        // What cannot be read has the other marks; whoever needs the weights will say what is wrong.
        let weights = pieces(path, head.len() as u64, length);
        let weights = weights.unwrap_or(blake3::Hash::from_bytes([0; 32]));
        Stamp { name, length, modified, head: blake3::hash(head), weights }
    }
}

/// A hash over pieces of what comes after a file's head, at equal distances from its first byte to its last; over
/// all of it where they meet.
///
/// A change that lies between two pieces is not seen. What makes another model of one changes more: most
/// matrices, or whole ones.
fn pieces(path: &Path, head: u64, length: u64) -> io::Result<blake3::Hash> {
    let after = length.saturating_sub(head);
    let count = after.div_ceil(PIECE).min(PIECES);
    let (size, last) = (after.min(PIECE), after.saturating_sub(PIECE));
    // Read, not mapped: around each page of a map that is asked for, the system reads many more.
    let read = |file: &mut io::Result<File>, piece: usize| {
        let file = file.as_mut().map_err(|problem| io::Error::from(problem.kind()))?;
        let mut bytes = vec![0; size as usize];
        file.seek(SeekFrom::Start(head + piece as u64 * last / (count - 1).max(1)))?;
        file.read_exact(&mut bytes)?;
        Ok(blake3::hash(&bytes))
    };
    let every = (0..count as usize).into_par_iter().with_min_len(PIECES_AT_ONCE);
    let hashes: io::Result<Vec<_>> = every.map_init(|| File::open(path), read).collect();
    let mut hasher = blake3::Hasher::new();
    hashes?.iter().for_each(|hash| {
        hasher.update(hash.as_bytes());
    });
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 100;

    fn write(path: &Path, at: u64, bytes: &[u8]) {
        let mut file = File::options().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        io::Write::write_all(&mut file, bytes).unwrap();
    }

    /// Whether a file without anything in it is told from one with bytes at a place.
    fn is_seen(length: u64, at: u64, bytes: &[u8]) -> bool {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(length).unwrap();
        let before = pieces(file.path(), HEAD, length).unwrap();
        write(file.path(), at, bytes);
        pieces(file.path(), HEAD, length).unwrap() != before
    }

    #[test]
    fn every_byte_of_a_small_file_counts() {
        for length in [HEAD + 1, HEAD + PIECE - 1, HEAD + PIECE, HEAD + PIECE + 1, HEAD + 3_333] {
            for at in (HEAD..length).step_by(97).chain([length - 1]) {
                assert!(is_seen(length, at, &[1]), "byte {at} of {length}");
            }
        }
        assert!(!is_seen(HEAD + 3_333, HEAD - 1, &[1]), "the head has a hash of its own");
    }

    #[test]
    fn of_a_large_file_its_ends_count_and_whatever_is_as_long_as_a_distance() {
        let length = HEAD + 100_000_007;
        let matrix = vec![1; (length / PIECES) as usize + 1];
        for at in [HEAD, 12_345_678, 60_000_000, length - matrix.len() as u64] {
            assert!(is_seen(length, at, &matrix), "{at}");
        }
        for at in [HEAD, length - 1] {
            assert!(is_seen(length, at, &[1]), "{at}");
        }
    }

    #[test]
    fn pieces_of_a_file_that_is_gone_or_shorter_are_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(5_000).unwrap();
        assert!(pieces(file.path(), HEAD, 5_001).is_err());
        assert!(pieces(&file.path().with_extension("absent"), HEAD, 5_000).is_err());
        assert!(pieces(&file.path().with_extension("absent"), HEAD, HEAD).is_ok(), "has none");
    }
}
