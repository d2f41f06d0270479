//! A `changes` fence shows what one marked part of a crate changed from another, line by line.

use serde::Deserialize;
use similar::{ChangeTag, TextDiff};

use super::snippets::marked;
use crate::html::escape;
use crate::page::{Findings, Page};
use crate::place::Place;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    /// `PATH:anchor`, the path from the root of the repository.
    from: String,
    to: String,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences().into_iter().filter(|fence| fence.info == "changes") {
        let made = toml::from_str(&fence.body)
            .map_err(|e| format!("this `changes` fence does not parse: {}", e.message()))
            .and_then(|changes| render(&changes, place));
        findings.replace(page, fence.range, made);
    }
}

fn render(changes: &Changes, place: &Place) -> Result<String, String> {
    let (old_path, old) = part(&changes.from, place)?;
    let (new_path, new) = part(&changes.to, place)?;
    let mut lines = String::new();
    for change in TextDiff::from_lines(&old, &new).iter_all_changes() {
        let (class, sign) = match change.tag() {
            ChangeTag::Equal => ("same", ' '),
            ChangeTag::Delete => ("gone", '-'),
            ChangeTag::Insert => ("new", '+'),
        };
        let line = escape(change.value().trim_end());
        lines += &format!("<span class=\"{class}\">{sign} {line}</span>&#10;");
    }
    Ok(format!(
        "<figure class=\"changes\"><figcaption><code>{}</code> → <code>{}</code></figcaption><pre>{lines}</pre></figure>\n",
        escape(old_path),
        escape(new_path)
    ))
}

/// The file that a reference names, and the marked part of it.
fn part<'a>(reference: &'a str, place: &Place) -> Result<(&'a str, String), String> {
    let (path, anchor) = reference
        .split_once(':')
        .ok_or_else(|| format!("`{reference}` should read `PATH:anchor`"))?;
    let part = marked(&place.read(path)?, anchor)
        .ok_or_else(|| format!("`{path}` has no `ANCHOR: {anchor}` … `ANCHOR_END: {anchor}`"))?;
    Ok((path, part))
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const FILES: [(&str, &str); 2] = [
        ("a.rs", "// ANCHOR: f\nlet x: Vec<u32> = old();\nsame();\n// ANCHOR_END: f\n"),
        ("b.rs", "// ANCHOR: g\nlet x: Vec<u32> = new();\nsame();\n// ANCHOR_END: g\n"),
    ];

    #[test]
    fn lines_are_marked_as_gone_new_or_same() {
        let text = "```changes\nfrom = \"a.rs:f\"\nto = \"b.rs:g\"\n```\n";
        let out = try_pass(find, text, &FILES).rewrite(text);
        for expected in [
            "<span class=\"gone\">- let x: Vec&lt;u32&gt; = old();",
            "<span class=\"new\">+ let x: Vec&lt;u32&gt; = new();",
            "<span class=\"same\">  same();",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert_eq!(out.trim_end().lines().count(), 1);
    }

    #[test]
    fn parts_that_are_not_there_are_problems() {
        for (from, expected) in
            [("a.rs:none", "ANCHOR: none"), ("c.rs:f", "c.rs"), ("a.rs", "PATH:anchor")]
        {
            let found = try_pass(
                find,
                &format!("```changes\nfrom = \"{from}\"\nto = \"b.rs:g\"\n```\n"),
                &FILES,
            );
            assert!(found.problems[0].message.contains(expected), "{:?}", found.problems);
        }
    }
}
