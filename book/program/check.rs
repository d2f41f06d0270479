//! Everything that must be right about the book.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::links::{self, Rendered};
use crate::page::{Page, Problem};
use crate::passes;
use crate::place::{Place, with_slashes};
use crate::render::{Reload, render};
use crate::warnings;

/// All problems of the book, in order. A book that cannot be rendered is reported for what keeps it from that.
pub(crate) fn problems(place: &Place) -> anyhow::Result<Vec<Problem>> {
    let pages = pages(place)?;
    let mut problems = unlisted(place, &pages)?;
    for (file, text) in &pages {
        problems.append(&mut passes::run(&Page { file, text }, place).problems);
    }
    if problems.is_empty() {
        let output = tempfile::tempdir()?;
        let (rendered, warnings) =
            warnings::collect(|| render(place, output.path(), Reload::Never));
        rendered?;
        // mdBook names the page in its message, if it is a page's fault.
        let book = |message| Problem { file: "SUMMARY.md".into(), line: 0, message };
        problems.extend(
            warnings.into_iter().map(|warning| book(format!("while rendering: {warning}"))),
        );
        let rendered = html(output.path())?;
        let written: Vec<_> = pages.iter().map(|(file, text)| Page { file, text }).collect();
        problems.append(&mut links::dead(output.path(), &rendered, &written));
        problems.append(&mut fetched(&rendered));
    }
    problems.sort();
    Ok(problems)
}

/// Every Markdown file of the book with its text, by path.
fn pages(place: &Place) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let root = place.chapters();
    let mut pages = Vec::new();
    for path in files(&root)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "md"))
    {
        pages.push((path.strip_prefix(&root)?.to_path_buf(), fs::read_to_string(&path)?));
    }
    Ok(pages)
}

/// Pages that no reader would come to, since the summary does not list them.
fn unlisted(place: &Place, pages: &[(PathBuf, String)]) -> anyhow::Result<Vec<Problem>> {
    let summary = fs::read_to_string(place.chapters().join("SUMMARY.md"))
        .context("the book needs a src/SUMMARY.md")?;
    let is_listed = |file: &Path| summary.contains(&format!("({})", with_slashes(file)));
    let missing =
        pages.iter().filter(|(file, _)| file != Path::new("SUMMARY.md") && !is_listed(file));
    let message = "SUMMARY.md does not list this page";
    Ok(missing
        .map(|(file, _)| Problem { file: file.clone(), line: 0, message: message.into() })
        .collect())
}

/// Every rendered page.
fn html(output: &Path) -> anyhow::Result<Rendered> {
    let mut rendered = Rendered::new();
    for path in
        files(output)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "html"))
    {
        rendered.insert(path.strip_prefix(output)?.into(), fs::read_to_string(&path)?);
    }
    Ok(rendered)
}

/// What rendered pages would fetch. The page is named by its rendered path: the theme can be at fault as well as a chapter.
fn fetched(rendered: &Rendered) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, html) in rendered {
        for url in links::fetched_from_elsewhere(html) {
            let message =
                format!("once rendered, this page fetches {url}; the book must work offline");
            problems.push(Problem { file: file.clone(), line: 0, message });
        }
    }
    problems
}

/// All files below a folder, by path.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of one chapter, with the given text.
    fn small_book(chapter: &str, summary: &str) -> anyhow::Result<Vec<Problem>> {
        let root = tempfile::tempdir()?;
        fs::create_dir_all(root.path().join("book/src/00-a"))?;
        fs::write(root.path().join("book/book.toml"), "[book]\ntitle = \"t\"\n[output.html]\n")?;
        fs::write(root.path().join("book/src/SUMMARY.md"), summary)?;
        fs::write(root.path().join("book/src/00-a/README.md"), chapter)?;
        problems(&Place { root: root.path().into() })
    }

    const SUMMARY: &str = "# Summary\n\n- [A](00-a/README.md)\n";

    #[test]
    fn a_sound_book_passes() {
        assert_eq!(small_book("# A\n\nSee [this](#a), $x^2$.\n", SUMMARY).unwrap(), []);
    }

    #[test]
    fn each_check_fails_on_what_it_is_for() {
        for (chapter, summary, expected) in [
            ("# A\n\n```rust\nfn f() {}\n```\n", SUMMARY, "00-a/README.md:3: a `rust` fence"),
            ("# A\n\n[x](gone.md)\n", SUMMARY, "00-a/README.md:3: the link `gone.md`"),
            ("# A\n\n[x](#gone)\n", SUMMARY, "00-a/README.md:3: the link `#gone`"),
            (
                "# A\n\n<a href=\"#gone\">x</a>\n",
                SUMMARY,
                "00-a/README.md: once rendered, the link",
            ),
            (
                "# A\n\n<img src=\"https://example.org/x.png\">\n",
                SUMMARY,
                "00-a/index.html: once rendered",
            ),
            ("# A\n\n$\\frac{a}$\n", SUMMARY, "00-a/README.md:3: the formula"),
            ("# A\n\n<div>x</span></div>\n", SUMMARY, "while rendering: "),
            ("# A\n\n<!-- later -->\n", SUMMARY, "00-a/README.md:3: a comment"),
            ("# A\n\n:::note\n", SUMMARY, "00-a/README.md:3: `:::note` is never closed"),
            ("# A\n\n```quiz\n```\n", SUMMARY, "00-a/README.md:4: this `quiz` fence"),
            ("# A\n\n```measure\n```\n", SUMMARY, "00-a/README.md:3: this `measure` fence"),
            ("# A\n\n:::note The $x$\n:::\n", SUMMARY, "00-a/README.md:3: `$x$` cannot stand here"),
            ("# A\n", "# Summary\n\n[A]()\n", "00-a/README.md: SUMMARY.md does not list"),
        ] {
            let problems = small_book(chapter, summary).unwrap();
            assert!(
                problems.iter().any(|p| p.to_string().contains(expected)),
                "{expected}: {problems:?}"
            );
        }
    }
}
