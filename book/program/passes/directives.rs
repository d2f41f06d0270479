//! What the directives in sentences have in common: `{{#NAME FILE::PART::WHICH}}` becomes a few words.

use crate::page::{Edit, Findings, Page};

/// Replaces each directive of that name by what `evaluate` makes of its three parts. `form` says what they are, for whoever
/// wrote others.
pub(super) fn find(
    page: &Page,
    findings: &mut Findings,
    name: &str,
    form: &str,
    evaluate: impl Fn(&str, &str, &str) -> Result<String, String>,
) {
    let open = format!("{{{{#{name} ");
    for (start, _) in page.text.match_indices(&open) {
        let target = start + open.len();
        let line = page.text[target..].lines().next().unwrap_or("");
        let made = match line.split_once("}}") {
            None => Err("it is not closed on its line".to_string()),
            Some((parts, _)) => match parts.trim().split("::").collect::<Vec<_>>()[..] {
                [file, part, which] => {
                    let range = start..target + parts.len() + "}}".len();
                    evaluate(file, part, which).map(|text| Edit { range, text })
                }
                _ => Err(format!("`{}` should read `{form}`", parts.trim())),
            },
        };
        match made {
            Ok(edit) => findings.edits.push(edit),
            Err(message) => {
                findings.problems.push(page.problem(start, format!("`{{{{#{name}}}}}`: {message}")))
            }
        }
    }
}
