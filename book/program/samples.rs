//! The raw samples of a measurement, as `measure_*` examples keep them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::place::Place;

/// One run of a measurement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Samples {
    /// What it ran on; `cpu` is always there.
    pub(crate) machine: BTreeMap<String, serde_json::Value>,
    /// What to type to run it again.
    pub(crate) command: String,
    pub(crate) series: Vec<Series>,
}

/// One thing that was measured, at one or more points.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// By rising x; every point has at least one sample.
    pub(crate) points: Vec<(f64, Vec<f64>)>,
}

/// What a point's samples come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) lowest: f64,
    pub(crate) median: f64,
    pub(crate) mean: f64,
    pub(crate) highest: f64,
}

impl Samples {
    /// Reads and checks the samples at a path from the root of the repository.
    pub(crate) fn read(place: &Place, path: &str) -> Result<Self, String> {
        let samples: Self = serde_json::from_str(&place.read(path)?)
            .map_err(|e| format!("`{path}` does not hold samples: {e}"))?;
        samples.check().map_err(|message| format!("`{path}`: {message}"))?;
        Ok(samples)
    }

    fn check(&self) -> Result<(), String> {
        if !self.machine.contains_key("cpu") {
            return Err("`machine` must say which `cpu` it was".into());
        }
        for Series { name, points, .. } in &self.series {
            if points.is_empty() || points.iter().any(|(_, samples)| samples.is_empty()) {
                return Err(format!("series `{name}` has a point without samples"));
            }
            if points.iter().flat_map(|(_, samples)| samples).any(|sample| !sample.is_finite()) {
                return Err(format!("series `{name}` has a sample that is no number"));
            }
            if !points.is_sorted_by(|(a, _), (b, _)| a < b) {
                return Err(format!("the x of series `{name}` do not rise"));
            }
        }
        Ok(())
    }

    /// The series of that name.
    pub(crate) fn named(&self, name: &str) -> Result<&Series, String> {
        let names =
            || self.series.iter().map(|s| format!("`{}`", s.name)).collect::<Vec<_>>().join(", ");
        self.series
            .iter()
            .find(|series| series.name == name)
            .ok_or_else(|| format!("there is no series `{name}`; there are {}", names()))
    }

    /// The machine in one line: what matters most first, then whatever else the file says, and the day.
    pub(crate) fn machine_line(&self) -> String {
        let first = ["cpu", "cores", "simd", "os"];
        let others = self
            .machine
            .keys()
            .map(String::as_str)
            .filter(|key| !first.contains(key) && *key != "date");
        let parts = first.into_iter().chain(others).chain(["date"]).filter_map(|key| {
            Some(match self.machine.get(key)? {
                serde_json::Value::String(text) => text.clone(),
                value => format!("{value} {}", key.replace('_', " ")),
            })
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl Series {
    /// The fewest samples that any point has.
    pub(crate) fn fewest(&self) -> usize {
        self.points.iter().map(|(_, samples)| samples.len()).min().unwrap_or(0)
    }

    /// What the samples of every point come to.
    pub(crate) fn summaries(&self) -> Vec<(f64, Summary)> {
        self.points.iter().map(|(x, samples)| (*x, summary(samples))).collect()
    }

    /// The same at one point.
    pub(crate) fn at(&self, x: f64) -> Result<Summary, String> {
        self.measured_at(x).map(summary)
    }

    /// How many times another series' samples these are at one point. Where both have as many they were measured in turns, and it
    /// is the median of the turns' own ratios: a busy minute is in both halves of its ratio. Elsewhere it is that of the medians.
    pub(crate) fn times(&self, other: &Series, x: f64) -> Result<f64, String> {
        let (own, others) = (self.measured_at(x)?, other.measured_at(x)?);
        Ok(if own.len() == others.len() {
            let ratios: Vec<f64> = own.iter().zip(others).map(|(own, other)| own / other).collect();
            summary(&ratios).median
        } else {
            summary(own).median / summary(others).median
        })
    }

    fn measured_at(&self, x: f64) -> Result<&[f64], String> {
        let has = || self.points.iter().map(|(x, _)| x.to_string()).collect::<Vec<_>>().join(", ");
        self.points
            .iter()
            .find(|(at, _)| *at == x)
            .map(|(_, samples)| samples.as_slice())
            .ok_or_else(|| format!("series `{}` has no point at {x}; it has {}", self.name, has()))
    }
}

fn summary(samples: &[f64]) -> Summary {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, odd) = (sorted.len() / 2, sorted.len() % 2 == 1);
    let median = if odd { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    Summary { lowest: sorted[0], median, mean, highest: sorted[sorted.len() - 1] }
}

#[cfg(test)]
pub(crate) const EXAMPLE: &str = r#"{
    "machine": {"cpu": "Example 9", "cores": 2, "os": "linux", "date": "2026-11-20"},
    "command": "cargo run --example measure_x",
    "series": [
        {"name": "naive", "unit": "ms", "points": [[64, [4.0, 3.0, 5.0]], [128, [8.0, 9.0]]]},
        {"name": "cached", "unit": "ms", "points": [[64, [1.0]], [128, [1.0]]]},
        {"name": "memory bandwidth", "unit": "GB/s", "points": [[1, [20.0]], [2, [40.0, 38.0, 39.0]]]},
        {"name": "compute", "unit": "GFLOP/s", "points": [[1, [200.0]], [2, [400.0]]]}
    ]
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_compared_one_by_one() {
        let series = |samples: &[f64]| Series {
            name: "a".into(),
            unit: "ms".into(),
            points: vec![(1.0, samples.to_vec())],
        };
        // The last turn's minute was a busy one.
        let (a, b) = (series(&[2.0, 2.2, 9.0]), series(&[1.0, 2.0, 3.0]));
        assert_eq!(a.times(&b, 1.0), Ok(2.0));
        assert!(a.times(&b, 2.0).is_err());
    }

    #[test]
    fn samples_come_to_lowest_median_mean_and_highest() {
        let samples: Samples = serde_json::from_str(EXAMPLE).unwrap();
        let naive = samples.named("naive").unwrap();
        let expected = Summary { lowest: 3.0, median: 4.0, mean: 4.0, highest: 5.0 };
        assert_eq!(naive.at(64.0).unwrap(), expected);
        assert_eq!(naive.at(128.0).unwrap().median, 8.5);
        assert!(naive.at(65.0).unwrap_err().contains("64, 128"));
        assert!(samples.named("fast").err().unwrap().contains("`naive`, `cached`"));
        assert_eq!(naive.fewest(), 2);
        assert_eq!(naive.times(samples.named("cached").unwrap(), 128.0), Ok(8.5));
        assert_eq!(samples.machine_line(), "Example 9, 2 cores, linux, 2026-11-20");
    }

    #[test]
    fn files_that_are_no_samples_are_refused() {
        for (from, to, expected) in [
            ("\"cpu\"", "\"gpu\"", "which `cpu`"),
            ("[1.0]]", "[]]", "without samples"),
            ("[128, [8.0", "[4, [8.0", "do not rise"),
            ("\"command\"", "\"order\"", "order"),
        ] {
            let root = tempfile::tempdir().unwrap();
            std::fs::write(root.path().join("x.json"), EXAMPLE.replacen(from, to, 1)).unwrap();
            let error = Samples::read(&Place { root: root.path().into() }, "x.json").err().unwrap();
            assert!(error.contains(expected) && error.contains("x.json"), "{error}");
        }
    }
}
