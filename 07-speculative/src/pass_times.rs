//! How long passes take, by number of rows.

use crate::usual::{HELD_UP, Usual};
use std::time::Duration;

/// Rows up to which single numbers of rows are remembered; no guess makes a pass so wide.
const MOST: usize = 1024;

// ANCHOR: pass_times
/// Seconds of a pass, by number of rows, as measured.
#[derive(Debug, Clone, Default)]
pub struct PassTimes {
    seconds: Vec<Usual>,
}
// ANCHOR_END: pass_times

impl PassTimes {
    /// A pass over this many rows took this long. Gives the seconds of it that are believed: what is beyond half as long
    /// again as usual was somebody else's.
    pub fn observe(&mut self, rows: usize, took: Duration) -> f64 {
        if rows > MOST {
            return took.as_secs_f64();
        }
        if self.seconds.len() <= rows {
            self.seconds.resize(rows + 1, Usual::default());
        }
        let most = HELD_UP * self.usual(rows).unwrap_or(f64::INFINITY);
        let seconds = took.as_secs_f64().min(most);
        self.seconds[rows].observe(seconds);
        seconds
    }

    /// Rows of the widest pass there has been; 0 if there has been none.
    pub fn widest(&self) -> usize {
        self.seconds.iter().rposition(|usual| usual.seconds().is_some()).unwrap_or(0)
    }

    /// Seconds of a pass over this many rows: between the nearest that have been measured, and no more than any wider pass
    /// takes; none if none has been measured.
    pub fn seconds(&self, rows: usize) -> Option<f64> {
        let wider = self.seconds.iter().skip(rows).filter_map(Usual::seconds);
        let least = wider.fold(f64::INFINITY, f64::min);
        self.between(rows).map(|seconds| seconds.min(least))
    }

    /// What a pass over this many rows takes at most, if nobody holds it up: as long as such a pass has taken, or else no
    /// longer for each row than a narrower one.
    fn usual(&self, rows: usize) -> Option<f64> {
        self.widest_below(rows).map(|(width, seconds)| seconds * rows as f64 / width)
    }

    /// Rows and seconds of passes over this many rows, if there have been any.
    fn measured(&self, rows: usize) -> Option<(f64, f64)> {
        Some((rows as f64, self.seconds.get(rows)?.seconds()?))
    }

    /// The same of the widest that are no wider than so many rows.
    fn widest_below(&self, rows: usize) -> Option<(f64, f64)> {
        (0..=rows.min(self.seconds.len())).rev().find_map(|rows| self.measured(rows))
    }

    fn between(&self, rows: usize) -> Option<f64> {
        let below = self.widest_below(rows);
        let above = (rows..self.seconds.len()).find_map(|rows| self.measured(rows));
        match (below, above) {
            (Some((a, at_a)), Some((b, at_b))) if b > a => {
                Some(at_a + (at_b - at_a) * (rows as f64 - a) / (b - a))
            }
            // Past all that is known, a pass is taken to grow by a tenth of a row's time for each row.
            (Some((a, at_a)), _) => Some(at_a * (1.0 + 0.1 * (rows as f64 - a) / a.max(1.0))),
            (None, above) => above.map(|(_, seconds)| seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pass_of_a_width_is_not_believed_to_be_slower_for_each_row_than_a_narrower_one() {
        let ms = Duration::from_millis;
        let mut times = PassTimes::default();
        times.observe(1, ms(10));
        // Somebody else had the core for most of it.
        assert_eq!(times.observe(4, ms(5000)), HELD_UP * 0.04);
        assert_eq!(times.observe(8, ms(50)), 0.05);
        assert_eq!(times.seconds(8), Some(0.05));
    }
}
