//! What each pass did under a load, as `ladder trace` writes it down: one frame for each time that somebody came in or
//! gave up a place, and one for the end.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;

#[derive(Deserialize)]
pub(super) struct Trace {
    requests: Vec<Request>,
    passes: Vec<Pass>,
}

#[derive(Deserialize)]
struct Request {
    id: u64,
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: usize,
    generated_tokens: usize,
}

#[derive(Deserialize)]
struct Pass {
    admitted: Vec<u64>,
    preempted: Vec<u64>,
    spans: Vec<Span>,
    blocks: Blocks,
}

#[derive(Deserialize)]
struct Span {
    id: u64,
    kind: Kind,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Prefill,
    Decode,
    Verify,
}

/// The pool after a pass.
#[derive(Deserialize)]
struct Blocks {
    total: usize,
    free: usize,
    cached: usize,
}

/// What a request did in a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Did {
    Nothing,
    ReadPrompt,
    Wrote,
    GaveUpItsPlace,
}

impl Trace {
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let all = self.passes.iter().flat_map(|pass| {
            let spans = pass.spans.iter().map(|span| span.id);
            spans.chain(pass.admitted.iter().copied()).chain(pass.preempted.iter().copied())
        });
        if let Some(id) = all.into_iter().find(|&id| self.number(id).is_none()) {
            return Err(format!("request {id} is none"));
        }
        let last = self.passes.len().saturating_sub(1);
        let is_shown = |(number, pass): &(usize, &Pass)| {
            *number == last || !pass.admitted.is_empty() || !pass.preempted.is_empty()
        };
        let shown = self.passes.iter().enumerate().filter(is_shown);
        Ok(shown.map(|(number, _)| self.frame(number)).collect())
    }

    /// The request's line, from 1.
    fn number(&self, id: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.id == id).map(|at| at + 1)
    }

    /// Everything up to a pass, that one included.
    fn frame(&self, number: usize) -> Drawn {
        let pass = &self.passes[number];
        let mut happened: Vec<String> = Vec::new();
        for (ids, one, several) in [
            (&pass.preempted, "gives up its place", "give up their places"),
            (&pass.admitted, "comes in", "come in"),
        ] {
            let numbers: Vec<String> =
                ids.iter().filter_map(|&id| self.number(id)).map(|n| n.to_string()).collect();
            match numbers.len() {
                0 => {}
                1 => happened.push(format!("request {} {one}", numbers[0])),
                _ => happened.push(format!("requests {} {several}", numbers.join(" and "))),
            }
        }
        if happened.is_empty() {
            happened.push("everybody is done".to_owned());
        }
        let Blocks { total, free, cached } = pass.blocks;
        let pool = format!(
            "of {total} blocks, requests hold {}, and {cached} are kept for others",
            total.saturating_sub(free + cached)
        );
        let event = format!("pass {}: {}; {pool}", number + 1, happened.join(", "));
        let passes = self.passes.len();
        let mut html = format!(
            "<div class=\"schedule timeline\" style=\"--passes: {passes}\" role=\"img\" aria-label=\"{}\">",
            escape(&event)
        );
        for request in &self.requests {
            let Usage { prompt_tokens, generated_tokens } = request.usage;
            html += &format!("<p><span>{prompt_tokens} in, {generated_tokens} out</span>");
            for (did, from, to) in self.runs(request.id, number) {
                let (class, what) = match did {
                    Did::Nothing => continue,
                    Did::ReadPrompt => ("is-prefill", "reads"),
                    Did::Wrote => ("is-decode", "writes"),
                    Did::GaveUpItsPlace => ("is-out", "gives up its place"),
                };
                let passes = match to - from {
                    1 => format!("pass {}", from + 1),
                    _ => format!("passes {} to {to}", from + 1),
                };
                // The first column of the grid has the label.
                let (first, end) = (from + 2, to + 2);
                html += &format!(
                    "<i class=\"{class}\" style=\"grid-column: {first} / {end}\" title=\"{}\"></i>",
                    escape(&format!("{passes}: {what}"))
                );
            }
            html += "</p>";
        }
        Drawn { event, html: html + "</div>" }
    }

    /// What a request did up to a pass: what, from which pass on, and up to which.
    fn runs(&self, id: u64, last: usize) -> Vec<(Did, usize, usize)> {
        let mut runs: Vec<(Did, usize, usize)> = Vec::new();
        for (number, pass) in self.passes[..=last].iter().enumerate() {
            let did = match pass.spans.iter().find(|span| span.id == id) {
                _ if pass.preempted.contains(&id) => Did::GaveUpItsPlace,
                None => Did::Nothing,
                Some(Span { kind: Kind::Prefill, .. }) => Did::ReadPrompt,
                Some(Span { kind: Kind::Decode | Kind::Verify, .. }) => Did::Wrote,
            };
            match runs.last_mut() {
                Some((same, _, to)) if *same == did => *to = number + 1,
                _ => runs.push((did, number, number + 1)),
            }
        }
        runs
    }
}
