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
    let events = Parser::new(tex, &storage).collect::<Result<Vec<_>, _>>().map_err(|e| {
        format!("the formula `{tex}` does not parse: {}", first_line(&e.to_string()))
    })?;
    let config = RenderConfig { display_mode, ..Default::default() };
    let mut out = String::new();
    push_mathml(&mut out, events.into_iter().map(Ok::<_, std::convert::Infallible>), config)
        .map_err(|e| format!("the formula `{tex}` cannot be set: {e}"))?;
    // Markdown will read this again: what it would take for emphasis is written as an entity.
    Ok(out.replace('\n', "").replace('*', "&#42;").replace('_', "&#95;"))
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
