//! A file of packed weights: a model is packed once, and mapped ever after.
//!
//! Starting does not wait for the weights: the system is told that all of them will be needed, and may read them ahead. The file
//! holds what [`Memory`](super::Memory) would hold: for each thread a stretch with its panels of all matrices, in the order of
//! packing. On Linux it goes there, too, while the model is at work already.
//!
//! ```text
//! prefix   magic, version, length of the header, checksum of all before the stretches
//! header   JSON: what was packed, and how; each matrix, with place, length and checksum
//! stretch  of the first thread, at the beginning of a page; each block at that of a cache line
//! stretch  of the second, and so on
//! ```
//!
//! Prefix and header are checked whenever a file is opened, so one that is damaged there, cut short, of
//! another version or packed from something else is refused. Blocks have checksums too, but nobody
//! reads every page of a large file at every start: [`PackedFile::verify`] does, for whoever asks.
//!
//! | File | Holds |
//! |---|---|
//! | `copy.rs` | from a mapped file into large pages |
//! | `header.rs` | prefix and header, every number doubted |
//! | `write.rs` | a new file beside the old one, then in its place |

#[cfg(target_os = "linux")]
mod copy;
mod header;
mod write;

use super::format::Format;
use super::linear::PackedLinear;
use super::memory::Block;
use super::packer::Weights;
use crate::kernels::Simd;
use crate::threads::Pool;
use header::{Entry, Header};
use memmap2::Mmap;
use naive_decode::{Error, Result};
use rayon::prelude::*;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(super) use write::{Kept, write};

/// What a file was packed from, and how. Any difference makes it useless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFrom {
    /// A hash of whatever tells the model's files from others, and from themselves before a change.
    pub sources: [u8; 32],
    /// What the weights were to be stored as.
    pub weights: Weights,
    /// Threads that share out the panels.
    pub threads: usize,
}

/// A file of packed weights, mapped.
pub struct PackedFile {
    name: String,
    map: Arc<Mmap>,
    matrices: HashMap<String, (Entry, Arc<[Block]>)>,
}

impl PackedFile {
    /// Maps a file and checks all of it but the blocks. Where the system has large pages, and memory enough, a thread begins to
    /// copy them there.
    ///
    /// The file must stay as it is while it is mapped: bytes that change under a slice are undefined behaviour, and those past
    /// a new end stop the program. No type can hold the system to that, and this function is safe all the same: an
    /// exception that decision 10 gives the reasons for. [`Packer::write`](super::Packer::write) keeps to it: it writes a new
    /// file and puts it in the old one's place.
    ///
    /// # Errors
    /// If it cannot be read, is no whole file of packed weights, or was packed from something else.
    pub fn open(path: &Path, from: &PackedFrom) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let name = path.display().to_string();
        // Opening a pipe would wait for somebody to write to it.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(Error::file(name, "is no file, expected packed weights"));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the map is read-only, and nobody may change or shorten the file while it is mapped: that is this function's
        // stated condition, the accepted exception of decision 10. Writers here put new files in place of old.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let header = Header::read(&map).map_err(|problem| Error::file(&name, problem))?;
        header.check_from(from).map_err(|problem| Error::file(&name, problem))?;
        // Only a wish: that the system begins to read all pages now, before one is asked for.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::WillNeed);
        let map = Arc::new(map);
        let mapped = |entry: Entry| {
            let block = |&[at, length]: &[usize; 2]| Block::mapped(&map, at, length);
            let blocks: Arc<[Block]> = entry.shares.iter().map(block).collect();
            (entry, blocks)
        };
        let matrices: Vec<_> = header.matrices.into_iter().map(mapped).collect();
        #[cfg(target_os = "linux")]
        if copy::is_worth_it(map.len()) {
            let blocks = matrices.iter().map(|(_, blocks)| Arc::downgrade(blocks)).collect();
            let _ = copy::begin(file, header.threads, blocks);
        }
        let matrices = matrices.into_iter().map(|both| (both.0.name.clone(), both)).collect();
        Ok(PackedFile { name, map, matrices })
    }

    /// Reads every block in the file and compares it with its checksum.
    ///
    /// # Errors
    /// Names a matrix that is not what was written.
    pub fn verify(&self) -> Result<()> {
        let odd = self.matrices.par_iter().find_any(|(_, (entry, _))| {
            let blocks = entry.shares.iter().map(|&[start, length]| &self.map[start..][..length]);
            header::checksum(blocks) != entry.checksum
        });
        match odd {
            None => Ok(()),
            Some((matrix, _)) => {
                let problem = format!("matrix `{matrix}` is not what was written: damaged");
                Err(Error::file(&self.name, problem))
            }
        }
    }

    /// A matrix, and whether it was taken as its source had it; none if it is not in the file, or has another shape.
    pub(super) fn matrix(
        &self,
        name: &str,
        [outputs, inputs]: [usize; 2],
        simd: Simd,
        pool: &Arc<Pool>,
    ) -> Option<(PackedLinear, bool)> {
        let (entry, blocks) = self.matrices.get(name)?;
        let format: Format = entry.format.parse().ok()?;
        let same = (entry.outputs, entry.inputs) == (outputs, inputs);
        if !same || blocks.len() != pool.threads() {
            return None;
        }
        let shares = blocks.clone();
        let linear = PackedLinear::from_shares(format, outputs, inputs, simd, pool, shares);
        Some((linear, entry.as_stored))
    }
}
