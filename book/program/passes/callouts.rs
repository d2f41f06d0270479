//! `:::predict` … `:::` and its kin become boxes.

use crate::page::{Edit, Findings, Page};
use crate::place::Place;

/// A kind of callout: its name, the title it bears when the writer gives none, and whether it opens folded.
struct Kind {
    name: &'static str,
    title: &'static str,
    folded: bool,
}

const KINDS: [Kind; 7] = [
    Kind { name: "predict", title: "Predict first", folded: false },
    Kind { name: "invariant", title: "Must hold", folded: false },
    Kind { name: "break", title: "Break it", folded: false },
    Kind { name: "exercise", title: "Exercise", folded: false },
    Kind { name: "note", title: "Note", folded: false },
    Kind { name: "hint", title: "Hint", folded: true },
    Kind { name: "answer", title: "Answer", folded: true },
];

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    let fences = page.fences();
    let mut open: Vec<(&Kind, usize)> = Vec::new();
    let mut start = 0;
    for line in page.text.split_inclusive('\n') {
        let range = start..start + line.trim_end().len();
        start += line.len();
        let Some(rest) = line.strip_prefix(":::") else { continue };
        if fences.iter().any(|fence| fence.range.contains(&range.start)) {
            continue;
        }
        let (name, title) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
        let made = if name.is_empty() {
            open.pop()
                .map(|(kind, _)| closing(kind))
                .ok_or_else(|| "`:::` closes a callout, and none is open".to_string())
        } else if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
            open.push((kind, range.start));
            Ok(opening(kind, title.trim()))
        } else {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            Err(format!("`:::{name}` is no callout; there are {}", known.join(", ")))
        };
        match made {
            Ok(text) => findings.edits.push(Edit { range, text }),
            Err(message) => findings.problems.push(page.problem(range.start, message)),
        }
    }
    for (kind, offset) in open {
        findings.problems.push(
            page.problem(offset, format!("`:::{}` is never closed by a line `:::`", kind.name)),
        );
    }
}

/// Blank lines around what is inside let mdBook go on reading it as Markdown.
fn opening(kind: &Kind, title: &str) -> String {
    let Kind { name, folded, .. } = kind;
    let title = match (title, name) {
        ("", _) => kind.title.to_string(),
        (own, &("exercise" | "break")) => format!("{}: {own}", kind.title),
        (own, _) => own.to_string(),
    };
    if *folded {
        format!("\n<details class=\"{name}\"><summary>{title}</summary>\n")
    } else {
        format!("\n<section class=\"callout {name}\"><p class=\"callout-title\">{title}</p>\n")
    }
}

fn closing(kind: &Kind) -> String {
    format!("\n{}\n", if kind.folded { "</details>" } else { "</section>" })
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn callouts_nest_and_keep_what_is_inside() {
        let text = ":::exercise Count\n\nHow many?\n\n:::hint\n*Look.*\n:::\n:::\n";
        let out = try_pass(find, text, &[]).rewrite(text);
        assert!(out.contains("Exercise: Count</p>\n\n\nHow many?"), "{out}");
        assert!(out.contains("<summary>Hint</summary>\n\n*Look.*\n\n</details>"), "{out}");
        assert!(out.trim_end().ends_with("</section>"));
    }

    #[test]
    fn marks_in_code_stay() {
        let text = "```text\n:::predict\n```\n";
        assert_eq!(try_pass(find, text, &[]).rewrite(text), text);
    }

    #[test]
    fn unknown_unopened_and_unclosed_callouts_are_problems() {
        let problems = try_pass(find, ":::\n\n:::idea\n\n:::note\n", &[]).problems;
        let lines: Vec<_> = problems.iter().map(|p| p.line).collect();
        assert_eq!(lines, [1, 3, 5], "{problems:?}");
        assert!(problems[2].message.contains("never closed"));
    }
}
