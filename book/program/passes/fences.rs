//! A fence must be of a kind that this book knows: a misspelt one would be shown to readers as code.

use crate::page::{Findings, Page};
use crate::place::Place;

/// Fences that a pass draws something from. Nothing may stand behind the word: the pass would not know the fence.
const DRAWN: [&str; 9] = [
    "break-it",
    "captured",
    "changes",
    "counts",
    "measure",
    "quiz",
    "roofline",
    "simulator",
    "stepper",
];

/// Fences of code, and those that are shown as they are.
const SHOWN: [&str; 9] =
    ["cuda", "rust", "sh", "python", "text", "json", "toml", "console", "markdown"];

pub(super) fn find(page: &Page, _: &Place, findings: &mut Findings) {
    for fence in page.fences() {
        let kind = fence.info.split([',', ' ']).next().unwrap_or("");
        if !DRAWN.contains(&fence.info.as_str()) && !SHOWN.contains(&kind) {
            let message = format!(
                "a `{}` fence means nothing here; there are {}, and to show text {}",
                fence.info,
                DRAWN.join(", "),
                SHOWN.join(", ")
            );
            findings.problems.push(page.problem(fence.range.start, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    #[test]
    fn known_fences_pass_and_others_are_problems() {
        assert!(try_pass(find, "```sh\nls\n```\n\n```quiz\n```\n", &[]).problems.is_empty());
        assert!(try_pass(find, "```rust,ignore\n```\n", &[]).problems.is_empty());
        for text in ["```mesure\n```\n", "```\nno kind\n```\n", "```rs\n```\n", "```quiz 2\n```\n"]
        {
            assert_eq!(try_pass(find, text, &[]).problems.len(), 1, "{text}");
        }
    }
}
