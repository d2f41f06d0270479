//! Bytes, and numbers of things, as they are written on a command line.

use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};

/// Units, by how often a thousand, or 1,024, is taken by itself.
const UNITS: [&str; 5] = ["", "k", "m", "g", "t"];

/// Reads bytes: `2147483648`, `2GiB`, `500MB`. A unit is of thousands (`kB`, `MB`, `GB`, `TB`) or of 1,024s (`KiB`,
/// `MiB`, `GiB`, `TiB`), in capitals or not.
///
/// # Errors
/// What is no such number, or more than `T` counts.
pub(crate) fn bytes<T: TryFrom<u64>>(written: &str) -> Result<T, String> {
    let refused =
        || "expected a whole number of bytes, such as 2147483648, 2GiB or 500MB".to_owned();
    let end = written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len());
    let (digits, unit) = written.split_at(end);
    let number: u64 = digits.parse().map_err(|_| refused())?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, base) = match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
        (Some(prefix), _) if !prefix.is_empty() => (prefix, 1_024_u64),
        (_, Some(prefix)) => (prefix, 1_000),
        (_, None) if unit.is_empty() => ("", 1),
        _ => return Err(refused()),
    };
    let power = UNITS.iter().position(|known| *known == prefix).ok_or_else(refused)?;
    let bytes = base.checked_pow(power as u32).and_then(|unit| number.checked_mul(unit));
    bytes.and_then(|bytes| T::try_from(bytes).ok()).ok_or_else(|| "expected fewer bytes".to_owned())
}

/// Reads how many of something there are to be.
///
/// # Errors
/// What is no such number, none at all, or more than can be counted.
pub(crate) fn count(written: &str) -> Result<NonZeroUsize, String> {
    written.parse().map_err(|problem: ParseIntError| match problem.kind() {
        IntErrorKind::PosOverflow => format!("expected at most {}", usize::MAX),
        _ => "expected a whole number, at least 1".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_of_thousands_or_of_1024s() {
        for (written, expected) in [
            ("0", 0),
            ("2147483648", 2 << 30),
            ("2GiB", 2 << 30),
            ("2 gib", 2 << 30),
            ("512KiB", 512 << 10),
            ("500MB", 500_000_000),
            ("7kB", 7_000),
            ("7B", 7),
            ("3TiB", 3 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes::<u64>(written), Ok(expected), "{written}");
        }
    }

    #[test]
    fn what_is_no_number_of_bytes_is_refused() {
        for written in ["", "GiB", "-1", "1.5GiB", "2G", "2iB", "2PB", "2GiBs", "0x10", "２"] {
            assert!(bytes::<u64>(written).unwrap_err().contains("2GiB"), "{written}");
        }
        for written in ["18446744073709551616TiB", "99999999TiB"] {
            assert!(bytes::<u64>(written).is_err(), "{written}");
        }
        assert_eq!(bytes::<u8>("1kB"), Err("expected fewer bytes".to_owned()));
    }

    #[test]
    fn a_number_of_things_is_at_least_1() {
        assert_eq!(count("7"), Ok(NonZeroUsize::new(7).unwrap()));
        for written in ["0", "-1", "1.5", "", "many"] {
            assert_eq!(count(written), Err("expected a whole number, at least 1".to_owned()));
        }
        let more = format!("{}0", usize::MAX);
        assert_eq!(count(&more), Err(format!("expected at most {}", usize::MAX)));
    }
}
