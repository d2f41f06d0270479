//! What kernels did, counted by the interpreter: a `counts` fence is a table of it, `{{#count FILE::ROW::COUNT}}` one number
//! in a sentence, and `{{#counts FILE::A/B::COUNT}}` how many times more A has of it than B.
//!
//! Counts are whole numbers and the same on every machine, so they are shown as they are.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::directives;
use crate::digits::{grouped, three_digits};
use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Path of the kept counts from the root of the repository.
    counts: String,
    title: String,
    /// Which rows, in which order.
    rows: Vec<String>,
    /// Which counts, in which order.
    columns: Vec<String>,
    #[serde(default)]
    caption: String,
}

/// The kept file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The command that writes it.
    command: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// The kernel's name in its module.
    kernel: String,
    counts: BTreeMap<String, u64>,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences().into_iter().filter(|fence| fence.info == "counts") {
        let made = toml::from_str(&fence.body)
            .map_err(|e| e.message().to_string())
            .and_then(|table| render(&table, place))
            .map_err(|e| format!("this `counts` fence cannot be drawn: {e}"));
        findings.replace(page, fence.range, made);
    }
    let kinds: [(&str, Figure); 2] = [("count", one), ("counts", times)];
    for (name, figure) in kinds {
        directives::find(page, findings, name, "FILE::ROW::COUNT", |file, row, count| {
            figure(&Kept::read(place, file)?, row, count)
        });
    }
}

/// Words for some rows' count.
type Figure = fn(&Kept, &str, &str) -> Result<String, String>;

fn one(kept: &Kept, row: &str, count: &str) -> Result<String, String> {
    Ok(grouped(kept.row(row)?.count(count)? as f64))
}

fn times(kept: &Kept, rows: &str, count: &str) -> Result<String, String> {
    let (a, b) =
        rows.split_once('/').ok_or_else(|| format!("`{rows}` should name two rows, `A/B`"))?;
    let [a, b] = [a, b].map(|row| kept.row(row).and_then(|row| row.count(count)));
    match (a?, b?) {
        (_, 0) => Err(format!("`{rows}`: the second has no {count}")),
        (a, b) => Ok(three_digits(a as f64 / b as f64)),
    }
}

impl Kept {
    fn read(place: &Place, path: &str) -> Result<Self, String> {
        serde_json::from_str(&place.read(path)?)
            .map_err(|e| format!("`{path}` does not hold counts: {e}"))
    }

    fn row(&self, name: &str) -> Result<&Row, String> {
        self.rows.iter().find(|row| row.name == name).ok_or_else(|| {
            let names: Vec<_> = self.rows.iter().map(|row| format!("`{}`", row.name)).collect();
            format!("there is no row `{name}`; there are {}", names.join(", "))
        })
    }
}

impl Row {
    fn count(&self, name: &str) -> Result<u64, String> {
        self.counts.get(name).copied().ok_or_else(|| {
            let names: Vec<_> = self.counts.keys().map(|name| format!("`{name}`")).collect();
            format!("nobody counts `{name}`; there are {}", names.join(", "))
        })
    }
}

fn render(table: &Table, place: &Place) -> Result<String, String> {
    let kept = Kept::read(place, &table.counts)?;
    let mut html = String::from("<table><thead><tr><th></th>");
    for column in &table.columns {
        html += &format!("<th style=\"text-align: right\">{}</th>", escape(column));
    }
    html += "</tr></thead><tbody>";
    for name in &table.rows {
        let row = kept.row(name)?;
        html += &format!("<tr><td title=\"{}\">{}</td>", escape(&row.kernel), escape(name));
        for column in &table.columns {
            let count = grouped(row.count(column)? as f64);
            html += &format!("<td style=\"text-align: right\">{count}</td>");
        }
        html += "</tr>";
    }
    Ok(format!(
        "<figure class=\"table\"><p class=\"figure-title\">{}</p><div class=\"wide\">{html}</tbody></table></div><figcaption>{} <small>Counted by the interpreter, from the committed PTX; the same on every machine. Count again: <code>{}</code></small></figcaption></figure>\n",
        escape(&table.title),
        from_markdown(&table.caption)?,
        escape(&kept.command)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;

    const KEPT: (&str, &str) = (
        "c.json",
        r#"{"command": "cargo x", "rows": [
            {"name": "naive", "kernel": "k1", "counts": {"sectors": 17924096, "barriers": 0}},
            {"name": "tiled", "kernel": "k2", "counts": {"sectors": 73728, "barriers": 544}}]}"#,
    );

    const FENCE: &str = "```counts\ncounts = \"c.json\"\ntitle = \"T\"\nrows = [\"naive\", \"tiled\"]\ncolumns = [\"sectors\"]\n```\n";

    fn problem(text: &str) -> String {
        let found = try_pass(find, text, &[KEPT]);
        found.problems.first().map_or("none".into(), |problem| problem.message.clone())
    }

    #[test]
    fn counts_are_shown_to_the_last_digit() {
        let out = try_pass(find, FENCE, &[KEPT]).rewrite(FENCE);
        assert!(out.contains("17,924,096") && out.contains("73,728"), "{out}");
        assert!(out.contains("<code>cargo x</code>"), "{out}");
        let text =
            "{{#count c.json::tiled::barriers}} and {{#counts c.json::naive/tiled::sectors}}";
        assert_eq!(try_pass(find, text, &[KEPT]).rewrite(text), "544 and 243");
    }

    #[test]
    fn what_nobody_counted_is_a_problem() {
        assert!(problem(&FENCE.replace("tiled", "tilted")).contains("`naive`, `tiled`"));
        assert!(problem(&FENCE.replace("sectors", "sector")).contains("`barriers`, `sectors`"));
        assert!(problem(&FENCE.replace("c.json", "d.json")).contains("d.json"));
        assert!(problem("{{#count c.json::naive}}").contains("FILE::ROW::COUNT"));
        assert!(problem("{{#counts c.json::naive::sectors}}").contains("two rows"));
        assert!(problem("{{#counts c.json::tiled/naive::barriers}}").contains("the second has no"));
        assert!(problem("{{#count c.json::naive::sectors").contains("not closed"));
    }
}
