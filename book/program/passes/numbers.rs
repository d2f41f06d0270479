//! `{{#numbers}}` becomes the table of published figures, recomputed while the book is built.

use ladder_tests::numbers::{Row, Source, Verdict, rows};

use crate::digits::{grouped, three_digits};
use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;

const DIRECTIVE: &str = "{{#numbers}}";

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    for (start, _) in page.text.match_indices(DIRECTIVE) {
        findings.replace(page, start..start + DIRECTIVE.len(), Ok(tables()));
    }
}

/// How many rows came to each verdict, then one table for each text.
fn tables() -> String {
    let verdicts =
        [Verdict::Holds, Verdict::Wrong, Verdict::Incomplete, Verdict::UnitsMixed, Verdict::Bug];
    let count = |verdict| rows().filter(|row| row.verdict == verdict).count();
    let tally =
        verdicts.map(|v| format!("<li>{} <strong>{}</strong></li>", badge(v), count(v))).concat();
    let mut out = format!("<ul class=\"tally\">{tally}</ul>\n");
    for source in Source::ALL {
        out += &format!("\n## The {}\n\n{}\n\n", source.label(), source.about());
        out += "<div class=\"wide\"><table class=\"numbers\"><thead><tr><th>Claim</th><th>claimed</th><th>recomputed</th><th>verdict</th></tr></thead><tbody>";
        out.extend(rows().filter(|row| row.source == source).map(line));
        out += "</tbody></table></div>\n";
    }
    out
}

fn line(row: &Row) -> String {
    format!(
        "<tr id=\"{}\"><td>{}<small>{}</small></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        row.id,
        sentence(row.claim),
        from_markdown(row.why).unwrap_or_else(|_| escape(row.why)),
        figure(row.claimed, row.unit),
        figure((row.recompute)(), row.unit),
        badge(row.verdict),
    )
}

/// A figure as far as it can be compared with a claim: whole from a thousand up, three digits below.
fn figure(value: f64, unit: &str) -> String {
    let digits = if value >= 1000.0 { grouped(value.round()) } else { three_digits(value) };
    format!("{digits}&nbsp;{}", escape(unit))
}

fn sentence(claim: &str) -> String {
    let mut letters = claim.chars();
    letters.next().map_or(String::new(), |first| {
        escape(&(first.to_uppercase().to_string() + letters.as_str() + "."))
    })
}

fn badge(verdict: Verdict) -> String {
    format!(
        "<span class=\"verdict {}\">{}</span>",
        verdict.label().replace(' ', "-"),
        verdict.label()
    )
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn every_row_of_the_table_is_in_the_appendix() {
        let out = try_pass(find, DIRECTIVE, &[]).rewrite(DIRECTIVE);
        for row in rows() {
            assert!(out.contains(&format!("<tr id=\"{}\">", row.id)), "{}", row.id);
        }
        assert!(out.contains("## The systems chapter") && out.contains("327,680&nbsp;bytes"));
    }

    #[test]
    fn figures_can_be_compared() {
        assert_eq!(
            [3.6893, 41.79, 327_680.0, 1_081_216.0].map(|value| figure(value, "x")),
            ["3.69&nbsp;x", "41.8&nbsp;x", "327,680&nbsp;x", "1,081,216&nbsp;x"]
        );
    }
}
