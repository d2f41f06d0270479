//! Operands as they are written, before anyone knows what type the instruction reads.

use super::cursor::Cursor;
use super::lexer::Token;
use crate::Error;

/// An operand's text, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw<'a> {
    /// `%r1`, a symbol, a label, `_`.
    Name(&'a str),
    /// `!%p1`.
    Not(&'a str),
    /// `symbol+8`.
    Beyond(&'a str, i64),
    /// `%r1|%p1`.
    Pair(&'a str, &'a str),
    /// A constant; a minus sign is in it already.
    Integer(u64),
    Single(u32),
    Double(u64),
    /// `{%r1, %r2}`.
    Vector(Vec<Raw<'a>>),
    /// `[base+offset]`, for tensors `[base, {x, y}]`.
    Address {
        base: Box<Raw<'a>>,
        offset: i64,
        at: Option<Vec<Raw<'a>>>,
    },
}

/// All operands of a statement, to and with its `;`.
pub(super) fn operands<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Raw<'a>>, Error> {
    let mut found = Vec::new();
    if cursor.take_mark(';') {
        return Ok(found);
    }
    loop {
        found.push(operand(cursor)?);
        if cursor.take_mark(';') {
            return Ok(found);
        }
        // A call's operands need not be told from the next statement's: whatever else comes here is a mistake.
        if !cursor.take_mark(',') {
            return Err(cursor.error("expected `,` or `;` after an operand"));
        }
    }
}

fn operand<'a>(cursor: &mut Cursor<'a>) -> Result<Raw<'a>, Error> {
    if cursor.take_mark('{') {
        return Ok(Raw::Vector(elements(cursor)?));
    }
    if cursor.take_mark('[') {
        let base = scalar(cursor)?;
        let (base, offset) = match base {
            Raw::Beyond(name, offset) => (Raw::Name(name), offset),
            base => (base, 0),
        };
        let mut at = None;
        if cursor.take_mark(',') {
            cursor.mark('{')?;
            at = Some(elements(cursor)?);
        }
        cursor.mark(']')?;
        return Ok(Raw::Address { base: Box::new(base), offset, at });
    }
    scalar(cursor)
}

/// What is between braces, to and with the closing one.
fn elements<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<Raw<'a>>, Error> {
    let mut found = Vec::new();
    loop {
        found.push(scalar(cursor)?);
        if cursor.take_mark('}') {
            return Ok(found);
        }
        cursor.mark(',')?;
    }
}

fn scalar<'a>(cursor: &mut Cursor<'a>) -> Result<Raw<'a>, Error> {
    match cursor.next() {
        Some(Token::Word(name)) => {
            if cursor.take_mark('|') {
                return Ok(Raw::Pair(name, cursor.word("a predicate")?));
            }
            if matches!(cursor.peek(), Some(Token::Mark('+' | '-'))) {
                return Ok(Raw::Beyond(name, offset(cursor)?));
            }
            Ok(Raw::Name(name))
        }
        Some(Token::Mark('!')) => Ok(Raw::Not(cursor.word("a predicate")?)),
        Some(Token::Mark('-')) => Ok(match cursor.next() {
            Some(Token::Integer(value)) => Raw::Integer(value.wrapping_neg()),
            Some(Token::Single(bits)) => Raw::Single(bits ^ 1 << 31),
            Some(Token::Double(bits)) => Raw::Double(bits ^ 1 << 63),
            _ => return Err(cursor.error("expected a number after `-`")),
        }),
        Some(Token::Integer(value)) => Ok(Raw::Integer(value)),
        Some(Token::Single(bits)) => Ok(Raw::Single(bits)),
        Some(Token::Double(bits)) => Ok(Raw::Double(bits)),
        _ => Err(cursor.error("expected an operand here")),
    }
}

/// `+16`, `-16` or, as compilers print it, `+-16`.
fn offset(cursor: &mut Cursor<'_>) -> Result<i64, Error> {
    let mut negative = false;
    while let Some(Token::Mark(mark @ ('+' | '-'))) = cursor.peek() {
        negative ^= mark == '-';
        cursor.next();
    }
    let value = cursor.integer("an offset")? as i64;
    Ok(if negative { value.wrapping_neg() } else { value })
}
