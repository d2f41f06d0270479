//! To park a request's blocks, or to compute them again: whatever takes less time here.

use std::time::Duration;

/// Weight of the latest measurement in an average.
const LATEST: f64 = 0.2;

/// Rows of prompts from which on a pass says what reading a prompt costs.
const PREFILL: usize = 16;

// ANCHOR: costs
/// Seconds for each token, as measured; none where nothing has been.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Costs {
    /// To copy it out of the pool, or back.
    copy: Option<f64>,
    /// To run it through the model as part of a prompt.
    compute: Option<f64>,
}

impl Costs {
    /// Whether to park: if copying twice takes less than computing. What has never been measured is tried.
    pub(super) fn parking_pays(&self) -> bool {
        match (self.copy, self.compute) {
            (Some(copy), Some(compute)) => 2.0 * copy < compute,
            _ => true,
        }
    }
    // ANCHOR_END: costs

    pub(super) fn copied(&mut self, tokens: usize, took: Duration) {
        update(&mut self.copy, tokens, took);
    }

    /// A pass took this long, with this many rows of prompts among its rows.
    pub(super) fn computed(&mut self, prefill: usize, rows: usize, took: Duration) {
        if prefill >= PREFILL && prefill * 2 > rows {
            update(&mut self.compute, rows, took);
        }
    }
}

fn update(average: &mut Option<f64>, tokens: usize, took: Duration) {
    if tokens > 0 {
        let now = took.as_secs_f64() / tokens as f64;
        *average = Some(average.map_or(now, |known| known + LATEST * (now - known)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken() {
        let millis = Duration::from_millis;
        let mut costs = Costs::default();
        assert!(costs.parking_pays(), "what is not known is tried");
        costs.computed(100, 110, millis(110));
        costs.copied(100, millis(10));
        assert!(costs.parking_pays());
        costs.computed(8, 8, millis(1)); // too few rows to tell
        for _ in 0..20 {
            costs.copied(100, millis(80));
        }
        assert!(!costs.parking_pays());
    }
}
