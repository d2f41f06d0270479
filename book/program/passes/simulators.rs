//! A `simulator` fence becomes a figure whose controls run the crates' own code, in the page.
//!
//! The page carries the module itself, so that it works from a disk too. Without scripts there is what the first
//! choices come to, and no control can be moved: the script frees them when the module is there to answer.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::Value;

use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Simulator {
    /// Folder from the root of the repository with `simulator.wasm` and `kept.json`.
    folder: String,
    title: String,
    #[serde(default)]
    caption: String,
}

/// What the figure shows before anything is moved; kept by a test of its crate.
#[derive(Deserialize)]
struct Kept {
    controls: Vec<Control>,
    answer: Answer,
}

#[derive(Deserialize)]
struct Control {
    name: String,
    label: String,
    choices: Vec<(String, Value)>,
    first: usize,
}

#[derive(Deserialize)]
struct Answer {
    roofline: Vec<Row>,
    run: Vec<Row>,
    memory: [f64; 2],
}

#[derive(Deserialize)]
struct Row {
    name: String,
    text: String,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences().into_iter().filter(|fence| fence.info == "simulator") {
        let made = toml::from_str(&fence.body)
            .map_err(|e| format!("this `simulator` fence does not parse: {}", e.message()))
            .and_then(|figure| render(&figure, place));
        findings.replace(page, fence.range, made);
    }
}

fn render(figure: &Simulator, place: &Place) -> Result<String, String> {
    let path = format!("{}/kept.json", figure.folder);
    let kept: Kept = serde_json::from_str(&place.read(&path)?)
        .map_err(|e| format!("`{path}` does not hold a figure: {e}"))?;
    let path = format!("{}/simulator.wasm", figure.folder);
    let module = std::fs::read(place.root.join(&path))
        .map_err(|e| format!("cannot read `{path}` from the root of the repository: {e}"))?;
    let controls: String = kept.controls.iter().map(control).collect::<Result<_, String>>()?;
    let Answer { roofline, run, memory: [weights, cache] } = &kept.answer;
    Ok(format!(
        "<figure class=\"simulated\"><p class=\"figure-title\">{title}</p><form><fieldset disabled>{controls}</fieldset></form>\
         <noscript><p>The choices want scripts, which this browser does not run. Here is what those that are shown come to.</p></noscript>\
         <div class=\"memory\" role=\"img\" aria-label=\"memory: weights, then keys and values\"><i style=\"width: {weights:.2}%\"></i><i style=\"width: {cache:.2}%\"></i></div>\
         <p class=\"problem\" role=\"status\"></p>\
         <div class=\"halves\">{}{}</div>\
         <figcaption>{caption} <small>Every choice runs the scheduler's own code, here in the page: <code>{folder}</code></small></figcaption>\
         <script type=\"application/wasm;base64\">{}</script></figure>\n",
        table("What the roofline allows", "roofline", roofline),
        table("A run of the scheduler", "run", run),
        BASE64_STANDARD.encode(module),
        title = escape(&figure.title),
        caption = from_markdown(&figure.caption)?,
        folder = escape(&figure.folder),
    ))
}

/// A list to choose from. The value of a choice is JSON, as the module wants it.
fn control(control: &Control) -> Result<String, String> {
    let Control { name, label, choices, first } = control;
    if *first >= choices.len() {
        return Err(format!("control `{name}` begins with choice {first} of {}", choices.len()));
    }
    let option = |(at, (word, value)): (usize, &(String, Value))| {
        let selected = if at == *first { " selected" } else { "" };
        let value = escape(&value.to_string());
        format!("<option value=\"{value}\"{selected}>{}</option>", escape(word))
    };
    let options: String = choices.iter().enumerate().map(option).collect();
    let (name, label) = (escape(name), escape(label));
    // A browser would put the choices of the last visit back, without telling the script.
    Ok(format!(
        "<label>{label}<select name=\"{name}\" autocomplete=\"off\">{options}</select></label>"
    ))
}

fn table(title: &str, name: &str, rows: &[Row]) -> String {
    let row = |Row { name, text }: &Row| {
        format!("<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(text))
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<table><thead><tr><th colspan=\"2\">{title}</th></tr></thead><tbody data-rows=\"{name}\">{rows}</tbody></table>"
    )
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const FENCE: &str = "```simulator\nfolder = \"f\"\ntitle = \"Try it\"\n```\n";

    const KEPT: &str = r#"{"controls": [{"name": "card", "label": "card",
        "choices": [["A < B", "a"], ["four", 4]], "first": 1}],
        "answer": {"roofline": [{"name": "weights", "text": "16 GB"}], "run": [],
        "memory": [20.0, 5.5], "problem": null}}"#;

    fn made(files: &[(&str, &str)]) -> String {
        let found = try_pass(find, FENCE, files);
        match found.problems.first() {
            Some(problem) => problem.message.clone(),
            None => found.rewrite(FENCE),
        }
    }

    #[test]
    fn a_figure_carries_its_controls_its_first_answer_and_its_module() {
        let out = made(&[("f/kept.json", KEPT), ("f/simulator.wasm", "wasm")]);
        for expected in [
            "<option value=\"&quot;a&quot;\">A &lt; B</option><option value=\"4\" selected>four",
            "<tbody data-rows=\"roofline\"><tr><td>weights</td><td>16 GB</td></tr>",
            "<form><fieldset disabled><label>card",
            "width: 20.00%",
            "d2FzbQ==",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
        assert_eq!(out.trim_end().lines().count(), 1);
    }

    #[test]
    fn what_is_missing_is_a_problem() {
        assert!(made(&[]).contains("f/kept.json"));
        assert!(made(&[("f/kept.json", KEPT)]).contains("f/simulator.wasm"));
        assert!(made(&[("f/kept.json", "{}")]).contains("does not hold a figure"));
        let beyond = KEPT.replace("\"first\": 1", "\"first\": 2");
        assert!(made(&[("f/kept.json", &beyond), ("f/simulator.wasm", "")]).contains("choice 2"));
    }
}
