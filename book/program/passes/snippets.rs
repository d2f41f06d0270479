//! Code in a chapter is a marked part of a crate's source, never a copy: `{{#include PATH.rs:anchor}}` in a `rust` fence.
//!
//! mdBook's own `links` preprocessor follows the includes, later. This pass sees to it that they can be followed,
//! that nothing else stands in a `rust` fence, and that the reader is told which file the code is from.

use std::path::{Component, Path, PathBuf};

use crate::page::{Edit, Findings, Page};
use crate::place::Place;

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences() {
        let language = fence.info.split([',', ' ']).next().unwrap_or("");
        if !matches!(language, "rust" | "rs") {
            continue;
        }
        let sources: Vec<_> =
            fence.body.lines().filter(|line| !line.trim().is_empty()).map(include_in).collect();
        if sources.is_empty() || sources.iter().any(Option::is_none) {
            let message = "a `rust` fence holds code that no test compiles; mark the code in its crate with `// ANCHOR: name` \
                           and write `{{#include PATH.rs:name}}` here";
            findings.problems.push(page.problem(fence.range.start, message));
        } else if let Some((file, _)) = sources[0].and_then(|target| target.split_once(':')) {
            let start = fence.range.start;
            let text =
                format!("<p class=\"snippet-path\">{}</p>\n\n", from_root(page, file).display());
            findings.edits.push(Edit { range: start..start, text });
        }
    }
    for (offset, _) in page.text.match_indices("{{#") {
        if page.text[..offset].ends_with('\\') {
            continue;
        }
        let directive = &page.text[offset..];
        if let Err(message) = check(page, place, directive) {
            findings.problems.push(page.problem(offset, message));
        }
    }
}

/// What is wrong with the mdBook directive that `text` starts with. Directives of this project's own pass unread.
fn check(page: &Page, place: &Place, text: &str) -> Result<(), String> {
    for name in ["rustdoc_include", "playground", "title"] {
        if text.starts_with(&format!("{{{{#{name}")) {
            return Err(format!(
                "`{{{{#{name}}}}}` is not used in this book; `{{{{#include PATH:anchor}}}}` is"
            ));
        }
    }
    let Some(target) = include_in(text.lines().next().unwrap_or("")) else { return Ok(()) };
    let (file, anchor) = target.split_once(':').unwrap_or((target, ""));
    let path = from_root(page, file);
    let source = place.read(&path.to_string_lossy())?;
    if anchor.is_empty() && file.ends_with(".rs") {
        return Err(format!("`{file}` is included whole; name the part to show: `{file}:anchor`"));
    }
    if anchor.is_empty() {
        return Ok(());
    }
    match marked(&source, anchor) {
        None => {
            Err(format!("`{}` has no `ANCHOR: {anchor}` … `ANCHOR_END: {anchor}`", path.display()))
        }
        Some(part) if part.trim().is_empty() => {
            Err(format!("anchor `{anchor}` in `{}` marks nothing", path.display()))
        }
        Some(_) => Ok(()),
    }
}

/// The target of the include that a line starts with.
fn include_in(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("{{#include ")?.split_once("}}")?.0.trim())
}

/// The part of a file between the marks of an anchor.
pub(super) fn marked(source: &str, anchor: &str) -> Option<String> {
    let is = |line: &str, mark: &str| {
        line.split_once(mark)
            .is_some_and(|(_, name)| name.split_whitespace().next() == Some(anchor))
    };
    let mut lines = source.lines().skip_while(|line| !is(line, "ANCHOR:"));
    lines.next()?;
    let mut part = String::new();
    for line in lines {
        if is(line, "ANCHOR_END:") {
            return Some(part);
        }
        part += line;
        part.push('\n');
    }
    None
}

/// A path written relative to a page, as a path from the root of the repository.
fn from_root(page: &Page, file: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let folder = Path::new("book/src").join(page.file.parent().unwrap_or(Path::new("")));
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const SOURCE: (&str, &str) = (
        "01-a/src/x.rs",
        "// ANCHOR: f\nfn f() {}\n// ANCHOR_END: f\n// ANCHOR: void\n// ANCHOR_END: void\n",
    );

    fn message(text: &str) -> String {
        let problems = try_pass(find, text, &[SOURCE]).problems;
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        problems[0].message.clone()
    }

    #[test]
    fn an_anchored_include_passes_and_names_its_file() {
        let text = "x\n\n```rust\n{{#include ../../../01-a/src/x.rs:f}}\n```\n";
        let found = try_pass(find, text, &[SOURCE]);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        assert!(
            found.rewrite(text).contains("<p class=\"snippet-path\">01-a/src/x.rs</p>\n\n```rust")
        );
    }

    #[test]
    fn bare_rust_is_a_problem() {
        assert!(message("```rust\nfn copied() {}\n```\n").contains("no test compiles"));
        assert!(
            message("```rust\n{{#include ../../../01-a/src/x.rs:f}}\nfn and_more() {}\n```\n")
                .contains("no test compiles")
        );
        assert!(message("```rust,ignore\n```\n").contains("no test compiles"));
    }

    #[test]
    fn includes_that_cannot_be_followed_are_problems() {
        assert!(message("{{#include ../../../01-a/src/y.rs:f}}\n").contains("01-a/src/y.rs"));
        assert!(message("{{#include ../../../01-a/src/x.rs:g}}\n").contains("no `ANCHOR: g`"));
        assert!(message("{{#include ../../../01-a/src/x.rs:void}}\n").contains("marks nothing"));
        assert!(message("{{#include ../../../01-a/src/x.rs}}\n").contains("whole"));
        assert!(message("{{#include ../../../01-a/src/x.rs:1:2}}\n").contains("no `ANCHOR: 1:2`"));
        assert!(message("{{#playground x.rs}}\n").contains("not used"));
    }
}
