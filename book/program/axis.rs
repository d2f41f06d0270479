//! Axes: their ends, their ticks, and where a value falls.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use serde::Deserialize;

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// Equal steps are equal differences; the axis starts at zero.
    #[default]
    Linear,
    /// Equal steps are equal factors.
    Log,
}

/// One axis of a plot.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// An axis that has room for all the values.
    pub(crate) fn over(
        label: &str,
        scale: Scale,
        values: impl Iterator<Item = f64>,
    ) -> Result<Self, String> {
        let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(least, most), value| {
            (least.min(value), most.max(value))
        });
        if scale == Scale::Log && least <= 0.0 {
            return Err(format!("the axis `{label}` is logarithmic and cannot show {least}"));
        }
        if !least.is_finite() || most <= 0.0 {
            return Err(format!("there is nothing above zero to show on the axis `{label}`"));
        }
        let (low, high) = match scale {
            Scale::Linear => (0.0, most * 1.08),
            Scale::Log => (least / 1.25, most * 1.25),
        };
        let ticks = match scale {
            Scale::Linear => linear_ticks(high),
            Scale::Log => log_ticks(low, high),
        };
        Ok(Self { label: label.into(), scale, low, high, ticks })
    }

    /// How far along the axis a value is, from 0 to 1.
    pub(crate) fn along(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

/// Steps of 1, 2 or 5 times a power of ten, at most eight of them: on a phone there is no room for the labels of more.
fn linear_ticks(high: f64) -> Vec<f64> {
    let power = 10f64.powf((high / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0]
        .map(|s| s * power)
        .into_iter()
        .find(|step| high / step <= 8.0)
        .unwrap_or(10.0 * power);
    (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick <= high).collect()
}

/// Powers of ten, with 2 and 5 between them where there is room.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let within: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    powers
        .flat_map(|power| {
            within.iter().map(move |digit| {
                if power < 0 { digit / 10f64.powi(-power) } else { digit * 10f64.powi(power) }
            })
        })
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.along(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_start_at_zero_and_have_round_ticks() {
        let axis = Axis::over("ms", Scale::Linear, [3.0, 41.0].into_iter()).unwrap();
        assert_eq!(axis.ticks, [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!((axis.map(&0.0, (100, 0)), axis.map(&axis.high, (100, 0))), (100, 0));
    }

    #[test]
    fn log_axes_have_equal_steps_for_equal_factors() {
        let axis = Axis::over("tokens", Scale::Log, [1.0, 10_000.0].into_iter()).unwrap();
        assert_eq!(axis.ticks, [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        let at = |x| axis.map(&x, (0, 10_000));
        assert!((at(100.0) - at(10.0) - (at(1000.0) - at(100.0))).abs() <= 1);
        assert_eq!(
            Axis::over("", Scale::Log, [0.02, 0.3].into_iter()).unwrap().ticks,
            [0.02, 0.05, 0.1, 0.2]
        );
    }

    #[test]
    fn axes_without_anything_to_show_are_refused() {
        assert!(
            Axis::over("ms", Scale::Log, [0.0, 1.0].into_iter())
                .unwrap_err()
                .contains("cannot show 0")
        );
        assert!(Axis::over("ms", Scale::Linear, [0.0].into_iter()).is_err());
        assert!(Axis::over("ms", Scale::Linear, std::iter::empty()).is_err());
    }
}
