//! Every link inside the book must lead somewhere, and nothing may be fetched from elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Tag};

use crate::page::{Page, Problem};

/// Links of one page, checked against the pages that were rendered into `output`.
pub(crate) fn check(page: &Page, output: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (event, range) in page.events() {
        let (target, is_image) = match event {
            Event::Start(Tag::Link { dest_url, .. }) => (dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => (dest_url, true),
            _ => continue,
        };
        if let Err(message) = resolve(page, output, &target, is_image) {
            problems.push(page.problem(range.start, message));
        }
    }
    problems
}

fn resolve(page: &Page, output: &Path, target: &str, is_image: bool) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return if is_image {
            Err(format!("the image `{target}` lies elsewhere; keep a copy in the book"))
        } else {
            Ok(())
        };
    }
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let rendered = rendered_path(page.file, file);
    let path = output.join(&rendered);
    if rendered.starts_with("..") || !path.is_file() {
        return Err(format!(
            "the link `{target}` leads nowhere: the book has no `{}`",
            rendered.display()
        ));
    }
    if !fragment.is_empty()
        && !fs::read_to_string(&path).unwrap_or_default().contains(&format!("id=\"{fragment}\""))
    {
        return Err(format!(
            "the link `{target}` leads nowhere: `{}` has no heading or anchor `{fragment}`",
            rendered.display()
        ));
    }
    Ok(())
}

/// Where mdBook puts the file that a page links to; an empty link is the page itself.
fn rendered_path(page: &Path, link: &str) -> PathBuf {
    let source = if link.is_empty() {
        page.to_path_buf()
    } else {
        page.parent().unwrap_or(Path::new("")).join(link)
    };
    let mut path = PathBuf::new();
    for part in source.components() {
        match part {
            std::path::Component::ParentDir if path.file_name().is_some() => _ = path.pop(),
            part => path.push(part),
        }
    }
    if path.file_name().is_some_and(|name| name == "README.md") {
        path.set_file_name("index.html");
    } else if path.extension().is_some_and(|extension| extension == "md") {
        path.set_extension("html");
    }
    path
}

/// What a rendered page would fetch from the network, if it had one.
pub(crate) fn fetched_from_elsewhere(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for tag in html.split('<').filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag) {
        let fetches =
            ["script", "link", "img", "iframe", "source", "video", "audio", "object", "embed"]
                .iter()
                .any(|name| tag.split_whitespace().next() == Some(name));
        if !fetches {
            continue;
        }
        for attribute in ["src=\"", "href=\"", "data=\""] {
            let Some((_, rest)) = tag.split_once(attribute) else { continue };
            let url = rest.split('"').next().unwrap_or("");
            if url.contains("://") || url.starts_with("//") {
                found.push(url.to_string());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<Problem> {
        let output = tempfile::tempdir().unwrap();
        fs::create_dir_all(output.path().join("00-a")).unwrap();
        fs::write(output.path().join("00-a/index.html"), "<h1 id=\"start\">a</h1>").unwrap();
        fs::write(output.path().join("appendix.html"), "<h2 id=\"here\">b</h2>").unwrap();
        fs::write(output.path().join("00-a/map.svg"), "<svg/>").unwrap();
        check(&Page { file: Path::new("00-a/README.md"), text }, output.path())
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](../appendix.md#here) [b](#start) [c](README.md) [d](https://example.org/x#y) ![e](map.svg)";
        assert_eq!(problems(text), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_problems() {
        for (text, expected) in [
            ("a\n\n[x](../gone.md)", "no `gone.html`"),
            ("a\n\n[x](../appendix.md#there)", "no heading or anchor `there`"),
            ("a\n\n[x](#gone)", "no heading or anchor `gone`"),
            ("a\n\n![x](gone.svg)", "no `00-a/gone.svg`"),
            ("a\n\n![x](https://example.org/x.png)", "lies elsewhere"),
            ("a\n\n[x](../../../01-a/src/lib.rs)", "leads nowhere"),
        ] {
            let found = problems(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(
                found[0].line == 3 && found[0].message.contains(expected),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn what_a_page_would_fetch_is_found() {
        let html = "<a href=\"https://fine.example\">x</a><script src=\"https://cdn.example/x.js\"></script><img alt=\"\" src=\"x.png\">";
        assert_eq!(fetched_from_elsewhere(html), ["https://cdn.example/x.js"]);
    }
}
