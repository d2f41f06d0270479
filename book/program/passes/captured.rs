//! A `captured` fence shows output that a test holds in place: an insta snapshot, or a part of a kept JSON file.

use serde::Deserialize;

use crate::html::escape;
use crate::page::{Findings, Page};
use crate::place::Place;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Captured {
    /// Path of the kept file from the root of the repository.
    file: String,
    /// JSON pointer to the text to show, where the kept file is JSON.
    field: Option<String>,
    /// First and last line to show, counted from 1.
    lines: Option<(usize, usize)>,
    /// The command a reader types to see it for themselves.
    command: String,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences() {
        if fence.info == "captured" {
            let made = toml::from_str(&fence.body)
                .map_err(|e| format!("this `captured` fence does not parse: {e}"))
                .and_then(|captured| render(&captured, place));
            findings.replace(page, fence.range, made);
        }
    }
}

fn render(captured: &Captured, place: &Place) -> Result<String, String> {
    let kept = place.read(&captured.file)?;
    let mut output = without_header(&kept).to_string();
    if let Some(field) = &captured.field {
        let json: serde_json::Value = serde_json::from_str(&output).map_err(|e| {
            format!("`{}` is not JSON, so it has no field `{field}`: {e}", captured.file)
        })?;
        output = match json.pointer(field) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => {
                return Err(format!(
                    "`{}` has no field `{field}`; a field is named by a JSON pointer such as `/broken/text`",
                    captured.file
                ));
            }
        };
    }
    if let Some((first, last)) = captured.lines {
        let total = output.lines().count();
        if first == 0 || first > last || last > total {
            return Err(format!(
                "`{}` has lines 1 to {total}; lines {first} to {last} cannot be shown",
                captured.file
            ));
        }
        output =
            output.lines().skip(first - 1).take(last + 1 - first).collect::<Vec<_>>().join("\n");
    }
    // One line of HTML, with line breaks written as entities: Markdown would end the block at an empty line.
    let output = escape(output.trim_end()).replace('\n', "&#10;");
    Ok(format!(
        "<figure class=\"captured\"><figcaption><code>{}</code></figcaption><pre>{output}</pre></figure>\n",
        escape(&captured.command)
    ))
}

/// An insta snapshot without the lines in which insta says where it is from.
pub(super) fn without_header(kept: &str) -> &str {
    kept.strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---\n"))
        .map_or(kept, |(_, output)| output)
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const FILES: [(&str, &str); 2] = [
        ("a/x.snap", "---\nsource: a/tests/x.rs\n---\none\n\n<two>\nthree\n"),
        ("a/x.json", r#"{"broken": {"text": "Mina lived in the\n"}}"#),
    ];

    #[test]
    fn a_snapshot_is_shown_without_its_header() {
        let text = "```captured\nfile = \"a/x.snap\"\ncommand = \"cargo x\"\nlines = [1, 3]\n```\n";
        let out = try_pass(find, text, &FILES).rewrite(text);
        assert!(out.contains("<pre>one&#10;&#10;&lt;two&gt;</pre>"), "{out}");
        assert!(out.contains("<code>cargo x</code>"));
    }

    #[test]
    fn a_field_of_a_json_file_is_shown() {
        let text =
            "```captured\nfile = \"a/x.json\"\nfield = \"/broken/text\"\ncommand = \"c\"\n```\n";
        assert!(
            try_pass(find, text, &FILES).rewrite(text).contains("<pre>Mina lived in the</pre>")
        );
    }

    #[test]
    fn what_cannot_be_shown_is_a_problem() {
        for (fence, expected) in [
            ("file = \"a/none.snap\"\ncommand = \"c\"", "cannot read `a/none.snap`"),
            ("file = \"a/x.snap\"\ncommand = \"c\"\nlines = [2, 9]", "lines 1 to 4"),
            ("file = \"a/x.snap\"\ncommand = \"c\"\nfield = \"/x\"", "not JSON"),
            ("file = \"a/x.json\"\ncommand = \"c\"\nfield = \"/clean\"", "no field `/clean`"),
            ("file = \"a/x.snap\"", "command"),
        ] {
            let found = try_pass(find, &format!("```captured\n{fence}\n```\n"), &FILES);
            assert!(
                found.problems[0].message.contains(expected),
                "{expected}: {:?}",
                found.problems
            );
        }
    }
}
