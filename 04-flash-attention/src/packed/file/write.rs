//! Writing packed weights to a file.

use super::PackedFrom;
use super::header::{Entry, Header, PREFIX, checksum, hexadecimal};
use crate::kernels::LINE;
use crate::packed::memory::Block;
use crate::packed::packer::Packed;
use naive_decode::{Error, Result};
use rayon::prelude::*;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use tempfile::NamedTempFile;

/// How the name of a file begins that is not whole yet.
const HIDDEN: &str = ".packing-";

/// A stretch begins at a multiple of this: the largest page that systems map files in.
const PAGE: usize = 1 << 16;

/// A packed matrix that may yet be written.
pub(in crate::packed) struct Kept {
    pub(in crate::packed) name: String,
    pub(in crate::packed) packed: Packed,
    pub(in crate::packed) outputs: usize,
    pub(in crate::packed) inputs: usize,
    pub(in crate::packed) shares: Arc<[Block]>,
}

/// Writes a file of these matrices. Whoever has an older one at `path` mapped keeps what they have;
/// a program that is stopped half-way leaves the older one in place, and a hidden one that the next removes.
///
/// # Errors
/// If the file cannot be written.
pub(in crate::packed) fn write(path: &Path, from: &PackedFrom, kept: &[Kept]) -> Result<()> {
    let refused = |e: std::io::Error| {
        Error::file(path.display().to_string(), format!("cannot be written: {e}"))
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    remove_left_overs(folder);
    let new = hidden(folder).map_err(refused)?;
    write_to(new.as_file(), from, kept).map_err(refused)?;
    // On disk before it has the name under which it is believed.
    new.as_file().sync_all().map_err(refused)?;
    new.persist(path).map_err(|e| refused(e.error))?;
    Ok(())
}

/// A new hidden file, locked for as long as it is open: the lock says that somebody writes it, and goes with who does.
fn hidden(folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // Readable by whoever can read the model, if that is what the user's new files are.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(HIDDEN);
    loop {
        let new = builder.tempfile_in(folder)?;
        // Where there are no locks, nobody gets one to remove it either.
        let _ = new.as_file().lock();
        // Before it was locked, another program may have taken it for one that was left over.
        if new.path().try_exists()? {
            return Ok(new);
        }
    }
}

/// Removes the hidden files of programs that were stopped: those that nobody has locked. What cannot be removed is left.
fn remove_left_overs(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let hidden = entry.file_name().as_encoded_bytes().starts_with(HIDDEN.as_bytes());
        // To open a pipe would wait for somebody to read from it.
        if !hidden || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // Open until it is gone, so that it stays locked.
        if let Ok(file) = OpenOptions::new().write(true).open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn write_to(file: &File, from: &PackedFrom, kept: &[Kept]) -> std::io::Result<()> {
    let header = lay_out(from, kept);
    let mut out = BufWriter::new(file);
    out.write_all(&header.to_bytes())?;
    for thread in 0..from.threads {
        for (entry, kept) in header.matrices.iter().zip(kept) {
            // What is skipped reads as zeros.
            out.seek(SeekFrom::Start(entry.shares[thread][0] as u64))?;
            out.write_all(kept.shares[thread].bytes())?;
        }
    }
    out.flush()?;
    file.set_len(header.length as u64)
}

/// Gives every block its place.
fn lay_out(from: &PackedFrom, kept: &[Kept]) -> Header {
    let entry = |kept: &Kept| Entry {
        name: kept.name.clone(),
        format: kept.packed.format.name().into(),
        as_stored: kept.packed.as_stored,
        outputs: kept.outputs,
        inputs: kept.inputs,
        // As long as a place can be, so that the header is not longer once places are known.
        shares: kept.shares.iter().map(|share| [usize::MAX, share.bytes().len()]).collect(),
        checksum: checksum(kept.shares.iter().map(Block::bytes)),
    };
    let mut header = Header {
        sources: hexadecimal(&from.sources),
        weights: from.weights.name().into(),
        threads: from.threads,
        length: usize::MAX,
        matrices: kept.par_iter().map(entry).collect(),
    };
    let mut end = header.to_bytes().len().max(PREFIX);
    for thread in 0..from.threads {
        end = end.next_multiple_of(PAGE);
        for entry in &mut header.matrices {
            let [start, length] = &mut entry.shares[thread];
            *start = end.next_multiple_of(LINE);
            end = *start + *length;
        }
    }
    header.length = end;
    header
}
