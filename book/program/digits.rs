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
    let power = value.abs().log10().floor() as i32;
    if power < -6 {
        return times_ten(value, power);
    }
    let digits = 2 - power;
    // Powers of ten are exact from one up, and no others: 114 / 0.00001 is no whole number.
    let scale = 10f64.powi(digits.abs());
    let rounded =
        if digits < 0 { (value / scale).round() * scale } else { (value * scale).round() / scale };
    grouped(rounded)
}

/// A figure far below one: 4.04·10⁻¹².
fn times_ten(value: f64, power: i32) -> String {
    let raised = |digit: char| match digit.to_digit(10) {
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
        None => '⁻',
    };
    let raised: String = power.to_string().chars().map(raised).collect();
    match three_digits(value / 10f64.powi(power)).as_str() {
        "1" => format!("10{raised}"),
        factor => format!("{factor}·10{raised}"),
    }
}

/// A tick of an axis: 20,000 as 20k, 0.5 as 0.5, 0.0001 as 10⁻⁴.
pub(crate) fn short(value: f64) -> String {
    let power = value.abs().log10().floor() as i32;
    if value != 0.0 && power < -3 {
        return times_ten(value, power);
    }
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
        assert_eq!(
            [11_400_000.0, 989e12, -30_030_000.0].map(three_digits),
            ["11,400,000", "989,000,000,000,000", "-30,000,000"]
        );
        assert_eq!(three_digits(4.04e-12), "4.04·10⁻¹²");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [0.0, 0.0001, 0.02, 5000.0, 20_000.0, 4e6].map(short),
            ["0", "10⁻⁴", "0.02", "5,000", "20k", "4M"]
        );
    }
}
