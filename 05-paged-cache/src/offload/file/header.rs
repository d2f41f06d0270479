//! The first bytes of the file: what it is, and whose.
//!
//! | Bytes | |
//! |---|---|
//! | 0..8 | `KVBLOCKS` |
//! | 8..16 | version of the format |
//! | 16..24 | bytes that a slot has for a block |
//! | 24..56 | fingerprint of what wrote it |
//! | 56..88 | BLAKE3 of the above |
//!
//! Numbers are little-endian.

use super::FileOptions;
use std::fmt::Write;

/// Length of the header.
pub(super) const BYTES: usize = 88;
const MAGIC: &[u8; 8] = b"KVBLOCKS";
const VERSION: u64 = 1;

/// The header of a file with these options.
pub(super) fn encode(options: &FileOptions) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&(options.block_bytes as u64).to_le_bytes());
    header[24..56].copy_from_slice(&options.fingerprint);
    let checksum = blake3::hash(&header[..56]);
    header[56..].copy_from_slice(checksum.as_bytes());
    header
}

/// What a file's first bytes say about it.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// A header with these very options.
    Ours,
    /// Nothing yet, or the beginning of our header and no more: it was being made.
    Unfinished,
    /// Something else, and what was expected instead.
    Foreign(String),
}

/// Reads the first bytes of a file: [`BYTES`] of them, or all that there are.
pub(super) fn inspect(first: &[u8], options: &FileOptions) -> Found {
    let expected = encode(options);
    if first == expected {
        return Found::Ours;
    }
    if expected.starts_with(first) {
        return Found::Unfinished;
    }
    if !first.starts_with(MAGIC) {
        let begins = first[..first.len().min(8)].escape_ascii().to_string();
        return Found::Foreign(format!(
            "begins with \"{begins}\" and is no file of blocks, which begins with \"KVBLOCKS\""
        ));
    }
    let version = first[8..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    if let Some(version) = version.filter(|&version| version != VERSION) {
        return Found::Foreign(format!("has format version {version}, expected {VERSION}"));
    }
    if first.len() < BYTES {
        let length = first.len();
        return Found::Foreign(format!(
            "ends after {length} bytes, in a header that is not of these blocks"
        ));
    }
    if blake3::hash(&first[..56]).as_bytes() != &first[56..BYTES] {
        return Found::Foreign("has a damaged header: its checksum does not match".into());
    }
    let block_bytes = u64::from_le_bytes(first[16..24].try_into().expect("8 bytes"));
    if block_bytes != options.block_bytes as u64 {
        let expected = options.block_bytes;
        return Found::Foreign(format!("has blocks of {block_bytes} bytes, expected {expected}"));
    }
    Found::Foreign(format!(
        "has blocks of another model or layout: fingerprint {}, expected {}",
        hex(&first[24..56]),
        hex(&options.fingerprint)
    ))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}
