//! What Hugging Face gives to chat templates besides Jinja's own functions.

use minijinja::value::{Kwargs, StringInput, Value};
use minijinja::{Error, ErrorKind};
use naive_decode::measurement::date_of;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Widest indentation of a text.
const WIDEST: usize = 1_000;

/// How a template refuses a conversation.
pub(super) fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Jinja's own, by a width that text may have: it would set aside whatever a template asks for.
pub(super) fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let width_named: Option<usize> = named.peek("width").ok();
    match width.or(width_named) {
        Some(wide) if wide > WIDEST => {
            let problem = format!("indent is {wide} wide, expected at most {WIDEST}");
            Err(Error::new(ErrorKind::InvalidOperation, problem))
        }
        _ => minijinja::filters::indent(value, width, first, blank, named),
    }
}

/// A value as Python's `json.dumps` writes it: nothing escaped that need not be, a space after
/// every comma and colon.
pub(super) fn tojson(value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    // Whether to escape all that is not ASCII; Hugging Face's default is not to.
    let _: Option<bool> = arguments.get("ensure_ascii")?;
    arguments.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent {
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, Spaced)),
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter))
        }
    };
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    let json = String::from_utf8(json).expect("serde_json writes UTF-8");
    Ok(Value::from_safe_string(json))
}

/// JSON on one line with spaces after commas and colons.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// The present date and time (UTC) in a format of C's `strftime`, for templates that tell the model
/// what day it is.
pub(super) fn strftime_now(format: &str) -> Result<String, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    strftime(format, since.as_secs())
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// 1 January 1970 was a Thursday.
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// `seconds` since 1970 in a format of C's `strftime`.
fn strftime(format: &str, seconds: u64) -> Result<String, Error> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(days % 7) as usize]);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('H') => text += &format!("{hour:02}"),
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('B') => text += month_name,
            Some('b') => text += &month_name[..3],
            Some('A') => text += day_name,
            Some('a') => text += &day_name[..3],
            Some('%') => text.push('%'),
            other => {
                let found = other.map(String::from).unwrap_or_default();
                let problem =
                    format!("strftime_now knows no %{found}, expected one of YymdHMSBbAa%");
                return Err(Error::new(ErrorKind::InvalidOperation, problem));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| strftime("%a %d %B %Y, %H:%M:%S", seconds).unwrap();
        assert_eq!(at(0), "Thu 01 January 1970, 00:00:00");
        assert_eq!(at(951_782_399), "Mon 28 February 2000, 23:59:59");
        assert_eq!(at(951_782_400), "Tue 29 February 2000, 00:00:00");
        assert_eq!(at(1_735_689_599), "Tue 31 December 2024, 23:59:59");
        assert_eq!(at(4_107_542_400), "Mon 01 March 2100, 00:00:00");
        assert_eq!(strftime("%d %b %y 100%%", 0).unwrap(), "01 Jan 70 100%");
        assert!(strftime("%Q", 0).unwrap_err().to_string().contains("%Q"));
        assert!(strftime("%", 0).is_err());
    }
}
