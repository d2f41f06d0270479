//! A `stepper` fence replays a trace: what a crate's own code did, as frames that a reader steps through.
//!
//! Every frame is drawn here, into the page. A radio button shows it, so that one steps with a finger, a
//! mouse or the arrow keys, with scripts and without.

use serde::Deserialize;

use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;

mod accepting;
mod banks;
mod blocks;
mod rounds;
mod schedule;
mod timeline;
mod tree;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stepper {
    /// Path of the kept trace from the root of the repository.
    trace: String,
    title: String,
    #[serde(default)]
    caption: String,
}

/// What the trace is of, and how it was written.
#[derive(Deserialize)]
struct Kept {
    /// The command that writes it.
    command: String,
    #[serde(flatten)]
    trace: Trace,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Trace {
    Accepting(accepting::Trace),
    Banks(banks::Trace),
    Blocks(blocks::Trace),
    Rounds(rounds::Trace),
    Schedule(schedule::Trace),
    Timeline(timeline::Trace),
    Tree(tree::Trace),
}

/// One moment: what has just happened, and a picture of it on one line of HTML.
struct Drawn {
    event: String,
    html: String,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences().into_iter().filter(|fence| fence.info == "stepper") {
        let made = toml::from_str(&fence.body)
            .map_err(|e| format!("this `stepper` fence does not parse: {}", e.message()))
            .and_then(|stepper| render(&stepper, place));
        findings.replace(page, fence.range, made);
    }
}

fn render(stepper: &Stepper, place: &Place) -> Result<String, String> {
    let kept: Kept = serde_json::from_str(&place.read(&stepper.trace)?)
        .map_err(|e| format!("`{}` is no trace: {e}", stepper.trace))?;
    let frames = match &kept.trace {
        Trace::Accepting(trace) => trace.draw(),
        Trace::Banks(trace) => trace.draw(),
        Trace::Blocks(trace) => trace.draw(),
        Trace::Rounds(trace) => trace.draw(),
        Trace::Schedule(trace) => trace.draw(),
        Trace::Timeline(trace) => trace.draw(),
        Trace::Tree(trace) => trace.draw(),
    }
    .map_err(|e| format!("`{}` cannot be drawn: {e}", stepper.trace))?;
    if frames.is_empty() {
        return Err(format!("`{}` has no frames", stepper.trace));
    }
    let (title, caption) = (escape(&stepper.title), from_markdown(&stepper.caption)?);
    Ok(format!(
        "<figure class=\"stepped\"><p class=\"figure-title\">{title}</p>{}<figcaption>{caption} <small>Arrow keys step, too. Replayed from what the crate's own code did: <code>{}</code></small></figcaption></figure>\n",
        steps(&title, &name(&stepper.trace), &frames),
        escape(&kept.command)
    ))
}

/// A radio button and a frame for each step, in a grid: the buttons in one row, the frames all in the same cell below it,
/// so that nothing moves where one is taller than the next.
fn steps(title: &str, name: &str, frames: &[Drawn]) -> String {
    let count = frames.len();
    let mut html = format!(
        "<div class=\"stepper\" role=\"radiogroup\" aria-label=\"{title}\" style=\"--steps: {count}\">"
    );
    for (i, Drawn { event, html: picture }) in frames.iter().enumerate() {
        let event = escape(event);
        let checked = if i == 0 { " checked" } else { "" };
        html += &format!(
            "<input type=\"radio\" name=\"{name}\" id=\"{name}-{i}\" aria-label=\"Step {} of {count}: {event}\"{checked}>",
            i + 1
        );
        let turn = |to: Option<usize>, word: &str| match to {
            Some(to) => format!("<label for=\"{name}-{to}\">{word}</label>"),
            None => format!("<span>{word}</span>"),
        };
        html += &format!(
            "<div class=\"frame\"><p class=\"turn\">{}{}<b>{} of {count}</b></p><p class=\"event\">{event}</p>{picture}</div>",
            turn(i.checked_sub(1), "Back"),
            turn((i + 1 < count).then_some(i + 1), "Next"),
            i + 1
        );
    }
    html + "</div>"
}

/// A name for the buttons of one figure.
fn name(trace: &str) -> String {
    trace.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const FENCE: &str = "```stepper\ntrace = \"t.json\"\ntitle = \"A pool\"\n```\n";

    fn made(trace: &str) -> String {
        let found = try_pass(find, FENCE, &[("t.json", trace)]);
        match found.problems.first() {
            Some(problem) => problem.message.clone(),
            None => found.rewrite(FENCE),
        }
    }

    #[test]
    fn a_trace_becomes_frames_of_which_the_first_is_shown() {
        let frame = |event: &str, references: &str, sequences: &str| {
            format!(
                r#"{{"event": "{event}", "references": {references}, "sequences": {sequences}}}"#
            )
        };
        let trace = format!(
            r#"{{"kind": "blocks", "command": "cargo x", "block_tokens": 2, "frames": [{}, {}]}}"#,
            frame("nobody", "[0, 0, 0]", "[]"),
            frame("A < B", "[0, 1, 1]", r#"[{"name": "A", "tokens": 3, "table": [2, 1]}]"#),
        );
        let out = made(&trace);
        for expected in [
            "id=\"t-json-0\" aria-label=\"Step 1 of 2: nobody\" checked>",
            "aria-label=\"Step 2 of 2: A &lt; B\">",
            "<label for=\"t-json-1\">Next</label>",
            "<code>cargo x</code>",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert_eq!(out.trim_end().lines().count(), 1);
        let short = trace.replace(r#""table": [2, 1]"#, r#""table": [2]"#);
        assert!(made(&short).contains("1 blocks for 3 tokens"), "{}", made(&short));
        let outside = trace.replace("[2, 1]", "[2, 7]");
        assert!(made(&outside).contains("block 7"), "{}", made(&outside));
    }

    #[test]
    fn a_schedule_shows_who_ran_in_which_pass() {
        let trace = |request: usize| {
            format!(
                r#"{{"kind": "schedule", "command": "x", "requests": [[3, 1], [2, 2]], "ways": [
                    {{"name": "W", "passes": [
                        [{{"request": 0, "kind": "prefill", "rows": 3}}],
                        [{{"request": {request}, "kind": "decode", "rows": 1}}]]}},
                    {{"name": "V", "passes": []}}]}}"#
            )
        };
        let out = made(&trace(1));
        for expected in [
            "role=\"img\" aria-label=\"W: 2 passes, 4 rows\">",
            "<span>3 in, 1 out</span><i class=\"is-prefill\" title=\"pass 1: 3 rows of the prompt\"></i><i></i></p>",
            "--passes: 2",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert!(made(&trace(2)).contains("request 2 is none"));
    }

    #[test]
    fn a_recorded_load_shows_who_came_in_and_who_went_out() {
        let trace = |id: u64| {
            let request = |id| {
                format!(r#"{{"id": {id}, "usage": {{"prompt_tokens": 3, "generated_tokens": 2}}}}"#)
            };
            let pass = |admitted: &str, preempted: &str, spans: &str| {
                format!(
                    r#"{{"admitted": {admitted}, "preempted": {preempted}, "spans": [{spans}],
                        "blocks": {{"total": 9, "free": 2, "cached": 3}}}}"#
                )
            };
            let span =
                |id: u64, kind: &str| format!(r#"{{"id": {id}, "kind": "{kind}", "rows": 1}}"#);
            let passes = [
                pass("[7, 8]", "[]", &span(7, "prefill")),
                pass("[]", "[]", &span(7, "decode")),
                pass("[]", "[8]", &span(id, "verify")),
                pass("[]", "[]", &span(7, "decode")),
            ];
            format!(
                r#"{{"kind": "timeline", "command": "x", "requests": [{}, {}], "passes": [{}]}}"#,
                request(7),
                request(8),
                passes.join(", ")
            )
        };
        let out = made(&trace(7));
        for expected in [
            "Step 1 of 3: pass 1: requests 1 and 2 come in; of 9 blocks, requests hold 4, and 3 are kept for others",
            "Step 2 of 3: pass 3: request 2 gives up its place; ",
            "Step 3 of 3: pass 4: everybody is done; ",
            "--passes: 4\" role=\"img\" aria-label=\"pass 1: requests 1 and 2 come in; ",
            "<i class=\"is-prefill\" style=\"grid-column: 2 / 3\" title=\"pass 1: reads\"></i>\
             <i class=\"is-decode\" style=\"grid-column: 3 / 6\" title=\"passes 2 to 4: writes\"></i></p>",
            "<i class=\"is-out\" style=\"grid-column: 4 / 5\" title=\"pass 3: gives up its place\"></i></p>",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert!(made(&trace(9)).contains("request 9 is none"));
    }

    #[test]
    fn what_is_no_trace_is_a_problem() {
        assert!(made("{}").contains("no trace"));
        let none = r#"{"kind": "blocks", "command": "x", "block_tokens": 2, "frames": []}"#;
        assert!(made(none).contains("no frames"));
        assert!(try_pass(find, FENCE, &[]).problems[0].message.contains("t.json"));
    }
}
