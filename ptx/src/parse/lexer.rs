//! Text to words, numbers and marks, each with its place.

use crate::Error;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// A name, a directive, a mnemonic with its dots, a register.
    Word(&'a str),
    /// Whole number: its 64 bits. One that begins with 0 is octal.
    Integer(u64),
    /// `0f` and eight hexadecimal digits.
    Single(u32),
    /// `0d` and sixteen hexadecimal digits, or a decimal fraction.
    Double(u64),
    /// What stands between quotes.
    Text,
    /// Any other character.
    Mark(char),
}

/// A token and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn number(text: &str) -> Option<Token<'static>> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0f").filter(|digits| digits.len() == 8) {
        return Some(Token::Single(hex(digits)? as u32));
    }
    if let Some(digits) = lower.strip_prefix("0d").filter(|digits| digits.len() == 16) {
        return Some(Token::Double(hex(digits)?));
    }
    let whole = lower.strip_suffix('u').unwrap_or(&lower);
    if let Some(digits) = whole.strip_prefix("0x") {
        return Some(Token::Integer(hex(digits)?));
    }
    if let Some(digits) = whole.strip_prefix("0b") {
        return Some(Token::Integer(u64::from_str_radix(digits, 2).ok()?));
    }
    if whole.len() > 1 && whole.starts_with('0') && whole.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Token::Integer(u64::from_str_radix(whole, 8).ok()?));
    }
    if let Ok(value) = whole.parse::<u64>() {
        return Some(Token::Integer(value));
    }
    Some(Token::Double(lower.parse::<f64>().ok()?.to_bits()))
}

/// All tokens of a module.
///
/// # Errors
/// [`Error::Parse`] on a number that is none, and on a comment or a string without end.
pub(super) fn tokens(source: &str) -> Result<Vec<Placed<'_>>, Error> {
    let bytes = source.as_bytes();
    let (mut at, mut line, mut found) = (0, 1u32, Vec::new());
    while at < bytes.len() {
        let (start, first_line) = (at, line);
        let refuse = |end: usize, problem: &str| Error::Parse {
            line: first_line,
            text: super::one_line(source.get(start..end).unwrap_or_default()),
            problem: problem.into(),
        };
        let rest = &bytes[at..];
        let token = match rest[0] {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            byte if byte.is_ascii_whitespace() || byte == 0 => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with(b"//") => {
                at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with(b"/*") => {
                let Some(length) = rest.windows(2).skip(2).position(|w| w == b"*/") else {
                    return Err(refuse(at + 2, "a comment without its end, `*/`"));
                };
                line += rest[..length + 4].iter().filter(|&&b| b == b'\n').count() as u32;
                at += length + 4;
                continue;
            }
            b'"' => {
                let Some(length) = rest[1..].iter().position(|&b| b == b'"' || b == b'\n') else {
                    return Err(refuse(at + 1, "a string without its closing quote"));
                };
                at += length + 2;
                if rest[1 + length] == b'\n' {
                    return Err(refuse(at, "a string without its closing quote"));
                }
                Token::Text
            }
            byte if byte.is_ascii_digit() => {
                at += rest
                    .iter()
                    .position(|&b| !(b.is_ascii_alphanumeric() || b == b'.'))
                    .unwrap_or(rest.len());
                number(&source[start..at]).ok_or_else(|| {
                    refuse(
                        at,
                        "not a number; those that begin with 0 are octal, after 0x hexadecimal",
                    )
                })?
            }
            byte if is_word(byte) => {
                loop {
                    while at < bytes.len() && is_word(bytes[at]) {
                        at += 1;
                    }
                    // `shared::cta` is one word, a label's colon is not part of its name.
                    if bytes[at..].starts_with(b"::")
                        && bytes.get(at + 2).copied().is_some_and(is_word)
                    {
                        at += 2;
                    } else {
                        break;
                    }
                }
                Token::Word(&source[start..at])
            }
            _ => {
                let mark = source[at..].chars().next().unwrap_or(' ');
                at += mark.len_utf8();
                Token::Mark(mark)
            }
        };
        found.push(Placed { token, line: first_line, start, end: at });
    }
    Ok(found)
}
