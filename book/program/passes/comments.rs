//! A comment shows nothing to readers: it holds the place of something that was never written.

use pulldown_cmark::Event;

use crate::page::{Findings, Page};
use crate::place::Place;

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    for (event, range) in page.events() {
        let (Event::Html(html) | Event::InlineHtml(html)) = event else { continue };
        for (at, _) in html.match_indices("<!--") {
            let message = "a comment; write here what it stands for, or take it out";
            findings.problems.push(page.problem(range.start + at, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn comments_are_problems_unless_they_are_shown() {
        for text in ["a\n\n<!-- b -->\n", "a\nb <!-- c\nd -->\n", "a\n<div><!-- b --></div>\n"] {
            let problems = try_pass(find, text, &[]).problems;
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        }
        let problems = try_pass(find, "<div>\n<p>\n<!-- a -->\n</div>\n", &[]).problems;
        assert_eq!(problems[0].line, 3);
        for text in ["<div>a</div>\n", "`<!-- a -->`\n", "```text\n<!-- a -->\n```\n"] {
            assert!(try_pass(find, text, &[]).problems.is_empty(), "{text}");
        }
    }
}
