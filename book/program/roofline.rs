//! The roofline: what a machine can reach at most, by how much arithmetic there is for each byte.

use serde::Deserialize;

use crate::axis::{Axis, Scale};
use crate::passes::figures::origin;
use crate::place::Place;
use crate::plot::{Line, Plot, TALL, Upright};
use crate::samples::Samples;

/// What a `roofline` fence says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roofline {
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) caption: String,
    /// Machines whose makers say what they can do.
    #[serde(default)]
    machine: Vec<Machine>,
    /// Samples with the series `memory bandwidth` and `compute`: a machine that was measured.
    samples: Option<String>,
    /// Things to run, by their arithmetic intensity.
    #[serde(default)]
    work: Vec<Work>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    name: String,
    flops_per_second: f64,
    bytes_per_second: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    name: String,
    flops_per_byte: f64,
}

impl Roofline {
    /// The plot, and in words where its figures are from.
    pub(crate) fn plot(&self, place: &Place) -> Result<(Plot, String), String> {
        let mut roofs: Vec<_> = self
            .machine
            .iter()
            .map(|m| (m.name.clone(), m.flops_per_second, m.bytes_per_second))
            .collect();
        let mut source = String::new();
        if let Some(path) = &self.samples {
            let samples = Samples::read(place, path)?;
            let (flops, bytes) = (
                best(&samples, "compute", "GFLOP/s")?,
                best(&samples, "memory bandwidth", "GB/s")?,
            );
            roofs.push((samples.machine_line(), flops * 1e9, bytes * 1e9));
            let shown = [samples.named("compute")?, samples.named("memory bandwidth")?];
            source = origin(&samples, &shown);
        }
        let ridges = roofs.iter().map(|(_, flops, bytes)| flops / bytes);
        let xs: Vec<_> = ridges
            .flat_map(|ridge| [ridge * 8.0, ridge / 8.0])
            .chain(self.work.iter().map(|work| work.flops_per_byte))
            .collect();
        let x = Axis::over("arithmetic intensity (FLOP per byte)", Scale::Log, xs.into_iter())?;
        let peak = roofs.iter().map(|(_, flops, _)| *flops).fold(0.0, f64::max);
        let (unit, label) = if peak < 2e12 {
            (1e9, "attainable (GFLOP/s)")
        } else {
            (1e12, "attainable (TFLOP/s)")
        };
        let lines: Vec<_> = roofs
            .into_iter()
            .map(|(name, flops, bytes)| roof(name, flops / unit, bytes / unit, &x))
            .collect();
        let y = Axis::over(
            label,
            Scale::Log,
            lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y),
        )?;
        let highest_at = |x: f64| lines.iter().map(|line| attainable(line, x)).fold(0.0, f64::max);
        let uprights = self.work.iter().map(|Work { name, flops_per_byte }| Upright {
            x: *flops_per_byte,
            words: name.clone(),
            at_top: highest_at(*flops_per_byte) < (y.low * y.high).sqrt(),
        });
        let uprights = uprights.collect();
        Ok((Plot { x, y, lines, uprights, height: TALL }, source))
    }
}

/// Rises with the bandwidth up to the ridge point, and is level from there.
fn roof(name: String, flops: f64, bytes: f64, x: &Axis) -> Line {
    let points = vec![(x.low, bytes * x.low), (flops / bytes, flops), (x.high, flops)];
    Line { name, points, spread: Vec::new(), dots: false, named: false }
}

/// The height of a roof at x.
fn attainable(roof: &Line, x: f64) -> f64 {
    let (ridge, peak) = roof.points[1];
    peak * (x / ridge).min(1.0)
}

/// The highest sample: whatever else a machine does can only slow it down, so this is nearest to the limit.
fn best(samples: &Samples, name: &str, unit: &str) -> Result<f64, String> {
    let series = samples.named(name)?;
    if series.unit != unit {
        return Err(format!("series `{name}` is in {}; a roofline needs {unit}", series.unit));
    }
    Ok(series.summaries().iter().map(|(_, summary)| summary.highest).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::EXAMPLE;

    fn figure(toml: &str, samples: &str) -> Result<(Plot, String), String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("m.json"), samples).unwrap();
        toml::from_str::<Roofline>(toml).unwrap().plot(&Place { root: root.path().into() })
    }

    #[test]
    fn the_roof_bends_at_the_ridge_point() {
        let (plot, source) = figure("title = \"t\"\nsamples = \"m.json\"\n[[work]]\nname = \"decode\"\nflops_per_byte = 1.0\n", EXAMPLE).unwrap();
        // 400 GFLOP/s over 40 GB/s, both at two threads.
        assert_eq!(plot.lines[0].points[1], (10.0, 400.0));
        assert_eq!(plot.uprights, [Upright { x: 1.0, words: "decode".into(), at_top: true }]);
        assert!(source.contains("Example 9"));
    }

    #[test]
    fn samples_in_another_unit_are_refused() {
        let error =
            figure("title = \"t\"\nsamples = \"m.json\"\n", &EXAMPLE.replace("GB/s", "GiB/s"))
                .err()
                .unwrap();
        assert!(error.contains("needs GB/s"), "{error}");
    }
}
