//! Samples as tables: medians, shares of a hundred, and several figures of each thing.

use super::Measure;
use crate::digits::{grouped, three_digits};
use crate::html::escape;
use crate::samples::{Samples, Series};

/// A row for each x of the first series, a column for each series: medians, with the lowest and highest sample.
pub(super) fn table(measure: &Measure, series: &[&Series]) -> Result<String, String> {
    let mut html = format!("<table><thead><tr><th>{}</th>", escape(&measure.x));
    for one in series {
        html += &format!("<th>{}, {}</th>", escape(&one.name), escape(&one.unit));
    }
    html += "</tr></thead><tbody>";
    let Some(first) = series.first() else { return Err("it names no series".into()) };
    for (x, _) in &first.points {
        html += &format!("<tr><td>{}</td>", grouped(*x));
        for one in series {
            let at = one.at(*x)?;
            html += &format!(
                "<td>{} <small>{}–{}</small></td>",
                three_digits(at.median),
                three_digits(at.lowest),
                three_digits(at.highest)
            );
        }
        html += "</tr>";
    }
    Ok(html + "</tbody></table>")
}

/// Means of percentages, the larger the darker. A series' name counts up to its colon.
pub(super) fn shares(measure: &Measure, series: &[&Series]) -> Result<String, String> {
    let Some(first) = series.first() else { return Err("it names no series".into()) };
    let mut html = format!("<table class=\"shares\"><thead><tr><th>{}</th>", escape(&measure.x));
    for (x, _) in &first.points {
        html += &format!("<th>{}</th>", three_digits(*x));
    }
    html += "</tr></thead><tbody>";
    for one in series {
        let name = one.name.split_once(": ").map_or(one.name.as_str(), |(name, _)| name);
        html += &format!("<tr><td>{}</td>", escape(name));
        for (x, _) in &first.points {
            let share = one.at(*x)?.mean;
            if !(0.0..=100.0).contains(&share) {
                return Err(format!("`{}` is {share} at {x}, expected a percentage", one.name));
            }
            html += &format!("<td style=\"--share: {share}%\">{}</td>", three_digits(share));
        }
        html += "</tr>";
    }
    Ok(html + "</tbody></table>")
}

/// The rows and figures that a grid has in common: names before `: `, and what stands after it. With it go the series of its
/// cells.
pub(super) fn grid<'a>(
    measure: &Measure,
    samples: &'a Samples,
) -> Result<(String, Vec<&'a Series>), String> {
    let Some(rows) = &measure.series else {
        return Err("a grid names its rows in `series`".into());
    };
    let mut html = "<table><thead><tr><th></th>".to_owned();
    // Where it is one x for all, the caption says which.
    if measure.at.is_none() {
        html += &format!("<th>{}</th>", escape(&measure.x));
    }
    for column in &measure.columns {
        html += &format!("<th>{}</th>", escape(column));
    }
    html += "</tr></thead><tbody>";
    let mut shown = Vec::new();
    for row in rows {
        let mut cells = String::new();
        let mut at = None;
        for column in &measure.columns {
            let series = samples.named(&format!("{row}: {column}"))?;
            let (x, summary) = match (measure.at, &series.summaries()[..]) {
                (Some(x), _) => (x, series.at(x)?),
                (None, &[only]) => only,
                (None, several) => {
                    let (name, points) = (&series.name, several.len());
                    return Err(format!("`{name}` has {points} points: say which with `at`"));
                }
            };
            if *at.get_or_insert(x) != x {
                return Err(format!("the figures of `{row}` are not all at one x"));
            }
            cells += &format!("<td>{}</td>", three_digits(summary.mean));
            shown.push(series);
        }
        let at = at.ok_or("a grid names its figures in `columns`")?;
        let x = grouped((10.0 * at).round() / 10.0);
        let x = if measure.at.is_none() { format!("<td>{x}</td>") } else { String::new() };
        html += &format!("<tr><td>{}</td>{x}{cells}</tr>", escape(row));
    }
    Ok((html + "</tbody></table>", shown))
}
