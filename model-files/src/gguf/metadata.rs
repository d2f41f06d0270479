//! GGUF's metadata: keys with typed values, read where they lie in the file.
//!
//! A vocabulary is most of it, hundreds of thousands of strings. So opening a file only walks over
//! the values; what somebody asks for is decoded then.

use super::cursor::Cursor;
use super::value::{Entry, Kind, Number};
use naive_decode::{Error, Result};
use std::collections::BTreeMap;

/// The metadata of an open file.
#[derive(Clone, Copy)]
pub struct Metadata<'a> {
    pub(super) file: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) entries: &'a BTreeMap<String, Entry>,
}

impl<'a> Metadata<'a> {
    /// All keys, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.entries.keys().map(String::as_str)
    }

    /// The text at `key`, if there is such a key.
    ///
    /// # Errors
    /// If it holds something else than text.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        match entry.kind {
            Kind::Text => self.cursor(entry.at).text(format!("metadata `{key}`")).map(Some),
            other => Err(self.mismatch(key, &format!("{other:?}"), "text")),
        }
    }

    /// The whole number at `key`, of whatever width.
    ///
    /// # Errors
    /// If it holds something else, or something negative.
    pub fn integer(&self, key: &str) -> Result<Option<u64>> {
        let wrong = |found: String| self.mismatch(key, &found, "a whole number");
        match self.number(key)? {
            None => Ok(None),
            Some(Number::Integer(n)) => {
                u64::try_from(n).map(Some).map_err(|_| wrong(n.to_string()))
            }
            Some(other) => Err(wrong(format!("{other:?}"))),
        }
    }

    /// The number at `key`.
    ///
    /// # Errors
    /// If it holds something else, a NaN or an infinity.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.number(key)? {
            None => Ok(None),
            Some(Number::Float(x)) if x.is_finite() => Ok(Some(x)),
            Some(Number::Float(x)) => Err(self.mismatch(key, &x.to_string(), "a finite number")),
            Some(Number::Integer(n)) => Ok(Some(n as f64)),
            Some(other) => Err(self.mismatch(key, &format!("{other:?}"), "a number")),
        }
    }

    /// The truth value at `key`.
    ///
    /// # Errors
    /// If it holds something else.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.number(key)? {
            None => Ok(None),
            Some(Number::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.mismatch(key, &format!("{other:?}"), "true or false")),
        }
    }

    /// The texts at `key`.
    ///
    /// # Errors
    /// If it holds something else.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some((element, count, mut cursor)) = self.array(key)? else { return Ok(None) };
        if element != Kind::Text {
            return Err(self.mismatch(
                key,
                &format!("an array of {element:?}"),
                "an array of texts",
            ));
        }
        let what = format!("an element of `{key}`");
        (0..count).map(|_| cursor.text(&what)).collect::<Result<_>>().map(Some)
    }

    /// The numbers at `key`.
    ///
    /// # Errors
    /// If it holds something else.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some((element, count, mut cursor)) = self.array(key)? else { return Ok(None) };
        let numbers = (0..count).map(|_| match element.decode(&mut cursor)? {
            Some(Number::Integer(n)) => Ok(n as f64),
            Some(Number::Float(x)) => Ok(x),
            _ => {
                Err(self.mismatch(key, &format!("an array of {element:?}"), "an array of numbers"))
            }
        });
        numbers.collect::<Result<_>>().map(Some)
    }

    /// The truth values at `key`, if there are several; a single value is another's to read.
    ///
    /// # Errors
    /// If it is an array of something else.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        if self.entries.get(key).is_none_or(|entry| entry.kind != Kind::Array) {
            return Ok(None);
        }
        let Some((element, count, mut cursor)) = self.array(key)? else { return Ok(None) };
        let flags = (0..count).map(|_| match element.decode(&mut cursor)? {
            Some(Number::Bool(flag)) => Ok(flag),
            _ => {
                let found = format!("an array of {element:?}");
                Err(self.mismatch(key, &found, "an array of true and false"))
            }
        });
        flags.collect::<Result<_>>().map(Some)
    }

    /// What is said of a key that must be there and is not.
    pub(super) fn missing(&self, key: &str, expected: &str) -> Error {
        Error::file(self.file, format!("metadata `{key}` is missing, expected {expected}"))
    }

    /// What is said of a value that is not what it should be.
    pub(super) fn mismatch(&self, key: &str, found: &str, expected: &str) -> Error {
        Error::file(self.file, format!("metadata `{key}` is {found}, expected {expected}"))
    }

    fn cursor(&self, at: usize) -> Cursor<'a> {
        Cursor { file: self.file, bytes: self.bytes, at }
    }

    fn number(&self, key: &str) -> Result<Option<Number>> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        let number = entry.kind.decode(&mut self.cursor(entry.at))?;
        number.map(Some).ok_or_else(|| self.mismatch(key, &format!("{:?}", entry.kind), "a number"))
    }

    fn array(&self, key: &str) -> Result<Option<(Kind, usize, Cursor<'a>)>> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.kind != Kind::Array {
            return Err(self.mismatch(key, &format!("{:?}", entry.kind), "an array"));
        }
        let mut cursor = self.cursor(entry.at);
        let element = Kind::read(&mut cursor, key)?;
        let count = cursor.count(element.smallest(), format!("the length of `{key}`"))?;
        Ok(Some((element, count, cursor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metadata of one key with this type and value.
    fn entry(kind: u32, value: &[u8], check: impl Fn(&Metadata)) {
        let bytes = [&kind.to_le_bytes(), value].concat();
        let mut cursor = Cursor { file: "file", bytes: &bytes, at: 0 };
        let entries =
            BTreeMap::from([("key".to_owned(), Entry::read(&mut cursor, "key").unwrap())]);
        assert_eq!(cursor.left(), 0);
        check(&Metadata { file: "file", bytes: &bytes, entries: &entries });
    }

    #[test]
    fn numbers_of_every_width() {
        let integers: [(u32, &[u8]); 8] = [
            (0, &[7]),
            (1, &[7]),
            (2, &[7, 0]),
            (3, &[7, 0]),
            (4, &[7, 0, 0, 0]),
            (5, &[7, 0, 0, 0]),
            (10, &[7, 0, 0, 0, 0, 0, 0, 0]),
            (11, &[7, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (kind, bytes) in integers {
            entry(kind, bytes, |metadata| {
                assert_eq!(metadata.integer("key").unwrap(), Some(7));
                assert_eq!(metadata.float("key").unwrap(), Some(7.0));
                assert!(metadata.flag("key").is_err() && metadata.text("key").is_err());
            });
        }
        for (kind, bytes) in [(1, vec![0xff]), (3, vec![0xff; 2]), (5, vec![0xff; 4])] {
            entry(kind, &bytes, |metadata| {
                assert_eq!(metadata.float("key").unwrap(), Some(-1.0));
                let said = metadata.integer("key").unwrap_err().to_string();
                assert!(said.contains("`key` is -1, expected a whole number"), "{said}");
            });
        }
        entry(10, &[0xff; 8], |m| assert_eq!(m.integer("key").unwrap(), Some(u64::MAX)));
        entry(6, &1.5_f32.to_le_bytes(), |m| assert_eq!(m.float("key").unwrap(), Some(1.5)));
        entry(12, &1.5_f64.to_le_bytes(), |m| assert_eq!(m.float("key").unwrap(), Some(1.5)));
        entry(7, &[1], |m| assert_eq!(m.flag("key").unwrap(), Some(true)));
    }

    #[test]
    fn floats_that_are_no_numbers_are_refused() {
        let refused = |kind: u32, bytes: &[u8], found: &str| {
            entry(kind, bytes, |metadata| {
                let said = metadata.float("key").unwrap_err().to_string();
                assert!(said.contains(&format!("`key` is {found}, expected a finite")), "{said}");
            });
        };
        refused(6, &f32::NAN.to_le_bytes(), "NaN");
        refused(6, &f32::NEG_INFINITY.to_le_bytes(), "-inf");
        refused(12, &f64::INFINITY.to_le_bytes(), "inf");
        refused(12, &f64::NAN.to_le_bytes(), "NaN");
    }

    #[test]
    fn arrays_and_arrays_of_arrays() {
        let numbers =
            [2_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), vec![1, 0, 2, 0]];
        entry(9, &numbers.concat(), |metadata| {
            assert_eq!(metadata.floats("key").unwrap(), Some(vec![1.0, 2.0]));
            assert!(metadata.texts("key").is_err() && metadata.integer("key").is_err());
            assert_eq!(metadata.floats("other").unwrap(), None);
        });
        // An array of two empty arrays of bytes is walked over.
        let empty = [0_u32.to_le_bytes().to_vec(), 0_u64.to_le_bytes().to_vec()].concat();
        let outer = [9_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec()].concat();
        entry(9, &[outer, empty.clone(), empty].concat(), |m| assert!(m.floats("key").is_err()));
    }
}
