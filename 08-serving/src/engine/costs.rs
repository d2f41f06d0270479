//! To park a request's blocks, or to compute them again: whatever takes less time here.

use speculative::Usual;
use std::time::Duration;

/// Rows of prompts from which on a pass says what reading a prompt costs.
const PREFILL: usize = 16;

/// How often what does not pay is tried all the same.
const PROBE: u32 = 8;

// ANCHOR: costs
/// What parking and reading take for each token, as measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    /// To copy a token out of the pool, or back.
    copy: Usual,
    /// To run it through the model as part of a prompt.
    compute: Usual,
    /// Times in a row that parking was not worth it.
    declined: u32,
}

impl Costs {
    /// Whether to park: if copying twice takes less than computing. What has never been measured is tried; and so is every
    /// eighth time what does not pay, as only what is done is measured.
    pub(super) fn parks(&mut self) -> bool {
        let pays = match (self.copy.seconds(), self.compute.seconds()) {
            (Some(copy), Some(compute)) => 2.0 * copy < compute,
            _ => true,
        };
        let parks = pays || self.declined + 1 == PROBE;
        self.declined = if parks { 0 } else { self.declined + 1 };
        parks
    }
    // ANCHOR_END: costs

    pub(super) fn copied(&mut self, tokens: usize, took: Duration) {
        if tokens > 0 {
            self.copy.observe(took.as_secs_f64() / tokens as f64);
        }
    }

    /// The model took so many seconds over a pass with this many rows of prompts among its rows.
    pub(super) fn computed(&mut self, prefill: usize, rows: usize, seconds: f64) {
        if prefill >= PREFILL && prefill * 2 > rows {
            self.compute.observe(seconds / rows as f64);
        }
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
        for _ in 0..30 {
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
