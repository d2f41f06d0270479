//! `measure` and `roofline` fences become plots and tables, drawn from kept samples or from published figures.

use serde::Deserialize;

use crate::axis::{Axis, Scale};
use crate::html::{escape, from_markdown};
use crate::page::{Findings, Page};
use crate::place::Place;
use crate::plot::{COLOURS, Line, Plot, TALL};
use crate::roofline::Roofline;
use crate::samples::{Samples, Series};
use tables::{grid, shares, table};

mod tables;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Measure {
    /// Path of the samples from the root of the repository.
    samples: String,
    title: String,
    /// What the axes show, with units; a table has no y.
    x: String,
    #[serde(default)]
    y: String,
    #[serde(default)]
    x_scale: Scale,
    #[serde(default)]
    y_scale: Scale,
    /// Which series, in which order; all of them if left out.
    series: Option<Vec<String>>,
    #[serde(default)]
    form: Form,
    /// Of a grid: which figures, in which order.
    #[serde(default)]
    columns: Vec<String>,
    /// Of a grid: at which x, where the figures have several points.
    at: Option<f64>,
    #[serde(default)]
    caption: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Form {
    /// Lines, with a legend.
    #[default]
    Plot,
    /// Single points, each with its name beside it.
    Dots,
    /// A row for each x, a column for each series.
    Table,
    /// Of percentages: a row for each series, a column for each x, darker where there is more.
    Shares,
    /// Of series that are called `NAME: FIGURE`, a row for each name and a column for each figure.
    Grid,
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
    if let Form::Grid = measure.form {
        let (table, shown) = grid(measure, &samples)?;
        let source = format!("Means of all samples. {}", origin(&samples, &shown));
        let caption = from_markdown(&measure.caption)?;
        return Ok(figure(&measure.title, "table", &table, &caption, &source));
    }
    let series = match &measure.series {
        Some(names) => {
            names.iter().map(|name| samples.named(name)).collect::<Result<Vec<_>, _>>()?
        }
        None => samples.series.iter().collect(),
    };
    let source = origin(&samples, &series);
    match measure.form {
        Form::Plot | Form::Dots => {
            figure_of_plot(&measure.title, &plot(measure, &series)?, &measure.caption, &source)
        }
        Form::Shares => {
            let source = format!("Means of all samples, in percent. {source}");
            let (table, caption) = (shares(measure, &series)?, from_markdown(&measure.caption)?);
            Ok(figure(&measure.title, "table", &table, &caption, &source))
        }
        Form::Table | Form::Grid => {
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

/// Where a figure's samples are from, for its caption, and how many there are of those series that it shows.
pub(crate) fn origin(samples: &Samples, shown: &[&Series]) -> String {
    let many = match shown.iter().map(|series| series.fewest()).min().unwrap_or(0) {
        1 => "One sample at a point".to_string(),
        n => format!("{n} or more samples at each point"),
    };
    format!(
        "{many}, on {}. Measure it on yours: <code>{}</code>",
        escape(&samples.machine_line()),
        escape(&samples.command)
    )
}

/// The end that all names have in common from a colon on: the plot's title says it already.
fn told_apart<'a>(series: &[&'a Series]) -> &'a str {
    let figure = |series: &&'a Series| series.name.find(": ").map(|at| &series.name[at..]);
    let first = series.first().and_then(figure).unwrap_or_default();
    let shared = series.iter().all(|series| figure(series) == Some(first));
    if shared { first } else { "" }
}

fn plot(measure: &Measure, series: &[&Series]) -> Result<Plot, String> {
    let told_apart = told_apart(series);
    let lines: Vec<_> = series
        .iter()
        .map(|series| Line {
            name: series.name.strip_suffix(told_apart).unwrap_or(&series.name).into(),
            points: series.summaries().iter().map(|(x, s)| (*x, s.median)).collect(),
            spread: series.summaries().iter().map(|(x, s)| (*x, s.lowest, s.highest)).collect(),
            dots: true,
            named: matches!(measure.form, Form::Dots),
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

fn figure_of_plot(title: &str, plot: &Plot, caption: &str, source: &str) -> Result<String, String> {
    let mut legend = String::new();
    for (i, line) in plot.lines.iter().enumerate().filter(|(_, line)| !line.named) {
        legend += &format!(
            "<li style=\"--line: var(--series-{})\">{}</li>",
            i % COLOURS,
            escape(&line.name)
        );
    }
    if !legend.is_empty() {
        legend = format!("<ul class=\"legend\">{legend}</ul>");
    }
    let body = format!("{legend}<div class=\"plotted\">{}</div>", plot.svg(title)?);
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
    fn a_caption_counts_the_samples_of_what_is_shown() {
        let source = |fence: &str, samples: &str| {
            let text = format!("{FENCE}{fence}```\n");
            try_pass(find, &text, &[("m.json", samples)]).rewrite(&text)
        };
        let naive = source("series = [\"naive\"]\n", EXAMPLE);
        assert!(naive.contains("2 or more samples at each point"), "{naive}");
        let both = source("series = [\"naive\", \"cached\"]\n", EXAMPLE);
        assert!(both.contains("One sample at a point"), "{both}");
        let grid = "form = \"grid\"\nseries = [\"INT8\"]\ncolumns = [\"KL\"]\n";
        let grid = source(grid, JUDGED);
        assert!(grid.contains("2 or more samples at each point"), "{grid}");
    }

    const JUDGED: &str = r#"{"machine": {"cpu": "Example 9"}, "command": "x", "series": [
        {"name": "INT8: KL", "unit": "nats", "points": [[816, [0.1, 0.2]]]},
        {"name": "INT8: recall", "unit": "%", "points": [[816, [90, 100]]]},
        {"name": "full: KL", "unit": "nats", "points": [[3072, [0.0]]]},
        {"name": "full: recall", "unit": "%", "points": [[1, [100]]]}]}"#;

    #[test]
    fn a_grid_has_a_row_for_each_name_and_a_column_for_each_figure() {
        let grid = |rows: &str| {
            let text = format!(
                "{FENCE}form = \"grid\"\nseries = [{rows}]\ncolumns = [\"KL\", \"recall\"]\n```\n"
            );
            let found = try_pass(find, &text, &[("m.json", JUDGED)]);
            match found.problems.first() {
                Some(problem) => problem.message.clone(),
                None => found.rewrite(&text),
            }
        };
        let made = grid("\"INT8\"");
        let row = "<tr><td>INT8</td><td>816</td><td>0.15</td><td>95</td></tr>";
        assert!(made.contains("<th>tokens</th><th>KL</th><th>recall</th>"), "{made}");
        assert!(made.contains(row), "{made}");
        assert!(grid("\"full\"").contains("not all at one x"));
        assert!(grid("\"FP8\"").contains("no series `FP8: KL`"));
        let of_one_x = format!("{FENCE}form = \"grid\"\nseries = [\"INT8\"]\ncolumns = [\"KL\"]\n");
        for (at, expected) in [("", "<td>0.15</td>"), ("at = 816\n", "<td>0.15</td>")] {
            let text = format!("{of_one_x}{at}```\n");
            let out = try_pass(find, &text, &[("m.json", JUDGED)]).rewrite(&text);
            assert!(out.contains(expected), "{out}");
        }
    }

    #[test]
    fn dots_carry_their_names_and_need_no_legend() {
        let text = format!("{FENCE}form = \"dots\"\nseries = [\"INT8: KL\"]\n```\n");
        let out = try_pass(find, &text, &[("m.json", JUDGED)]).rewrite(&text);
        assert!(out.contains("INT8") && !out.contains("INT8: KL"), "{out}");
        assert!(!out.contains("legend"), "{out}");
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
