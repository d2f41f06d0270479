//! The types of GGUF's values, and walking over values without decoding them.

use super::cursor::Cursor;
use naive_decode::{Error, Result};

/// How deep arrays may lie in arrays. No file there is has more than one level.
const DEEPEST: usize = 4;

/// The type of a value, by the numbers that GGUF has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub(super) fn read(cursor: &mut Cursor, key: &str) -> Result<Self> {
        use Kind::{Array, Bool, F32, F64, I8, I16, I32, I64, Text, U8, U16, U32, U64};
        let code = cursor.u32(format_args!("the type of `{key}`"))?;
        let kinds = [U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64];
        kinds.get(code as usize).copied().ok_or_else(|| {
            let problem = format!("metadata `{key}` has type {code}, expected 0 to 12");
            Error::file(cursor.file, problem)
        })
    }

    /// Bytes of one value; of texts and arrays, the fewest that there can be.
    pub(super) fn smallest(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 | Kind::Bool => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 | Kind::Text => 8,
            Kind::Array => 12,
        }
    }

    /// The next value, if it is a number or a truth value.
    pub(super) fn decode(self, cursor: &mut Cursor) -> Result<Option<Number>> {
        if matches!(self, Kind::Text | Kind::Array) {
            return Ok(None);
        }
        let bytes = cursor.take(self.smallest() as u64, "a number")?;
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        Ok(Some(match self {
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
}

/// A value that has not been decoded: what it is, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) at: usize,
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
    let what = format_args!("metadata `{key}`");
    match kind {
        Kind::Text => {
            let length = cursor.u64(what)?;
            cursor.take(length, what)?;
        }
        Kind::Array if depth == DEEPEST => {
            let problem = format!("{what} has arrays nested deeper than {DEEPEST}");
            return Err(Error::file(cursor.file, problem));
        }
        Kind::Array => {
            let element = Kind::read(cursor, key)?;
            let length = format_args!("the length of `{key}`");
            let count = cursor.count(element.smallest(), length)?;
            match element {
                Kind::Text | Kind::Array => {
                    for _ in 0..count {
                        skip(cursor, key, element, depth + 1)?;
                    }
                }
                // `count` fits the file, so the product does.
                _ => drop(cursor.take((count * element.smallest()) as u64, what)?),
            }
        }
        _ => drop(cursor.take(kind.smallest() as u64, what)?),
    }
    Ok(())
}

/// One number or truth value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
    Bool(bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_in_arrays_without_end_are_refused() {
        let deep = [9_u32.to_le_bytes().to_vec(), 1_u64.to_le_bytes().to_vec()].concat().repeat(9);
        let mut cursor = Cursor { file: "file", bytes: &deep, at: 0 };
        let said = skip(&mut cursor, "key", Kind::Array, 0).unwrap_err().to_string();
        assert!(said.contains("nested deeper"), "{said}");
    }
}
