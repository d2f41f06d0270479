//! A model in several GGUF files, as llama.cpp's `gguf-split` writes it.
//!
//! The first says everything that is not a weight, and the number of files. Each has tensors of its own. They lie side by
//! side, under names that count: `model-00001-of-00003.gguf`. Where there is one file there is nothing to be found.

use super::header::{Header, TensorPlace};
use super::metadata::Metadata;
use crate::origin::Stamp;
use crate::text_file::check_is_file;
use naive_decode::{Error, FileMap, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Digits of either number in a part's name.
const DIGITS: usize = 5;

/// One file of a model.
pub(super) struct Part {
    path: PathBuf,
    /// What errors call it.
    pub(super) file: String,
    pub(super) bytes: FileMap,
    modified: SystemTime,
    /// Bytes before the weights.
    head: usize,
}

impl Part {
    /// Opens a file, and reads what it says before the weights.
    fn open(path: &Path) -> Result<(Self, Header)> {
        check_is_file(path)?;
        let modified = Stamp::modified(path)?;
        let bytes = FileMap::open(path)?;
        let file = path.display().to_string();
        let header = Header::read(&file, &bytes)?;
        let head = header.tensors.values().map(|place| place.start).min().unwrap_or(bytes.len());
        Ok((Part { path: path.to_owned(), file, bytes, modified, head }, header))
    }

    /// What it says besides weights, in its own header or in one that others have added tensors to.
    pub(super) fn metadata<'a>(&'a self, header: &'a Header) -> Metadata<'a> {
        Metadata { file: &self.file, bytes: &self.bytes, entries: &header.metadata }
    }

    /// What tells the file from others.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::new(&self.path, self.modified, self.bytes.len(), &self.bytes[..self.head])
    }
}

/// A model's files, the first of which says how many there are.
pub(super) struct Parts {
    pub(super) parts: Vec<Part>,
    /// What the first says, and where the tensors of all lie.
    pub(super) header: Header,
}

impl Parts {
    /// Opens a model's only file, or the first and all that belong to it.
    ///
    /// # Errors
    /// Whatever is wrong with one of them, or if they are not those of one model.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (first, mut header) = Part::open(path)?;
        let (number, count) = numbers(&first, &header)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let named = PartName::parse(name).filter(|named| named.count == count);
        if count > 1 && number > 0 {
            let one = named.map_or("the first".to_owned(), |named| named.of(1));
            let problem = format!("is part {} of {count}, expected {one}", number + 1);
            return Err(Error::file(&first.file, problem));
        }
        let mut parts = vec![first];
        if count > 1 {
            let Some(named) = named.filter(|named| named.number == 1) else {
                let ending = PartName { stem: "", number: 1, count }.of(1);
                let problem = format!(
                    "is the first of {count} parts, expected a name that ends with {ending}: the \
                     others are found by it"
                );
                return Err(Error::file(&parts[0].file, problem));
            };
            for number in 1..count {
                let (part, more) = Part::open(&path.with_file_name(named.of(number + 1)))?;
                let found = numbers(&part, &more)?;
                if found != (number, count) {
                    let problem = format!(
                        "says that it is part {} of {}, expected part {} of {count}",
                        found.0 + 1,
                        found.1,
                        number + 1
                    );
                    return Err(Error::file(&part.file, problem));
                }
                add(&mut header.tensors, more.tensors, number, &part)?;
                parts.push(part);
            }
            check_count(&parts[0], &header)?;
        }
        Ok(Parts { parts, header })
    }
}

/// Which part a file says that it is, from 0 on, and of how many.
fn numbers(part: &Part, header: &Header) -> Result<(usize, usize)> {
    let metadata = part.metadata(header);
    let count = metadata.integer("split.count")?.unwrap_or(1).max(1);
    let number = metadata.integer("split.no")?.unwrap_or(0);
    if number >= count {
        let expected = format!("less than split.count, {count}");
        return Err(metadata.mismatch("split.no", &number.to_string(), &expected));
    }
    // No loss that matters: so many files there are not.
    Ok((number as usize, count as usize))
}

/// Adds a part's tensors to those of the parts before.
fn add(
    tensors: &mut BTreeMap<String, TensorPlace>,
    more: BTreeMap<String, TensorPlace>,
    number: usize,
    part: &Part,
) -> Result<()> {
    for (name, place) in more {
        if tensors.contains_key(&name) {
            let problem = format!("tensor `{name}` is in a part before it, too, expected once");
            return Err(Error::file(&part.file, problem));
        }
        tensors.insert(name, TensorPlace { part: number, ..place });
    }
    Ok(())
}

/// As many tensors as the first part promises.
fn check_count(first: &Part, header: &Header) -> Result<()> {
    let (metadata, key) = (first.metadata(header), "split.tensors.count");
    let found = header.tensors.len();
    match metadata.integer(key)? {
        Some(promised) if promised != found as u64 => {
            let expected = format!("{found}, which all parts have together");
            Err(metadata.mismatch(key, &promised.to_string(), &expected))
        }
        _ => Ok(()),
    }
}

/// The name of one of several files: `stem-00001-of-00003.gguf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartName<'a> {
    /// What all have in common.
    pub(crate) stem: &'a str,
    /// From 1 on.
    pub(crate) number: usize,
    pub(crate) count: usize,
}

impl<'a> PartName<'a> {
    /// Reads a name, or a path; none if it is not one of several files'.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let counted = |text: &str| {
            let digits = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits)
        };
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (counted(number)?, counted(count)?);
        (1..=count).contains(&number).then_some(PartName { stem, number, count })
    }

    /// The name of part `number`, from 1 on.
    pub(crate) fn of(&self, number: usize) -> String {
        format!("{}-{number:0DIGITS$}-of-{:0DIGITS$}.gguf", self.stem, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_told_from_others() {
        let name = PartName::parse("q4/m-1-00002-of-00010.gguf").unwrap();
        assert_eq!(name, PartName { stem: "q4/m-1", number: 2, count: 10 });
        assert_eq!(name.of(1), "q4/m-1-00001-of-00010.gguf");
        assert_eq!(name.of(name.number), "q4/m-1-00002-of-00010.gguf");
        for other in [
            "m.gguf",
            "m-00001-of-00002",
            "m-00001-of-00002.gguf.part",
            "m-1-of-2.gguf",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-+0001-of-00002.gguf",
            "00001-of-00002.gguf",
            "m-00001-of-.gguf",
        ] {
            assert_eq!(PartName::parse(other), None, "{other}");
        }
    }
}
