//! `measure` and `roofline` fences become plots and tables, drawn from kept samples or from published figures.

use serde::Deserialize;

use crate::axis::{Axis, Scale};
use crate::digits::three_digits;
use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;
use crate::plot::{Line, Plot, TALL};
use crate::roofline::Roofline;
use crate::samples::{Samples, Series};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    /// Path of the samples from the root of the repository.
    samples: String,
    title: String,
    /// What the axes show, with units.
    x: String,
    y: String,
    #[serde(default)]
    x_scale: Scale,
    #[serde(default)]
    y_scale: Scale,
    /// Which series, in which order; all of them if left out.
    series: Option<Vec<String>>,
    #[serde(default)]
    form: Form,
    #[serde(default)]
    caption: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Plot,
    Table,
}

pub(super) fn find(page: &Page, place: &Place, findings: &mut Findings) {
    for fence in page.fences() {
        let made = match fence.info.as_str() {
            "measure" => toml::from_str(&fence.body)
                .map_err(|e| e.to_string())
                .and_then(|measure| render(&measure, place)),
            "roofline" => toml::from_str(&fence.body).map_err(|e| e.to_string()).and_then(
                |figure: Roofline| {
                    let (plot, source) = figure.plot(place)?;
                    figure_of_plot(&figure.title, &plot, &figure.caption, &source)
                },
            ),
            _ => continue,
        };
        findings.replace(
            page,
            fence.range,
            made.map_err(|e| format!("this `{}` fence cannot be drawn: {e}", fence.info)),
        );
    }
}

fn render(measure: &Measure, place: &Place) -> Result<String, String> {
    let samples = Samples::read(place, &measure.samples)?;
    let series = match &measure.series {
        Some(names) => {
            names.iter().map(|name| samples.named(name)).collect::<Result<Vec<_>, _>>()?
        }
        None => samples.series.iter().collect(),
    };
    let source = origin(&samples);
    match measure.form {
        Form::Plot => {
            figure_of_plot(&measure.title, &plot(measure, &series)?, &measure.caption, &source)
        }
        Form::Table => {
            let source = format!("Medians, with the lowest and highest sample. {source}");
            Ok(figure(
                &measure.title,
                "table",
                &table(measure, &series)?,
                &from_markdown(&measure.caption)?,
                &source,
            ))
        }
    }
}

/// Where a figure's samples are from, for its caption.
pub(crate) fn origin(samples: &Samples) -> String {
    let many = match samples.fewest() {
        1 => "One sample at a point".to_string(),
        n => format!("{n} or more samples at each point"),
    };
    format!(
        "{many}, on {}. Measure it on yours: <code>{}</code>",
        escape(&samples.machine_line()),
        escape(&samples.command)
    )
}

fn plot(measure: &Measure, series: &[&Series]) -> Result<Plot, String> {
    let lines: Vec<_> = series
        .iter()
        .map(|series| Line {
            name: series.name.clone(),
            points: series.summaries().iter().map(|(x, s)| (*x, s.median)).collect(),
            spread: series.summaries().iter().map(|(x, s)| (*x, s.lowest, s.highest)).collect(),
            dots: true,
        })
        .collect();
    Ok(Plot {
        x: Axis::over(
            &measure.x,
            measure.x_scale,
            lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x),
        )?,
        y: Axis::over(
            &measure.y,
            measure.y_scale,
            lines.iter().flat_map(|line| &line.spread).flat_map(|(_, low, high)| [*low, *high]),
        )?,
        lines,
        uprights: Vec::new(),
        height: TALL,
    })
}

fn table(measure: &Measure, series: &[&Series]) -> Result<String, String> {
    let mut html = format!("<table><thead><tr><th>{}</th>", escape(&measure.x));
    for one in series {
        html += &format!("<th>{}, {}</th>", escape(&one.name), escape(&one.unit));
    }
    html += "</tr></thead><tbody>";
    let Some(first) = series.first() else { return Err("it names no series".into()) };
    for (x, _) in &first.points {
        html += &format!("<tr><td>{}</td>", crate::digits::grouped(*x));
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

fn figure_of_plot(title: &str, plot: &Plot, caption: &str, source: &str) -> Result<String, String> {
    let mut legend = String::new();
    for (i, line) in plot.lines.iter().enumerate() {
        legend +=
            &format!("<li style=\"--line: var(--series-{})\">{}</li>", i % 6, escape(&line.name));
    }
    let body =
        format!("<ul class=\"legend\">{legend}</ul><div class=\"wide\">{}</div>", plot.svg(title)?);
    let spread = if plot.lines.iter().any(|line| line.dots) {
        "Dots are medians, uprights reach from the lowest to the highest sample. "
    } else {
        ""
    };
    Ok(figure(title, "plot", &body, &from_markdown(caption)?, &format!("{spread}{source}")))
}

fn figure(title: &str, class: &str, body: &str, caption: &str, source: &str) -> String {
    let title = escape(title);
    format!(
        "<figure class=\"{class}\"><p class=\"figure-title\">{title}</p>{body}<figcaption>{caption} <small>{source}</small></figcaption></figure>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::try_pass;
    use super::*;
    use crate::samples::EXAMPLE;

    const FENCE: &str =
        "```measure\nsamples = \"m.json\"\ntitle = \"Time\"\nx = \"tokens\"\ny = \"ms\"\n";

    #[test]
    fn a_plot_says_what_it_was_drawn_from() {
        let text = format!("{FENCE}series = [\"naive\", \"cached\"]\ny_scale = \"log\"\n```\n");
        let out = try_pass(find, &text, &[("m.json", EXAMPLE)]).rewrite(&text);
        for expected in [
            "<svg role=\"img\"",
            "--series-1)\">cached",
            "Example 9, 2 cores, linux",
            "cargo run --example measure_x",
        ] {
            assert!(out.contains(expected), "{expected} in {out}");
        }
    }

    #[test]
    fn a_table_shows_medians_and_ranges() {
        let text = format!("{FENCE}series = [\"naive\"]\nform = \"table\"\n```\n");
        let out = try_pass(find, &text, &[("m.json", EXAMPLE)]).rewrite(&text);
        assert!(out.contains("<td>64</td><td>4 <small>3–5</small></td>"), "{out}");
    }

    #[test]
    fn a_figure_without_its_samples_is_a_problem() {
        for (more, files, expected) in [
            ("", &[][..], "m.json"),
            ("series = [\"fast\"]\n", &[("m.json", EXAMPLE)][..], "no series `fast`"),
            ("colour = \"red\"\n", &[("m.json", EXAMPLE)][..], "colour"),
            ("", &[("m.json", "{}")][..], "does not hold samples"),
        ] {
            let found = try_pass(find, &format!("{FENCE}{more}```\n"), files);
            assert!(
                found.problems[0].message.contains(expected),
                "{expected}: {:?}",
                found.problems
            );
        }
    }
}
