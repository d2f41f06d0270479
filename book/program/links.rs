//! Every link inside the book must lead somewhere, and nothing may be fetched from elsewhere.
//!
//! Both are asked of rendered pages: what a reader follows is there, whatever wrote it. A quiz, a caption and a theme have
//! links as well as a chapter's text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use crate::page::{Page, Problem};
use crate::place::with_slashes;

/// Rendered pages, by their paths inside the folder that the book was rendered into.
pub(crate) type Rendered = BTreeMap<PathBuf, String>;

/// What a server shows where there is no page: it stands at any path, so that its links are relative to none.
const NOT_FOUND: &str = "404.html";

/// All pages on one. Its links are those of the pages.
const ALL_PAGES: &str = "print.html";

/// Links of rendered pages that lead nowhere inside `output`.
pub(crate) fn dead(output: &Path, rendered: &Rendered, written: &[Page]) -> Vec<Problem> {
    let anchors: HashMap<&Path, HashSet<&str>> = rendered
        .iter()
        .map(|(file, html)| {
            (file.as_path(), tags(html).filter_map(|t| attribute(t, "id")).collect())
        })
        .collect();
    let of_pages = |are_all: bool| {
        let mut problems = Vec::new();
        for (file, html) in rendered {
            if file == Path::new(NOT_FOUND) || (file == Path::new(ALL_PAGES)) != are_all {
                continue;
            }
            let links: HashSet<_> = tags(html)
                .flat_map(|tag| [attribute(tag, "href"), attribute(tag, "src")])
                .flatten()
                .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
                .collect();
            for link in links {
                if let Err(why) = resolve(output, file, link, &anchors) {
                    problems.push(problem(file, link, &why, written));
                }
            }
        }
        problems
    };
    // Each would be there a second time, without its line.
    let problems = of_pages(false);
    if problems.is_empty() { of_pages(true) } else { problems }
}

/// Why a link on a page leads nowhere, if it does not.
fn resolve(
    output: &Path,
    page: &Path,
    link: &str,
    anchors: &HashMap<&Path, HashSet<&str>>,
) -> Result<(), String> {
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let file = match file {
        "" => page.to_path_buf(),
        _ => joined(page.parent().unwrap_or(Path::new("")), file),
    };
    if !file.is_relative() || file.starts_with("..") || !output.join(&file).is_file() {
        return Err(format!("the book has no `{}`", with_slashes(&file)));
    }
    match anchors.get(file.as_path()) {
        Some(there) if !fragment.is_empty() && !there.contains(fragment) => {
            Err(format!("`{}` has no heading or anchor `{fragment}`", with_slashes(&file)))
        }
        _ => Ok(()),
    }
}

/// A path below a folder, without `..` where that can be.
fn joined(folder: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir if path.file_name().is_some() => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}

/// A dead link, in the words of the chapter that it is from and at its line there, if it can be found.
fn problem(rendered: &Path, link: &str, why: &str, written: &[Page]) -> Problem {
    let sources = [rendered.with_extension("md"), rendered.with_file_name("README.md")];
    let is_index = rendered.file_name().is_some_and(|name| name == "index.html");
    let page = written
        .iter()
        .find(|page| page.file == sources[0] || (is_index && page.file == sources[1]));
    let spellings = [
        link.replacen("index.html", "README.md", 1),
        link.replacen(".html", ".md", 1),
        link.to_string(),
    ];
    let found = page.and_then(|page| {
        spellings.iter().find_map(|link| {
            let at = page.text.find(&format!("]({link}"))?;
            Some(page.problem(at, format!("the link `{link}` leads nowhere: {why}")))
        })
    });
    found.unwrap_or_else(|| Problem {
        file: page.map_or(rendered, |page| page.file).into(),
        line: 0,
        message: format!("once rendered, the link `{link}` leads nowhere: {why}"),
    })
}

/// What a rendered page would fetch from the network, if it had one.
pub(crate) fn fetched_from_elsewhere(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for tag in tags(html) {
        let fetches =
            ["script", "link", "img", "iframe", "source", "video", "audio", "object", "embed"]
                .iter()
                .any(|name| tag.split_whitespace().next() == Some(name));
        if !fetches {
            continue;
        }
        for url in ["src", "href", "data"].iter().filter_map(|name| attribute(tag, name)) {
            if url.contains("://") || url.starts_with("//") {
                found.push(url.to_string());
            }
        }
    }
    found
}

/// What stands between `<` and `>`. mdBook writes every `<` that is text as an entity.
fn tags(html: &str) -> impl Iterator<Item = &str> {
    html.split('<').filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag)
}

/// An attribute of a tag, as mdBook writes them: in double quotes, with a space before its name.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {name}=\""))?.1.split('"').next()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Dead links of a page that was rendered from `text` into `html`.
    fn problems(text: &str, html: &str) -> Vec<Problem> {
        let output = tempfile::tempdir().unwrap();
        let pages = [
            ("00-a/index.html", html),
            ("appendix.html", "<h2 id=\"here\">b</h2>"),
            (NOT_FOUND, "<a href=\"/nowhere.html\">c</a>"),
        ];
        fs::create_dir_all(output.path().join("00-a")).unwrap();
        fs::write(output.path().join("00-a/map.svg"), "<svg/>").unwrap();
        let mut rendered = Rendered::new();
        for (file, html) in pages {
            fs::write(output.path().join(file), html).unwrap();
            rendered.insert(file.into(), html.into());
        }
        dead(output.path(), &rendered, &[Page { file: Path::new("00-a/README.md"), text }])
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let html = "<h1 id=\"start\">a</h1><a href=\"../appendix.html#here\">b</a> <a href=\"#start\">c</a> \
            <a href=\"index.html\">d</a> <a class=\"x\" href=\"https://example.org/x#y\">e</a> <img alt=\"\" src=\"map.svg\">";
        assert_eq!(problems("", html), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_problems_at_their_lines() {
        for (written, rendered, expected) in [
            ("../gone.md", "../gone.html", "no `gone.html`"),
            ("../appendix.md#there", "../appendix.html#there", "no heading or anchor `there`"),
            ("#gone", "#gone", "no heading or anchor `gone`"),
            ("gone.svg", "gone.svg", "no `00-a/gone.svg`"),
            ("../05-b/README.md", "../05-b/index.html", "no `05-b/index.html`"),
            ("../../../01-a/src/lib.rs", "../../../01-a/src/lib.rs", "leads nowhere"),
        ] {
            let found = problems(
                &format!("a\n\n[x]({written})\n"),
                &format!("<a href=\"{rendered}\">x</a><img src=\"{rendered}\">"),
            );
            assert_eq!(found.len(), 1, "{written}: {found:?}");
            let message = &found[0].message;
            assert!(message.starts_with(&format!("the link `{written}`")), "{message}");
            assert!(found[0].line == 3 && message.contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn a_dead_link_that_no_text_has_is_named_as_it_was_rendered() {
        let found = problems("a\n", "<a href=\"gone.html\">x</a>");
        assert_eq!((found[0].file.as_path(), found[0].line), (Path::new("00-a/README.md"), 0));
        assert!(found[0].message.contains("once rendered, the link `gone.html`"), "{found:?}");
    }

    #[test]
    fn what_a_page_would_fetch_is_found() {
        let html = "<a href=\"https://fine.example\">x</a><script src=\"https://cdn.example/x.js\"></script><img alt=\"\" src=\"x.png\">";
        assert_eq!(fetched_from_elsewhere(html), ["https://cdn.example/x.js"]);
    }
}
