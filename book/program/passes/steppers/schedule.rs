//! Which requests have rows in which passes, under several ways to decide it.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    /// Tokens of prompt and answer.
    requests: Vec<(usize, usize)>,
    ways: Vec<Way>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    passes: Vec<Vec<Rows>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    request: usize,
    kind: Kind,
    rows: usize,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Prefill,
    Decode,
    Verify,
}

impl Trace {
    /// A frame for each way. All are drawn to the same scale, that of the longest.
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let longest = self.ways.iter().map(|way| way.passes.len()).max().unwrap_or(0);
        self.ways.iter().map(|way| self.frame(way, longest)).collect()
    }

    fn frame(&self, way: &Way, longest: usize) -> Result<Drawn, String> {
        let all = way.passes.iter().flatten();
        if let Some(rows) = all.clone().find(|rows| rows.request >= self.requests.len()) {
            return Err(format!("{}: request {} is none", way.name, rows.request));
        }
        let rows: usize = all.map(|rows| rows.rows).sum();
        let passes = way.passes.len();
        let event = format!("{}: {passes} passes, {rows} rows", way.name);
        let mut html = format!(
            "<div class=\"schedule\" style=\"--passes: {longest}\" role=\"img\" aria-label=\"{}\">",
            escape(&event)
        );
        for (request, (prompt, answer)) in self.requests.iter().enumerate() {
            html += &format!("<p><span>{prompt} in, {answer} out</span>");
            for (number, pass) in way.passes.iter().enumerate() {
                html += &match pass.iter().find(|rows| rows.request == request) {
                    None => "<i></i>".into(),
                    Some(Rows { kind, rows, .. }) => {
                        let (class, what) = match kind {
                            Kind::Prefill => ("is-prefill", "of the prompt"),
                            Kind::Decode => ("is-decode", "of the answer"),
                            Kind::Verify => ("is-decode", "of the answer, guesses with it"),
                        };
                        let title = format!("pass {}: {rows} rows {what}", number + 1);
                        format!("<i class=\"{class}\" title=\"{}\"></i>", escape(&title))
                    }
                };
            }
            html += "</p>";
        }
        Ok(Drawn { event, html: html + "</div>" })
    }
}
