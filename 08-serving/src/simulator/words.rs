//! Figures as a reader wants to see them: three digits and a unit that fits.

/// 1.34e9 as "1.34 GB".
pub fn bytes(bytes: f64) -> String {
    scaled(bytes) + "B"
}

/// 1.34e9 as "1.34 G".
pub fn scaled(number: f64) -> String {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (size, prefix) = prefixes.into_iter().find(|p| number >= p.0).unwrap_or((1.0, ""));
    format!("{} {prefix}", three_digits(number / size))
}

/// 0.0413 as "41.3 ms".
pub fn time(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    let (size, unit) = units.into_iter().find(|unit| seconds >= unit.0).unwrap_or((1e-6, "us"));
    format!("{} {unit}", three_digits(seconds / size))
}

/// 0.324 as "$0.32"; nothing where there is no price.
pub fn money(dollars: Option<f64>) -> String {
    dollars.map_or_else(String::new, |dollars| format!("${}", three_digits(dollars)))
}

/// Three digits, as far as there are so many before the point.
pub fn three_digits(number: f64) -> String {
    let whole = number.abs().max(1.0).log10().floor() as usize + 1;
    format!("{number:.*}", 3usize.saturating_sub(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!([0.0, 12.0, 138e9].map(bytes), ["0.00 B", "12.0 B", "138 GB"]);
        assert_eq!([0.0413, 2.5, 2e-7].map(time), ["41.3 ms", "2.50 s", "0.20 us"]);
        assert_eq!([Some(0.324), None].map(money), ["$0.32", ""]);
        assert_eq!([0.5, 999.6, 12_345.0].map(three_digits), ["0.50", "1000", "12345"]);
    }
}
