//! Figures inside a sentence: `{{#median FILE::SERIES::X}}`, `{{#mean FILE::SERIES::X}}` and `{{#ratio FILE::A/B::X}}`,
//! from kept samples.

use super::directives;
use crate::digits::three_digits;
use crate::html::escape;
use crate::page::{Findings, Page};
use crate::place::Place;
use crate::samples::Samples;

/// Words for a figure of some samples' series, or two of them, at an x.
type Figure = fn(&Samples, &str, f64) -> Result<String, String>;

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    let kinds: [(&str, Figure); 3] = [("median", median), ("mean", mean), ("ratio", ratio)];
    for (name, figure) in kinds {
        directives::find(page, findings, name, "FILE::SERIES::X", |file, series, x| {
            let at = x.parse().map_err(|_| format!("`{x}` is no number"))?;
            figure(&Samples::read(place, file)?, series, at)
        });
    }
}

fn median(samples: &Samples, series: &str, x: f64) -> Result<String, String> {
    let series = samples.named(series)?;
    Ok(escape(&format!("{} {}", three_digits(series.at(x)?.median), series.unit)))
}

/// For samples that are parts of a whole: texts, or questions.
fn mean(samples: &Samples, series: &str, x: f64) -> Result<String, String> {
    let series = samples.named(series)?;
    Ok(escape(&format!("{} {}", three_digits(series.at(x)?.mean), series.unit)))
}

fn ratio(samples: &Samples, series: &str, x: f64) -> Result<String, String> {
    let (a, b) = series
        .split_once('/')
        .ok_or_else(|| format!("`{series}` should name two series, `A/B`"))?;
    Ok(three_digits(samples.named(a)?.times(samples.named(b)?, x)?))
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;
    use crate::samples::EXAMPLE;

    #[test]
    fn figures_in_sentences_come_from_samples() {
        let text = "It took {{#median m.json::naive::128}}, {{#ratio m.json::naive/cached::128}} times as long.";
        assert_eq!(
            try_pass(find, text, &[("m.json", EXAMPLE)]).rewrite(text),
            "It took 8.5 ms, 8.5 times as long."
        );
        let text = "On average {{#mean m.json::memory bandwidth::2}}.";
        assert_eq!(
            try_pass(find, text, &[("m.json", EXAMPLE)]).rewrite(text),
            "On average 39 GB/s."
        );
    }

    #[test]
    fn figures_that_no_sample_holds_are_problems() {
        for (text, expected) in [
            ("{{#median m.json::naive::5}}", "no point at 5"),
            ("{{#median m.json::naive}}", "FILE::SERIES::X"),
            ("{{#median n.json::naive::5}}", "n.json"),
            ("{{#ratio m.json::naive::64}}", "two series"),
            ("{{#ratio m.json::naive/fast::64}}", "no series `fast`"),
            ("{{#median m.json::naive::x}}", "no number"),
            ("{{#median m.json::naive::64", "not closed"),
        ] {
            let found = try_pass(find, text, &[("m.json", EXAMPLE)]);
            assert!(
                found.problems[0].message.contains(expected),
                "{expected}: {:?}",
                found.problems
            );
        }
    }
}
