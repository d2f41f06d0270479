//! Draws line plots as SVG whose colours follow the page, so that they are readable in the dark too.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::axis::Axis;

/// What is to be drawn.
pub(crate) struct Plot {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    pub(crate) uprights: Vec<Upright>,
    /// In pixels, at a width of [`WIDTH`].
    pub(crate) height: u32,
}

/// A dashed upright with words beside it.
#[derive(Debug, PartialEq)]
pub(crate) struct Upright {
    pub(crate) x: f64,
    pub(crate) words: String,
    /// Whether the words stand at the top end, where there is room above the lines, or at the foot.
    pub(crate) at_top: bool,
}

/// One line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Lowest and highest sample at each x, where there are samples.
    pub(crate) spread: Vec<(f64, f64, f64)>,
    /// Whether points are marked, as measured ones are.
    pub(crate) dots: bool,
    /// Whether its name stands beside each point.
    pub(crate) named: bool,
}

const WIDTH: u32 = 720;

// What is left around the plot for its labels. A phone shows letters of `PHONE_FONT` (`ladder.css` says so), which is more than
// they are drawn with, and nothing is laid out again: there has to be room for those.
const PHONE_FONT: u32 = 24;
const MARGIN: u32 = 12;
/// Above the plot, for what the upright axis is called: beside the plot it would stand on that axis's labels.
const TOP: u32 = 48;
/// Half of the last label sticks out beyond an axis that ends there.
const RIGHT: u32 = 38;
const LEFT: u32 = 76;
const BOTTOM: u32 = 62;

/// Height of a plot that has a figure to itself.
pub(crate) const TALL: u32 = 420;

// Stand-ins for colours that the page decides; `recolour` swaps them for what CSS understands.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);

/// Colours that the theme has for series.
pub(crate) const COLOURS: usize = 8;

fn series_colour(i: usize) -> RGBColor {
    RGBColor(3, 3, (i % COLOURS) as u8)
}

fn recolour(svg: &str) -> String {
    let mut svg = svg.replace("#010101", "currentColor").replace("#020202", "var(--plot-grid)");
    for i in 0..COLOURS {
        svg = svg.replace(&format!("#03030{i}"), &format!("var(--series-{i})"));
    }
    svg
}

impl Plot {
    /// The plot as one line of SVG.
    pub(crate) fn svg(&self, title: &str) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, (WIDTH, self.height)).into_drawing_area())
            .map_err(|e| format!("cannot draw `{title}`: {e}"))?;
        let fixed = format!("<svg width=\"{WIDTH}\" height=\"{}\" ", self.height);
        let (_, drawing) = svg.split_once(&fixed).ok_or_else(|| {
            format!("cannot draw `{title}`: plotters begins its SVG in another way now")
        })?;
        let label = crate::html::escape(title);
        Ok(recolour(&format!("<svg role=\"img\" aria-label=\"{label}\" {drawing}"))
            .replace('\n', ""))
    }

    /// How much lower than its point a name has to stand, or higher, so that it covers none of those placed before, and nothing
    /// beyond the plot. Letters are as large as a phone shows them.
    fn room_for(&self, name: &str, (x, y): (f64, f64), placed: &mut Vec<[f64; 3]>) -> i32 {
        const LETTER: f64 = PHONE_FONT as f64 / 2.0;
        const LINE: f64 = PHONE_FONT as f64 + 3.0;
        let along = self.x.along(x);
        let length = LETTER * name.chars().count() as f64;
        let left = along * f64::from(WIDTH - MARGIN - LEFT - RIGHT)
            - if along > 0.6 { length } else { 0.0 };
        let foot = f64::from(self.height - TOP - BOTTOM - MARGIN);
        let from = (1.0 - self.y.along(y)) * foot;
        let is_free = |at: f64| {
            let covers = |[start, end, line]: &[f64; 3]| {
                left < *end && left + length > *start && (at - line).abs() < LINE
            };
            (0.0..foot - LINE / 2.0).contains(&at) && !placed.iter().any(covers)
        };
        let mut nearest_first = (0..200).flat_map(|away| [away, -away]).map(f64::from);
        let lower = nearest_first.find(|lower| is_free(from + lower)).unwrap_or(0.0);
        placed.push([left, left + length, from + lower]);
        lower as i32
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let font = |size: u32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .margin(MARGIN)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .x_desc(&self.x.label)
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(font(18))
            .axis_desc_style(font(19))
            .x_label_formatter(&|x| crate::digits::short(*x))
            .y_label_formatter(&|y| crate::digits::short(*y))
            .draw()?;
        area.draw(&Text::new(self.y.label.as_str(), (2, 4), font(19)))?;
        for Upright { x, .. } in &self.uprights {
            chart.draw_series(DashedLineSeries::new(
                [(*x, self.y.low), (*x, self.y.high)],
                4,
                4,
                INK.into(),
            ))?;
        }
        let mut placed = Vec::new();
        for (i, line) in self.lines.iter().enumerate() {
            let colour = series_colour(i);
            chart.draw_series(LineSeries::new(
                line.points.iter().copied(),
                colour.stroke_width(2),
            ))?;
            chart.draw_series(line.spread.iter().map(|(x, low, high)| {
                PathElement::new([(*x, *low), (*x, *high)], colour.stroke_width(1))
            }))?;
            if line.dots {
                chart.draw_series(
                    line.points.iter().map(|point| Circle::new(*point, 4, colour.filled())),
                )?;
            }
            if line.named {
                let name = &line.name;
                // On the side where there is room.
                chart.draw_series(line.points.iter().map(|point| {
                    let (away, side) = match self.x.along(point.0) > 0.6 {
                        true => (-9, HPos::Right),
                        false => (9, HPos::Left),
                    };
                    let style = font(16).pos(Pos::new(side, VPos::Center));
                    let lower = self.room_for(name, *point, &mut placed);
                    // From a point to its name, where that is not beside it.
                    let way = if lower == 0 { vec![] } else { vec![(0, 0), (away, lower)] };
                    EmptyElement::at(*point)
                        + PathElement::new(way, colour.stroke_width(1))
                        + Text::new(name.clone(), (away, lower), style)
                }))?;
            }
        }
        for Upright { x, words, at_top } in &self.uprights {
            let (y, end) =
                if *at_top { (self.y.high, HPos::Right) } else { (self.y.low, HPos::Left) };
            // On its left, where the axis has no labels there.
            let side = if self.x.along(*x) < 0.1 { VPos::Top } else { VPos::Bottom };
            let style = font(18).transform(FontTransform::Rotate270).pos(Pos::new(end, side));
            chart.draw_series([Text::new(format!(" {words} "), (*x, y), style)])?;
        }
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::Scale;

    #[test]
    fn names_beside_points_do_not_cover_each_other() {
        let axis = || Axis::over("x", Scale::Linear, [1.0, 2.0].into_iter()).unwrap();
        let (x, y) = (axis(), axis());
        let plot = Plot { x, y, lines: Vec::new(), uprights: Vec::new(), height: TALL };
        let mut placed = Vec::new();
        assert_eq!(plot.room_for("one", (0.5, 1.0), &mut placed), 0);
        assert_eq!(plot.room_for("over it", (0.5, 1.0), &mut placed), 27);
        assert_eq!(plot.room_for("elsewhere", (0.5, 2.0), &mut placed), 0);
        assert_eq!(plot.room_for("beside", (2.0, 1.0), &mut placed), 0);
        // The axis's labels are below.
        assert!(plot.room_for("at the foot", (1.0, 0.0), &mut placed) < 0);
    }

    #[test]
    fn a_plot_takes_its_colours_from_the_page_and_scales() {
        let line = Line {
            name: "a".into(),
            points: vec![(1.0, 2.0), (2.0, 3.0)],
            spread: vec![(1.0, 1.5, 2.5)],
            dots: true,
            named: false,
        };
        let plot = Plot {
            x: Axis::over("x", Scale::Log, [1.0, 2.0].into_iter()).unwrap(),
            y: Axis::over("y", Scale::Linear, [2.0, 3.0].into_iter()).unwrap(),
            lines: vec![line],
            uprights: vec![Upright { x: 1.5, words: "here".into(), at_top: true }],
            height: TALL,
        };
        let svg = plot.svg("a < b").unwrap();
        assert!(svg.starts_with("<svg role=\"img\" aria-label=\"a &lt; b\" viewBox="), "{svg}");
        assert!(
            svg.contains("var(--series-0)") && svg.contains("currentColor") && svg.contains("here")
        );
        assert!(!svg.contains("#0") && !svg.contains('\n'), "{svg}");
    }
}
