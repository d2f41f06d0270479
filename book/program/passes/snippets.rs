//! Code in a chapter is a marked part of a crate's source, never a copy: `{{#include PATH.rs:anchor}}` in a `rust` fence,
//! or of a kernel's in a `cuda` fence.
//!
//! The part is shown without the indentation that it has in its file, under the file's name. Other includes, such as a
//! chapter's diagrams, are left to mdBook's own `links` preprocessor, once it is clear that it can follow them.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::page::{Fence, Findings, Page};
use crate::place::{Place, with_slashes};

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    let mut done: Vec<Range<usize>> = Vec::new();
    for fence in page.fences() {
        // What the code is shown as: the book's script for colours knows no CUDA, and C++ is near enough.
        let shown_as = match fence.info.split([',', ' ']).next() {
            Some("rust") => "rust",
            Some("cuda") => "cpp",
            _ => continue,
        };
        findings.replace(page, fence.range.clone(), snippet(page, place, &fence, shown_as));
        done.push(fence.range);
    }
    for (offset, _) in page.text.match_indices("{{") {
        // mdBook takes white space between the braces and the mark.
        let is_directive = page.text[offset + 2..].trim_start().starts_with('#');
        if !is_directive
            || page.text[..offset].ends_with('\\')
            || done.iter().any(|range| range.contains(&offset))
        {
            continue;
        }
        if let Err(message) = check(page, place, &page.text[offset..]) {
            findings.problems.push(page.problem(offset, message));
        }
    }
}

/// A fence of code with its includes followed, and the files that they lead to above it.
fn snippet(page: &Page, place: &Place, fence: &Fence, shown_as: &str) -> Result<String, String> {
    let (mut files, mut code) = (Vec::new(), String::new());
    for line in fence.body.lines().filter(|line| !line.trim().is_empty()) {
        let target = include_in(line).ok_or(BARE)?;
        let file = with_slashes(&from_root(page, target.split(':').next().unwrap_or(target)));
        if !files.contains(&file) {
            files.push(file);
        }
        code += &follow(page, place, target)?;
    }
    if code.is_empty() {
        return Err(BARE.into());
    }
    Ok(format!("<p class=\"snippet-path\">{}</p>\n\n```{shown_as}\n{code}```\n", files.join(", ")))
}

const BARE: &str = "a `rust` fence, or a `cuda` one, holds code that no test compiles; mark the code in its crate with `// ANCHOR: name` \
                    and write `{{#include PATH.rs:name}}` here";

/// How every directive begins that this book knows. What is not among them mdBook would print as it stands, or follow by rules of
/// its own. Passes of their own see to all but the first.
const KNOWN: [&str; 7] = [
    "{{#include ",
    "{{#median ",
    "{{#mean ",
    "{{#ratio ",
    "{{#count ",
    "{{#counts ",
    "{{#numbers}}",
];

/// What is wrong with the directive that `text` starts with.
fn check(page: &Page, place: &Place, text: &str) -> Result<(), String> {
    let line = text.lines().next().unwrap_or("");
    let found = KNOWN.iter().find(|known| line.starts_with(**known)).ok_or_else(|| {
        let name = line.split_inclusive("}}").next().unwrap_or(line);
        let known = KNOWN.map(|known| match known.strip_suffix(' ') {
            Some(open) => format!("`{open} …}}}}`"),
            None => format!("`{known}`"),
        });
        format!("`{name}` means nothing here; there are {}", known.join(", "))
    })?;
    match include_in(line) {
        Some(target) => follow(page, place, target).map(drop),
        None if *found == KNOWN[0] => {
            Err(format!("`{}` is not closed on its line", line.trim_end()))
        }
        None => Ok(()),
    }
}

/// What an include brings in: the marked part of a file, or a file that is not Rust as a whole.
fn follow(page: &Page, place: &Place, target: &str) -> Result<String, String> {
    let (file, anchor) = target.split_once(':').unwrap_or((target, ""));
    let path = from_root(page, file);
    let source = place.read(&with_slashes(&path))?;
    if anchor.is_empty() {
        let whole = format!("`{file}` is included whole; name the part to show: `{file}:anchor`");
        return if file.ends_with(".rs") { Err(whole) } else { Ok(source) };
    }
    match marked(&source, anchor) {
        None => Err(format!(
            "`{}` has no `ANCHOR: {anchor}` … `ANCHOR_END: {anchor}`",
            with_slashes(&path)
        )),
        Some(part) if part.trim().is_empty() => {
            Err(format!("anchor `{anchor}` in `{}` marks nothing", with_slashes(&path)))
        }
        Some(part) => Ok(part),
    }
}

/// The target of the include that a line starts with.
fn include_in(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("{{#include ")?.split_once("}}")?.0.trim())
}

/// The part of a file between the marks of an anchor, moved to the left margin. Marks inside it are left out.
pub(super) fn marked(source: &str, anchor: &str) -> Option<String> {
    let is = |line: &str, mark: &str| {
        let name = line.split_once(mark).map(|(_, name)| name.split_whitespace().next());
        name == Some(Some(anchor))
    };
    let inside: Vec<_> = source.lines().skip_while(|line| !is(line, "ANCHOR:")).skip(1).collect();
    let end = inside.iter().position(|line| is(line, "ANCHOR_END:"))?;
    let is_mark = |line: &str| line.contains("ANCHOR:") || line.contains("ANCHOR_END:");
    let lines: Vec<_> = inside[..end].iter().filter(|line| !is_mark(line)).collect();
    let written = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = written.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    Some(lines.iter().map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect())
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
    fn an_anchored_include_is_followed_and_names_its_file() {
        let text = "x\n\n```rust\n{{#include ../../../01-a/src/x.rs:f}}\n```\n";
        let found = try_pass(find, text, &[SOURCE]);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        let expected =
            "x\n\n<p class=\"snippet-path\">01-a/src/x.rs</p>\n\n```rust\nfn f() {}\n```\n";
        assert_eq!(found.rewrite(text).trim_end(), expected.trim_end());
    }

    #[test]
    fn a_part_is_moved_to_the_margin_and_loses_the_marks_inside() {
        let source = "impl A {\n    // ANCHOR: f\n    fn f() {\n        // ANCHOR: g\n        g();\n\n        // ANCHOR_END: g\n    }\n    // ANCHOR_END: f\n}\n";
        assert_eq!(marked(source, "f").unwrap(), "fn f() {\n    g();\n\n}\n");
        assert_eq!(marked(source, "h"), None);
    }

    #[test]
    fn a_kernels_code_is_included_as_well() {
        let text = "```cuda\n{{#include ../../../01-a/x.cu:f}}\n```\n";
        let source = ("01-a/x.cu", "// ANCHOR: f\nint f;\n// ANCHOR_END: f\n");
        let out = try_pass(find, text, &[source]).rewrite(text);
        assert!(out.contains("01-a/x.cu</p>\n\n```cpp\nint f;\n```"), "{out}");
        assert!(message("```cuda\nint f;\n```\n").contains("no test compiles"));
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
        assert!(message("{{#include ../../../01-a/src/x.rs:f\n}}\n").contains("not closed"));
    }

    #[test]
    fn directives_that_nobody_knows_are_problems() {
        for text in
            ["{{#medain x::y::1}}", "{{#playground x.rs}}", "{{ #mean x::y::1}}", "{{#ratio}}"]
        {
            let said = message(&format!("so {text} is\n"));
            assert!(said.starts_with(&format!("`{text}` means nothing here")), "{said}");
            assert!(said.contains("`{{#mean …}}`") && said.contains("`{{#numbers}}`"), "{said}");
        }
        let known = "{{#median x::y::1}} {{#numbers}} \\{{#medain}} $x^{{a}}$\n";
        assert!(try_pass(find, known, &[]).problems.is_empty());
    }
}
