//! GGUF: one file with everything in it, tensors, sizes and vocabulary, as llama.cpp writes it; or several, of a large model.
//!
//! The format is defined in ggml's `docs/gguf.md`; versions 2 and 3 are read, little-endian. The
//! file is memory-mapped: opening it reads the header, and weights come from disk when a tensor is
//! asked for.

mod config;
mod cursor;
mod dialect;
mod experts;
mod header;
mod metadata;
mod parts;
mod rope_factors;
mod tokenizer;
mod value;

pub(crate) use header::is_gguf;
pub use metadata::Metadata;
pub(crate) use parts::PartName;

use crate::architectures::Architecture;
use crate::blocks::{RawTensor, dequantise};
use crate::origin::Stamp;
use dialect::{Dialect, LONG_DIVISORS, ROPE_DIVISORS, SHORT_DIVISORS};
use header::{Header, TensorPlace};
use naive_decode::{Error, Result, Tokenizer};
use parts::{Part, Parts};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;

/// An open GGUF file. Tensors are asked for by their names in Hugging Face's layout.
pub struct Gguf {
    /// One or more; the first has all metadata.
    parts: Vec<Part>,
    header: Header,
    dialect: &'static Dialect,
    /// Query and key-value heads, whose rows may have to change places.
    heads: [usize; 2],
}

impl Gguf {
    /// Opens a file and checks its header against its length; with the first of several parts, all of them.
    ///
    /// The file must stay as it is while it is open. To update a model, write a new file beside it
    /// and rename.
    ///
    /// # Errors
    /// If it cannot be read, is no whole GGUF file, is a later part or lacks one, or has an architecture that is not known here.
    pub fn open(path: &Path) -> Result<Self> {
        let Parts { parts, header } = Parts::open(path)?;
        let metadata = parts[0].metadata(&header);
        let dialect = Dialect::of(&metadata)?;
        let heads = dialect.heads(&metadata)?;
        Ok(Gguf { parts, header, dialect, heads })
    }

    /// Name that errors give this file, or its first part.
    pub fn file(&self) -> &str {
        &self.parts[0].file
    }

    /// Size of the file in bytes, of all parts together.
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// Gives pages that were read back to the system; the next look at them reads the file again.
    pub fn release_pages(&self) {
        self.parts.iter().for_each(|part| part.bytes.release_pages());
    }

    /// What tells each of its files from others.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        self.parts.iter().map(Part::stamp).collect()
    }

    /// Numbers in its weights, RoPE's divisors aside: they are part of the shape.
    pub fn parameters(&self) -> usize {
        let divisors = [ROPE_DIVISORS, SHORT_DIVISORS, LONG_DIVISORS];
        let tensors = self.header.tensors.iter();
        let weights = tensors.filter(|(name, _)| !divisors.contains(&name.as_str()));
        weights.map(|(_, place)| place.shape.iter().product::<usize>()).sum()
    }

    /// What the file says besides weights.
    pub fn metadata(&self) -> Metadata<'_> {
        self.parts[0].metadata(&self.header)
    }

    /// The model's shape, and the family it belongs to.
    ///
    /// # Errors
    /// If a size is missing, if they contradict each other or the vocabulary, or if the file has a
    /// tensor that the architecture has not: leaving it out would be another model.
    pub fn architecture(&self) -> Result<Architecture> {
        let tensors = &self.header.tensors;
        let (metadata, key) = (self.metadata(), self.dialect.key("block_count"));
        let blocks = metadata.integer(&key)?;
        let blocks = blocks.ok_or_else(|| metadata.missing(&key, "a whole number"))?;
        if let Some(odd) = tensors.keys().find(|name| !self.dialect.knows(name, blocks)) {
            let known = self.dialect.name;
            let problem =
                format!("tensor `{odd}` is not one that is known of a {known} with {key} {blocks}");
            return Err(Error::file(self.file(), problem));
        }
        let numbers =
            |name: &str| tensors.get(name).map(|place| dequantise(place.kind, self.stored(place)));
        let found = config::Found {
            embedding_rows: tensors.get("token_embd.weight").map(|it| it.shape[0]),
            has_head: tensors.contains_key("output.weight"),
            rope_divisors: numbers(ROPE_DIVISORS),
            short_divisors: numbers(SHORT_DIVISORS),
            long_divisors: numbers(LONG_DIVISORS),
        };
        config::from_metadata(&metadata, self.dialect, found)
    }

    /// The tokenizer, put together from the file's vocabulary.
    ///
    /// # Errors
    /// If the vocabulary is missing, malformed, or of a kind that is not known here.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        tokenizer::from_metadata(&self.metadata())
    }

    /// How the token is written that has the part `name` (`bos`, `eos`), if one has it.
    ///
    /// # Errors
    /// If the vocabulary is malformed or lacks that token.
    pub fn special_token(&self, name: &str) -> Result<Option<&str>> {
        let (metadata, key) = (self.metadata(), format!("tokenizer.ggml.{name}_token_id"));
        let Some(id) = metadata.integer(&key)? else { return Ok(None) };
        let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or_default();
        let token = usize::try_from(id).ok().and_then(|id| tokens.get(id).copied());
        let expected = format!("an id below the vocabulary's {}", tokens.len());
        token.map(Some).ok_or_else(|| metadata.mismatch(&key, &id.to_string(), &expected))
    }

    /// Reads one tensor as f32.
    ///
    /// # Errors
    /// If it is missing, has another shape, or holds a NaN or an infinity.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let (raw, file) = self.found(name).ok_or_else(|| Error::MissingTensor {
            file: self.file().to_owned(),
            tensor: self.dialect.described(name),
            expected: shape.to_vec(),
        })?;
        if raw.shape != shape {
            return Err(Error::TensorShape {
                file: file.to_owned(),
                tensor: self.dialect.described(name),
                expected: shape.to_vec(),
                found: raw.shape,
            });
        }
        let numbers = dequantise(raw.kind, &raw.bytes);
        match first_odd(&numbers) {
            None => Ok(numbers),
            Some(at) => {
                let tensor = self.dialect.described(name);
                let (kind, found) = (raw.kind, numbers[at]);
                let problem = format!(
                    "tensor `{tensor}` ({kind}) holds {found} at {at}, expected finite numbers"
                );
                Err(Error::file(file, problem))
            }
        }
    }

    /// A tensor as it is stored, with its rows in the order that Hugging Face's layout has. What
    /// conversion put together or took apart is as it was before.
    pub fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        self.found(name).map(|(raw, _)| raw)
    }

    /// The same, and the file that it is in.
    fn found(&self, name: &str) -> Option<(RawTensor<'_>, &str)> {
        let named = self.dialect.name_in_file(name);
        let Some(place) = named.and_then(|named| self.header.tensors.get(&named)) else {
            let file = Cell::new(self.file());
            let stored = |name: &str| {
                let place = self.header.tensors.get(name)?;
                file.set(&self.parts[place.part].file);
                let bytes = Cow::Borrowed(self.stored(place));
                Some(RawTensor { kind: place.kind, shape: place.shape.clone(), bytes })
            };
            return experts::derived(name, &stored).map(|raw| (raw, file.get()));
        };
        let stored = self.stored(place);
        let bytes = match self.dialect.heads_to_unpermute(name, self.heads) {
            Some(heads) => Cow::Owned(unpermuted(place, stored, heads)),
            None => Cow::Borrowed(stored),
        };
        let raw = RawTensor { kind: place.kind, shape: place.shape.clone(), bytes };
        Some((raw, &self.parts[place.part].file))
    }

    fn stored(&self, place: &TensorPlace) -> &[u8] {
        &self.parts[place.part].bytes[place.start..place.start + place.length]
    }
}

/// Where the first number is that is infinite or none.
fn first_odd(numbers: &[f32]) -> Option<usize> {
    /// Numbers that are looked at together, by one thread.
    const AT_ONCE: usize = 4096;
    // To the end even if one is odd: what has no way out early is done to many numbers at once.
    let has_odd = |some: &[f32]| some.iter().fold(false, |odd, x| odd | !x.is_finite());
    let before = numbers.par_chunks(AT_ONCE).position_first(has_odd)? * AT_ONCE;
    let at = numbers[before..].iter().position(|x| !x.is_finite())?;
    Some(before + at)
}

/// The rows of `stored` as they were before conversion to GGUF.
///
/// RoPE turns pairs of numbers. Hugging Face pairs the first half of a head with the second, Meta's
/// code and GGUF's llama architecture pair neighbours, so conversion moved row `half + j` of a head
/// beside row `j`. Here they move back.
fn unpermuted(place: &TensorPlace, stored: &[u8], heads: usize) -> Vec<u8> {
    let rows = place.shape[0];
    if heads == 0 || !rows.is_multiple_of(2 * heads) {
        // A shape that the model cannot have; asking for it as f32 will say so.
        return stored.to_vec();
    }
    let (width, half) = (rows / heads, rows / heads / 2);
    let row_bytes = stored.len() / rows;
    let mut bytes = Vec::with_capacity(stored.len());
    for row in 0..rows {
        let (head, part, j) = (row / width, row % width / half, row % half);
        let from = (head * width + 2 * j + part) * row_bytes;
        bytes.extend_from_slice(&stored[from..from + row_bytes]);
    }
    bytes
}
