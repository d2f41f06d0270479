//! Small helpers for writing HTML by hand.

use std::path::Path;

use pulldown_cmark::html::push_html;
use pulldown_cmark::{Options, Parser};

use crate::page::{Findings, Page};
use crate::passes::{maths, readmes};

/// Text as it must stand inside an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A short piece of Markdown, with maths and links to chapters, as HTML on one line, without the paragraph around it if there is
/// just one.
pub(crate) fn from_markdown(text: &str) -> Result<String, String> {
    let page = Page { file: Path::new(""), text };
    let mut findings = Findings::default();
    maths::find_in(&page, &mut findings);
    readmes::find_in(&page, &mut findings);
    if let Some(problem) = findings.problems.first() {
        return Err(problem.message.clone());
    }
    let set = findings.rewrite(text);
    let mut html = String::new();
    push_html(&mut html, Parser::new_ext(&set, Options::ENABLE_TABLES));
    let html = html.trim().replace('\n', " ");
    let inner = html.strip_prefix("<p>").and_then(|rest| rest.strip_suffix("</p>"));
    Ok(inner.filter(|inner| !inner.contains("<p>")).map_or(html.clone(), str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_one_line_of_html() {
        assert_eq!(from_markdown("a *b*\nc").unwrap(), "a <em>b</em> c");
        assert!(from_markdown("$x$").unwrap().starts_with("<math"));
        let link = from_markdown("[b](../05-b/README.md#c)").unwrap();
        assert_eq!(link, "<a href=\"../05-b/index.md#c\">b</a>");
        assert_eq!(from_markdown("a\n\nb").unwrap(), "<p>a</p> <p>b</p>");
        assert!(from_markdown("$\\frac{a}$").is_err());
    }
}
