//! Figures as a reader wants to see them.

/// 1081472 as 1,081,472.
pub(crate) fn grouped(value: f64) -> String {
    let plain = value.to_string();
    let (whole, fraction) = plain
        .split_once('.')
        .map_or((plain.as_str(), String::new()), |(w, f)| (w, format!(".{f}")));
    let digits = whole.trim_start_matches('-');
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{}{out}{fraction}", if value < 0.0 { "-" } else { "" })
}

/// A figure in three significant digits, as text.
pub(crate) fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    grouped(rounded.to_string().parse().unwrap_or(rounded))
}

/// A tick of an axis: 20,000 as 20k, 0.5 as 0.5.
pub(crate) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{suffix}", three_digits(scaled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            [grouped(1_081_472.0), grouped(999.5), grouped(-1234.25)],
            ["1,081,472", "999.5", "-1,234.25"]
        );
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [0.012345, 1.2345, 234.5, 1_081_472.0, 0.0].map(three_digits),
            ["0.0123", "1.23", "235", "1,080,000", "0"]
        );
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([0.02, 5000.0, 20_000.0, 4e6].map(short), ["0.02", "5,000", "20k", "4M"]);
    }
}
