//! GGUF's metadata: keys with typed values, read where they lie in the file.
//!
//! A vocabulary is most of it, hundreds of thousands of strings. So opening a file only walks over the
//! values; what somebody asks for is decoded then.

use super::cursor::Cursor;
use naive_decode::{Error, Result};
use std::collections::BTreeMap;

/// How deep arrays may lie in arrays. No file there is has more than one level.
const DEEPEST: usize = 4;

/// The type of a value, by the numbers that GGUF has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn read(cursor: &mut Cursor, key: &str) -> Result<Self> {
        use Kind::{Array, Bool, F32, F64, I8, I16, I32, I64, Text, U8, U16, U32, U64};
        let code = cursor.u32(&format!("the type of `{key}`"))?;
        let kinds = [U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64];
        kinds.get(code as usize).copied().ok_or_else(|| {
            let problem = format!("metadata `{key}` has type {code}, expected 0 to 12");
            Error::file(cursor.file, problem)
        })
    }

    /// Bytes of one value; of texts and arrays, the fewest that there can be.
    fn smallest(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Text => 8,
            Kind::Array => 12,
        }
    }
}

/// A value that has not been decoded: what it is, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    kind: Kind,
    at: usize,
}

impl Entry {
    /// Walks over the value of `key`, checking that all of it is there.
    pub(super) fn read(cursor: &mut Cursor, key: &str) -> Result<Self> {
        let kind = Kind::read(cursor, key)?;
        let at = cursor.at;
        skip(cursor, key, kind, 0)?;
        Ok(Entry { kind, at })
    }
}

fn skip(cursor: &mut Cursor, key: &str, kind: Kind, depth: usize) -> Result<()> {
    let what = format!("metadata `{key}`");
    match kind {
        Kind::Text => {
            let length = cursor.u64(&what)?;
            cursor.take(length, &what)?;
        }
        Kind::Array if depth == DEEPEST => {
            let problem = format!("{what} has arrays nested deeper than {DEEPEST}");
            return Err(Error::file(cursor.file, problem));
        }
        Kind::Array => {
            let element = Kind::read(cursor, key)?;
            let length = format!("the length of `{key}`");
            let count = cursor.count(element.smallest(), &length)?;
            match element {
                Kind::Text | Kind::Array => {
                    for _ in 0..count {
                        skip(cursor, key, element, depth + 1)?;
                    }
                }
                // `count` fits the file, so the product does.
                _ => drop(cursor.take((count * element.smallest()) as u64, &what)?),
            }
        }
        _ => drop(cursor.take(kind.smallest() as u64, &what)?),
    }
    Ok(())
}

/// One number or truth value.
#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i128),
    Float(f64),
    Bool(bool),
}

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
            Kind::Text => self.cursor(entry.at).text(&format!("metadata `{key}`")).map(Some),
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
    /// If it holds something else.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.number(key)? {
            None => Ok(None),
            Some(Number::Float(x)) => Ok(Some(x)),
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
        let numbers = (0..count).map(|_| match decode(&mut cursor, element)? {
            Some(Number::Integer(n)) => Ok(n as f64),
            Some(Number::Float(x)) => Ok(x),
            _ => {
                Err(self.mismatch(key, &format!("an array of {element:?}"), "an array of numbers"))
            }
        });
        numbers.collect::<Result<_>>().map(Some)
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
        let number = decode(&mut self.cursor(entry.at), entry.kind)?;
        number.map(Some).ok_or_else(|| self.mismatch(key, &format!("{:?}", entry.kind), "a number"))
    }

    fn array(&self, key: &str) -> Result<Option<(Kind, usize, Cursor<'a>)>> {
        let Some(entry) = self.entries.get(key) else { return Ok(None) };
        if entry.kind != Kind::Array {
            return Err(self.mismatch(key, &format!("{:?}", entry.kind), "an array"));
        }
        let mut cursor = self.cursor(entry.at);
        let element = Kind::read(&mut cursor, key)?;
        let count = cursor.count(element.smallest(), &format!("the length of `{key}`"))?;
        Ok(Some((element, count, cursor)))
    }
}

/// The next value, if it is a number or a truth value.
fn decode(cursor: &mut Cursor, kind: Kind) -> Result<Option<Number>> {
    if matches!(kind, Kind::Text | Kind::Array) {
        return Ok(None);
    }
    let bytes = cursor.take(kind.smallest() as u64, "a number")?;
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    Ok(Some(match kind {
        Kind::I8 => Number::Integer((bits as i8).into()),
        Kind::I16 => Number::Integer((bits as i16).into()),
        Kind::I32 => Number::Integer((bits as i32).into()),
        Kind::I64 => Number::Integer((bits as i64).into()),
        Kind::F32 => Number::Float(f32::from_bits(bits as u32).into()),
        Kind::F64 => Number::Float(f64::from_bits(bits)),
        Kind::Bool => Number::Bool(bits != 0),
        _ => Number::Integer(bits.into()),
    }))
}
