//! What a file of packed weights says before the weights.

use super::PackedFrom;
use crate::kernels::LINE;
use crate::packed::format::Format;
use crate::packed::linear::share_bytes;
use serde::{Deserialize, Serialize};

/// What the file begins with.
const MAGIC: [u8; 8] = *b"PACKEDW\0";

/// To be raised when anything changes in how numbers become panels, in which matrices are one, or in what the file says.
const VERSION: u64 = 8;

/// Magic, version, length of the header, checksum.
pub(super) const PREFIX: usize = 8 + 8 + 8 + 32;

/// Where the checksum begins.
const CHECKSUM: usize = 24;

/// The header. What is in it is checked by [`Header::read`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    /// [`PackedFrom::sources`], in hexadecimal.
    pub(super) sources: String,
    pub(super) weights: String,
    pub(super) threads: usize,
    /// Bytes of the whole file.
    pub(super) length: usize,
    /// In the order of packing.
    pub(super) matrices: Vec<Entry>,
}

/// One matrix.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) format: String,
    /// Whether it was taken as its source had it.
    pub(super) as_stored: bool,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// For each thread, first byte in the file and length.
    pub(super) shares: Vec<[usize; 2]>,
    /// Of all shares, one after another.
    pub(super) checksum: String,
}

/// The checksum of some blocks, in hexadecimal.
pub(super) fn checksum<'a>(blocks: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    blocks.for_each(|block| {
        hasher.update(block);
    });
    hasher.finalize().to_hex().to_string()
}

impl Header {
    /// Prefix and header as they are written.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).expect("texts and numbers can be written");
        let mut bytes = Vec::with_capacity(PREFIX + json.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((json.len() as u64).to_le_bytes());
        bytes.extend(prefix_checksum(&bytes, &json));
        bytes.extend(json);
        bytes
    }

    /// Reads the header of a whole file, or says what is wrong.
    pub(super) fn read(file: &[u8]) -> Result<Self, String> {
        let cut = || format!("ends after {} bytes, before its header: cut short", file.len());
        let prefix = file.first_chunk::<PREFIX>().ok_or_else(cut)?;
        if prefix[..8] != MAGIC {
            return Err("is no file of packed weights".into());
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| prefix[at + i]));
        if number(8) != VERSION {
            return Err(format!("is of version {}, expected {VERSION}", number(8)));
        }
        let length = usize::try_from(number(16)).ok();
        let json = length.and_then(|length| file[PREFIX..].get(..length)).ok_or_else(cut)?;
        if prefix[CHECKSUM..] != prefix_checksum(&prefix[..CHECKSUM], json) {
            return Err("has a damaged header".into());
        }
        let header: Header = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if header.length != file.len() {
            let (found, expected) = (file.len(), header.length);
            return Err(format!("has {found} bytes, expected {expected}: cut short or added to"));
        }
        match header.matrices.iter().find(|entry| !entry.is_sound(&header)) {
            None => Ok(header),
            Some(odd) => Err(format!("has no room for matrix `{}` where it should be", odd.name)),
        }
    }

    /// Compares what the file was packed from with what is wanted.
    pub(super) fn check_from(&self, wanted: &PackedFrom) -> Result<(), String> {
        let PackedFrom { sources, weights, threads } = wanted;
        if self.sources != hexadecimal(sources) {
            return Err("was packed from other files, or from these before they changed".into());
        }
        if self.weights != weights.name() {
            return Err(format!("was packed as {}, expected {}", self.weights, weights.name()));
        }
        if self.threads != *threads {
            return Err(format!("was packed for {} threads, expected {threads}", self.threads));
        }
        Ok(())
    }
}

impl Entry {
    /// Whether every share has the length that its panels take, and lies in the file.
    fn is_sound(&self, header: &Header) -> bool {
        let Ok(format) = self.format.parse::<Format>() else { return false };
        // Far above any matrix there is; what is computed of them fits 64 bits.
        let is_size = |size: usize| (1..=1 << 32).contains(&(size as u64));
        let fits = |(thread, &[start, length]): (usize, &[usize; 2])| {
            let expected = share_bytes(format, self.outputs, self.inputs, header.threads, thread);
            let end = start.checked_add(length);
            expected == Some(length)
                && start.is_multiple_of(LINE)
                && end.is_some_and(|end| end <= header.length)
        };
        is_size(self.outputs)
            && is_size(self.inputs)
            && format.check_inputs(self.inputs).is_ok()
            && self.shares.len() == header.threads
            && self.shares.iter().enumerate().all(fits)
    }
}

fn prefix_checksum(prefix: &[u8], json: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prefix).update(json);
    hasher.finalize().into()
}

pub(super) fn hexadecimal(bytes: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::digits::MOST_INPUTS;

    #[test]
    fn a_matrix_whose_sums_may_overflow_is_not_sound() {
        let header = Header {
            sources: String::new(),
            weights: String::new(),
            threads: 1,
            length: usize::MAX,
            matrices: Vec::new(),
        };
        let is_sound = |inputs| {
            let length = share_bytes(Format::Int8, 16, inputs, 1, 0).expect("it fits 64 bits");
            let entry = Entry {
                name: "matrix".into(),
                format: "int8".into(),
                as_stored: false,
                outputs: 16,
                inputs,
                shares: vec![[0, length]],
                checksum: String::new(),
            };
            entry.is_sound(&header)
        };
        assert!(is_sound(MOST_INPUTS) && !is_sound(MOST_INPUTS + 1));
    }
}
