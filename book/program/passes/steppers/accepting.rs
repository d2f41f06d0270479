//! A draft and what stays of it: for each token what the draft and the target said, the number drawn, and what came of it.

use serde::Deserialize;

use super::Drawn;
use crate::html::escape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    event: String,
    /// The text before the cycle.
    text: String,
    /// What has been proposed, in order, and what has become of it by now.
    draft: Vec<Token>,
    /// What is at stake in this frame, the likeliest tokens first.
    chances: Vec<Chance>,
    /// What is drawn once nothing more is kept.
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    text: String,
    state: State,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum State {
    Proposed,
    Kept,
    Refused,
    Dropped,
}

/// A token under both, and what is left of the target's share once it was refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chance {
    token: String,
    draft: f64,
    target: f64,
    residual: Option<f64>,
}

impl Trace {
    pub(super) fn draw(&self) -> Result<Vec<Drawn>, String> {
        let draw = |frame: &Frame| {
            let html = line(frame) + &table(&frame.chances)?;
            Ok(Drawn { event: frame.event.clone(), html })
        };
        self.frames.iter().map(draw).collect()
    }
}

/// Spaces and line breaks at a token's ends would not be seen.
fn shown(token: &str) -> String {
    escape(token).replace(' ', "\u{2423}").replace('\n', "\u{23ce}")
}

/// The end of the text, the draft, and the token after it.
fn line(frame: &Frame) -> String {
    let mut html =
        format!("<p class=\"draft\"><span class=\"text\">{}</span>", escape(&frame.text));
    for Token { text, state } in &frame.draft {
        let (class, sign) = match state {
            State::Proposed => ("proposed", ""),
            State::Kept => ("kept", "\u{2713}\u{a0}"),
            State::Refused => ("refused", "\u{2717}\u{a0}"),
            State::Dropped => ("dropped", ""),
        };
        html += &format!("<span class=\"{class}\">{sign}{}</span>", shown(text));
    }
    if let Some(next) = &frame.next {
        html += &format!("<span class=\"next\">{}</span>", shown(next));
    }
    html + "</p>"
}

/// Chances as a table with bars.
fn table(chances: &[Chance]) -> Result<String, String> {
    if chances.is_empty() {
        return Ok(String::new());
    }
    let outside = |chance: f64| !(0.0..=1.0).contains(&chance);
    let residual = chances.iter().any(|chance| chance.residual.is_some());
    let mut html = String::from(
        "<table class=\"chances\"><tr><th>token</th><th>draft, <i>q</i></th><th>target, <i>p</i></th>",
    );
    if residual {
        html += "<th>what is left</th>";
    }
    html += "</tr>";
    for Chance { token, draft, target, residual: left } in chances {
        let all = [Some(*draft), Some(*target), *left];
        if let Some(wrong) = all.into_iter().flatten().find(|&chance| outside(chance)) {
            return Err(format!("the chance of `{token}` is {wrong}"));
        }
        html += &format!("<tr><td>{}</td>", shown(token));
        for chance in all.into_iter().take(2 + usize::from(residual)) {
            let chance = chance.unwrap_or(0.0);
            html +=
                &format!("<td><i style=\"--part: {:.1}%\"></i>{:.3}</td>", 100.0 * chance, chance);
        }
        html += "</tr>";
    }
    Ok(html + "</table>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let token = |text: &str, state| Token { text: text.into(), state };
        let draft = vec![token(" a", State::Kept), token("<b>", State::Refused)];
        let chance = |token: &str, residual| {
            let token = token.into();
            Chance { token, draft: 0.25, target: 0.5, residual }
        };
        let chances = vec![chance(" a", Some(0.125)), chance("<b>", None)];
        Frame { event: "now".into(), text: "so".into(), draft, chances, next: Some("c".into()) }
    }

    #[test]
    fn tokens_stand_in_line_with_what_became_of_them() {
        let html = line(&frame());
        for expected in [
            "<span class=\"text\">so</span>",
            "<span class=\"kept\">\u{2713}\u{a0}\u{2423}a</span>",
            "<span class=\"refused\">\u{2717}\u{a0}&lt;b&gt;</span>",
            "<span class=\"next\">c</span>",
        ] {
            assert!(html.contains(expected), "{expected} in {html}");
        }
    }

    #[test]
    fn chances_stand_in_a_table() {
        let html = table(&frame().chances).unwrap();
        assert!(html.contains("--part: 12.5%\"></i>0.125"), "{html}");
        assert!(html.contains("what is left"), "{html}");
        let mut wrong = frame();
        wrong.chances[0].target = 1.5;
        assert!(table(&wrong.chances).unwrap_err().contains("1.5"));
        assert_eq!(table(&[]).unwrap(), "");
    }
}
