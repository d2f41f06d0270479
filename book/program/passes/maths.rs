//! `$x$` and `$$x$$` become MathML, which browsers set by themselves.

use pulldown_cmark::{Event, Tag, TagEnd};
use pulldown_latex::config::{DisplayMode, RenderConfig};
use pulldown_latex::{Parser, Storage, mathml::push_mathml};

use crate::page::{Findings, Page};
use crate::place::Place;

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    find_in(page, findings);
}

/// The same for text that is no chapter, such as a quiz question.
pub(crate) fn find_in(page: &Page, findings: &mut Findings) {
    let mut in_code = false;
    for (event, range) in page.events() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(_) if !in_code => {
                if let Some(at) = stray_dollar(page.text, range.start, range.end) {
                    findings.problems.push(page.problem(at, "this `$` begins no formula: the other one, or a brace, is missing; a dollar is `\\$`"));
                }
            }
            Event::InlineMath(tex) => {
                findings.replace(page, range, mathml(&tex, DisplayMode::Inline))
            }
            Event::DisplayMath(tex) => {
                // The span scrolls where a formula is wider than the screen.
                let made = mathml(&tex, DisplayMode::Block)
                    .map(|math| format!("<span class=\"formula\">{math}</span>"));
                findings.replace(page, range, made);
            }
            _ => {}
        }
    }
}

/// Writes `a'` as `a^{\prime}`, which is what it means: the parser would set the prime beside the letter.
fn with_primes(tex: &str) -> String {
    let mut out = String::new();
    let mut rest = tex;
    while let Some(at) = rest.find('\'') {
        let marks = rest[at..].len() - rest[at..].trim_start_matches('\'').len();
        out += &format!("{}^{{{}}}", &rest[..at], "\\prime ".repeat(marks).trim_end());
        rest = &rest[at + marks..];
    }
    out + rest
}

/// Where a `$` stands that Markdown took for text, if nobody escaped it.
fn stray_dollar(text: &str, start: usize, end: usize) -> Option<usize> {
    text[start..end]
        .match_indices('$')
        .map(|(at, _)| start + at)
        .find(|at| !text[..*at].ends_with('\\'))
}

/// One formula as MathML, on one line, so that Markdown around it cannot break it.
fn mathml(tex: &str, display_mode: DisplayMode) -> Result<String, String> {
    let storage = Storage::new();
    let tex = &with_primes(tex);
    let events = Parser::new(tex, &storage).collect::<Result<Vec<_>, _>>().map_err(|e| {
        format!("the formula `{tex}` does not parse: {}", first_line(&e.to_string()))
    })?;
    let config = RenderConfig { display_mode, ..Default::default() };
    let mut out = String::new();
    push_mathml(&mut out, events.into_iter().map(Ok::<_, std::convert::Infallible>), config)
        .map_err(|e| format!("the formula `{tex}` cannot be set: {e}"))?;
    out.retain(|c| c != '\n');
    // Markdown will read this again: what has a meaning there is written as an entity.
    for mark in ['*', '_', '~', '`', '|', '[', ']', '\\'] {
        out = out.replace(mark, &format!("&#{};", mark as u32));
    }
    Ok(out)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn formulas_become_mathml_on_one_line() {
        let text = "so $a_1 * b$ and\n\n$$\n\\frac{a}{b}\n$$\n";
        let out = try_pass(find, text, &[]).rewrite(text);
        assert!(out.contains("<msub") && out.contains("<mfrac"), "{out}");
        assert!(!out.contains(['$', '*', '_']), "{out}");
        assert!(
            out.lines().all(|line| line.matches("<math").count() == line.matches("</math").count())
        );
    }

    #[test]
    fn formulas_stay_whole_in_a_table() {
        let text = "|a|b|\n|-|-|\n|$\\lvert x\\rvert$|$[y]$|\n";
        let out = try_pass(find, text, &[]).rewrite(text);
        assert_eq!(out.lines().last().unwrap().matches('|').count(), 3, "{out}");
    }

    #[test]
    fn primes_are_superscripts() {
        assert_eq!(with_primes("a' + b''_i"), r"a^{\prime} + b^{\prime \prime}_i");
        assert!(mathml("e^{m - m'}", DisplayMode::Inline).unwrap().contains("<msup><mi>m</mi>"));
    }

    #[test]
    fn dollars_in_code_stay() {
        let text = "`$a$`\n\n```sh\necho $a $b\n```\n";
        assert_eq!(try_pass(find, text, &[]).rewrite(text), text);
    }

    #[test]
    fn a_formula_that_does_not_parse_is_a_problem() {
        let found = try_pass(find, "one\n\n$\\frac{a}$ and \\$5\n", &[]);
        assert_eq!((found.problems.len(), found.problems[0].line), (1, 3));
        assert!(found.problems[0].message.contains("\\frac{a}"), "{:?}", found.problems);
    }

    #[test]
    fn a_dollar_that_begins_no_formula_is_a_problem() {
        assert!(
            try_pass(find, "one\n\n$\\frac{a$\n", &[]).problems[0]
                .message
                .contains("begins no formula")
        );
    }
}
