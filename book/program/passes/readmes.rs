//! A link to a chapter is written to its `README.md`, so that it can be followed where the source lies, too. mdBook calls
//! that page `index.html`, but makes `README.html` of the link.

use pulldown_cmark::{Event, LinkType, Tag};

use crate::page::{Edit, Findings, Page};
use crate::place::Place;

const README: &str = "README.md";

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    find_in(page, findings);
}

/// The same for text that is no chapter, such as a caption.
pub(crate) fn find_in(page: &Page, findings: &mut Findings) {
    for (event, range) in page.events() {
        let Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, .. }) = event else {
            continue;
        };
        let file = dest_url.split('#').next().unwrap_or_default();
        let is_readme = file.rsplit('/').next() == Some(README) && !file.contains("://");
        // Only the name is replaced: what stands in the link's text may be another pass's.
        if let Some(at) = page.text[range.clone()].rfind(&format!("]({dest_url}"))
            && is_readme
        {
            let end = range.start + at + "](".len() + file.len();
            findings.edits.push(Edit { range: end - README.len()..end, text: "index.md".into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn links_to_chapters_lead_to_their_pages() {
        let text = "[README.md $x$](../05-b/README.md#a) [b](README.md \"README.md\")\n";
        let expected = "[README.md $x$](../05-b/index.md#a) [b](index.md \"README.md\")\n";
        assert_eq!(try_pass(find, text, &[]).rewrite(text), expected);
    }

    #[test]
    fn other_links_stay() {
        let text =
            "[a](x.md) [b](OLD-README.md) [c](https://example.org/README.md) `[d](README.md)`\n";
        assert_eq!(try_pass(find, text, &[]).rewrite(text), text);
    }
}
