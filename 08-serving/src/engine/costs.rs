//! To park a request's blocks, or to compute them again: whatever takes less time here.

use std::time::Duration;

/// Weight of the latest measurement in an average.
const LATEST: f64 = 0.2;

/// Measurements of which the quickest counts, before averages begin: the first may have met new memory, or a busy machine.
const FIRST: u32 = 3;

/// Times as long as usual that a measurement is believed to have taken, at most.
const HELD_UP: f64 = 1.5;

/// Rows of prompts from which on a pass says what reading a prompt costs.
const PREFILL: usize = 16;

/// How often what does not pay is tried all the same.
const PROBE: u32 = 8;

// ANCHOR: costs
/// What parking and reading take, as measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    /// To copy a token out of the pool, or back.
    copy: PerToken,
    /// To run it through the model as part of a prompt.
    compute: PerToken,
    /// Times in a row that parking was not worth it.
    declined: u32,
}

impl Costs {
    /// Whether to park: if copying twice takes less than computing. What has never been measured is tried; and so is every
    /// eighth time what does not pay, as only what is done is measured.
    pub(super) fn parks(&mut self) -> bool {
        let pays = match (self.copy.seconds, self.compute.seconds) {
            (Some(copy), Some(compute)) => 2.0 * copy < compute,
            _ => true,
        };
        let parks = pays || self.declined + 1 == PROBE;
        self.declined = if parks { 0 } else { self.declined + 1 };
        parks
    }
    // ANCHOR_END: costs

    pub(super) fn copied(&mut self, tokens: usize, took: Duration) {
        self.copy.observe(tokens, took.as_secs_f64());
    }

    /// The model took so many seconds over a pass with this many rows of prompts among its rows.
    pub(super) fn computed(&mut self, prefill: usize, rows: usize, seconds: f64) {
        if prefill >= PREFILL && prefill * 2 > rows {
            self.compute.observe(rows, seconds);
        }
    }
}

/// Seconds for each token; none where nothing has been measured.
#[derive(Debug, Clone, Copy, Default)]
struct PerToken {
    seconds: Option<f64>,
    measured: u32,
}

impl PerToken {
    fn observe(&mut self, tokens: usize, seconds: f64) {
        if tokens == 0 {
            return;
        }
        let now = seconds / tokens as f64;
        let known = self.seconds.unwrap_or(now);
        self.seconds = Some(match self.measured < FIRST {
            true => known.min(now),
            false => known + LATEST * (now.min(HELD_UP * known) - known),
        });
        self.measured = self.measured.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        let mut costs = Costs::default();
        assert!(costs.parks(), "what is not known is tried");
        costs.computed(100, 110, 0.110);
        costs.copied(100, millis(10));
        assert!(costs.parks());
        costs.computed(8, 8, 0.001); // too few rows to tell
        for _ in 0..20 {
            costs.copied(100, millis(80));
        }
        assert!(!costs.parks());
    }

    #[test]
    fn a_slow_first_copy_is_unlearnt() {
        let mut costs = Costs::default();
        costs.computed(100, 100, 0.100);
        costs.copied(100, millis(5000));
        let declined = (0..100).take_while(|_| !costs.parks()).count();
        assert_eq!(declined, 7, "tried again in the end");
        costs.copied(100, millis(10));
        assert!(costs.parks());
    }

    #[test]
    fn one_slow_copy_among_many_changes_nothing() {
        let mut costs = Costs::default();
        costs.computed(100, 100, 0.100);
        (0..5).for_each(|_| costs.copied(100, millis(10)));
        costs.copied(100, millis(5000));
        assert!(costs.parks());
    }
}
