//! A `break-it` fence shows the kept report of a break-it: both texts, how surprised each code was, and who noticed.

use serde::Deserialize;

use super::captured::without_header;
use crate::axis::{Axis, Scale};
use crate::html::escape;
use crate::page::{Findings, Page};
use crate::place::Place;
use crate::plot::{Line, Plot};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakIt {
    /// Path of the kept report from the root of the repository.
    file: String,
    /// The command a reader types to see it for themselves.
    command: String,
}

/// What `--json` of a break-it says, as far as the book shows it.
#[derive(Deserialize)]
struct Report {
    symptom: String,
    cites: Vec<String>,
    prompt: String,
    clean: Text,
    broken: Text,
    first_difference: Option<usize>,
    surprise: Surprise,
    guard: Check,
    weaker_test: Option<Check>,
    recall: Option<Recall>,
}

#[derive(Deserialize)]
struct Text {
    tokens: Vec<String>,
}

/// Bits for each token of the clean text, under correct and under faulty code.
#[derive(Deserialize)]
struct Surprise {
    clean: Vec<f64>,
    broken: Vec<f64>,
}

#[derive(Deserialize)]
struct Check {
    what: String,
    on_broken: Option<String>,
}

#[derive(Deserialize)]
struct Recall {
    edit: String,
    hit: Score,
    others: Score,
    chance_one_in: usize,
}

#[derive(Deserialize)]
struct Score {
    asked: usize,
    clean: usize,
    broken: usize,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences().into_iter().filter(|fence| fence.info == "break-it") {
        let made = toml::from_str(&fence.body)
            .map_err(|e| format!("this `break-it` fence does not parse: {}", e.message()))
            .and_then(|break_it| render(&break_it, place));
        findings.replace(page, fence.range, made);
    }
}

fn render(break_it: &BreakIt, place: &Place) -> Result<String, String> {
    let kept = place.read(&break_it.file)?;
    let report: Report = serde_json::from_str(without_header(&kept))
        .map_err(|e| format!("`{}` is no report of a break-it: {e}", break_it.file))?;
    let differs = report.first_difference.unwrap_or(usize::MAX);
    let mut html = format!(
        "<figure class=\"broken\"><p class=\"figure-title\">{}</p>",
        escape(&report.symptom)
    );
    html += &format!(
        "<details><summary>The prompt</summary><p class=\"text\">{}</p></details>",
        text(&report.prompt)
    );
    for (side, tokens) in [("clean", &report.clean.tokens), ("broken", &report.broken.tokens)] {
        let (same, other) = tokens.split_at(differs.min(tokens.len()));
        let mark = if side == "broken" { "mark" } else { "span" };
        let (same, other) = (text(same.concat().trim_start()), text(&other.concat()));
        html += &format!(
            "<div class=\"side\"><h4>{side}</h4><p class=\"text\">{same}<{mark}>{other}</{mark}></p></div>"
        );
    }
    html += &format!(
        "<ul class=\"legend\"><li style=\"--line: var(--series-0)\">correct code</li><li style=\"--line: var(--series-1)\">broken code</li></ul><div class=\"plotted\">{}</div>",
        surprise(&report.surprise)?
    );
    html += &verdicts(&report);
    html += &format!("<figcaption>See it: <code>{}</code>", escape(&break_it.command));
    if !report.cites.is_empty() {
        html += &format!(" <small>Seen in: {}.</small>", escape(&report.cites.join("; ")));
    }
    Ok(html + "</figcaption></figure>\n")
}

/// Who noticed, and what it did to recall.
fn verdicts(report: &Report) -> String {
    let said = |check: &Check| match &check.on_broken {
        Some(message) => format!("fails: <q>{}</q>", text(message)),
        None => "passes, and notices nothing.".into(),
    };
    let mut html = format!(
        "<dl><dt>Guard: {}</dt><dd>{}</dd>",
        escape(&report.guard.what),
        said(&report.guard)
    );
    if let Some(weaker) = &report.weaker_test {
        html +=
            &format!("<dt>A weaker test: {}</dt><dd>{}</dd>", escape(&weaker.what), said(weaker));
    }
    if let Some(Recall { edit, hit, others, chance_one_in }) = &report.recall {
        let score =
            |s: &Score| format!("{} of {} right before, {} after", s.clean, s.asked, s.broken);
        html += &format!(
            "<dt>Recall: {}</dt><dd>Questions on the fact that was hit: {}. On the others: {}. Guessing gets one in {chance_one_in}.</dd>",
            escape(edit),
            score(hit),
            score(others)
        );
    }
    html + "</dl>"
}

fn surprise(surprise: &Surprise) -> Result<String, String> {
    let line = |bits: &[f64]| Line {
        name: String::new(),
        points: bits.iter().enumerate().map(|(i, bits)| (i as f64, *bits)).collect(),
        spread: Vec::new(),
        dots: false,
        named: false,
    };
    let bits = surprise.clean.iter().chain(&surprise.broken).copied();
    let plot = Plot {
        x: Axis::over(
            "token of the clean text",
            Scale::Linear,
            [surprise.clean.len() as f64].into_iter(),
        )?,
        // One bit at least: a model that is sure of everything still gets an axis.
        y: Axis::over("surprise (bits)", Scale::Linear, bits.chain([1.0]))?,
        lines: vec![line(&surprise.clean), line(&surprise.broken)],
        uprights: Vec::new(),
        height: 330,
    };
    plot.svg("How surprised correct and broken code are by each token of the clean text")
}

/// Text on one line of HTML, its own line breaks kept.
fn text(text: &str) -> String {
    escape(text).replace('\n', "&#10;")
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const REPORT: &str = r#"{
        "name": "x", "crate": "kv-cache", "cites": ["owner/project#7"], "symptom": "it forgets",
        "prompt": "Ada's word is\n", "clean": {"text": "amber.", "tokens": ["am", "ber", "."]},
        "broken": {"text": "am I", "tokens": ["am", " I"]}, "first_difference": 1, "first_logit_difference": 0,
        "surprise": {"clean": [0.5, 0.1, 0.0], "broken": [0.5, 4.0, 1.0]},
        "guard": {"what": "lengths agree", "on_clean": null, "on_broken": "length 0, expected 5"},
        "weaker_test": {"what": "no NaN", "on_clean": null, "on_broken": null},
        "recall": {"edit": "key overwritten", "hit": {"asked": 9, "clean": 9, "broken": 1},
                   "others": {"asked": 9, "clean": 9, "broken": 8}, "chance_one_in": 5}
    }"#;

    #[test]
    fn a_report_shows_both_texts_and_who_noticed() {
        let body = "```break-it\nfile = \"x.json\"\ncommand = \"cargo x\"\n```\n";
        let out = try_pass(find, body, &[("x.json", REPORT)]).rewrite(body);
        for expected in [
            "am<span>ber.</span>",
            "am<mark> I</mark>",
            "fails: <q>length 0, expected 5</q>",
            "passes, and notices nothing",
            "9 of 9 right before, 1 after",
            "owner/project#7",
            "<svg",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert_eq!(out.trim_end().lines().count(), 1);
    }

    #[test]
    fn what_is_no_report_is_a_problem() {
        let body = "```break-it\nfile = \"x.json\"\ncommand = \"cargo x\"\n```\n";
        assert!(
            try_pass(find, body, &[("x.json", "{}")]).problems[0].message.contains("no report")
        );
        assert!(try_pass(find, body, &[]).problems[0].message.contains("x.json"));
    }
}
