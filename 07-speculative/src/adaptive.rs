//! How many tokens to propose: as many as pay.
//!
//! A draft of `k` tokens costs the time to draft them and a wider pass, and brings the tokens that are kept
//! and one more. Both are measured as the text goes on: how often a token at each depth is kept once those
//! before it are ([`Acceptance`]), how long a pass with such a draft takes ([`PassTimes`]), how long the draft. The
//! depth with the most tokens a second is taken. Where none beats plain decoding, nothing is proposed, but for a
//! probe now and then, ever more rarely: so speculation that does not pay costs next to nothing.

use crate::acceptance::{Acceptance, PROBE};
use crate::pass_times::{LATEST, PassTimes};
use std::time::Duration;

/// One draft in so many is a token deeper than seems best: what a wider pass costs is not known otherwise,
/// or no longer.
const DEEPER: u32 = 8;

/// A depth must promise so much more than plain decoding to be taken.
const WORTH_IT: f64 = 1.03;

/// What one cycle has shown.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Depth that was asked for.
    pub asked: usize,
    /// Length of the tree's longest path.
    pub proposed: usize,
    /// Tokens of the path that was kept.
    pub kept: usize,
    /// Time to draft.
    pub draft: Duration,
    /// Time of the pass.
    pub verify: Duration,
}

// ANCHOR: adaptive
/// Measures, and decides how deep the next draft goes.
#[derive(Debug, Clone)]
pub struct Adaptive {
    acceptance: Acceptance,
    /// By rows of the tree's longest path, the text's last token with it. How many rows the whole tree brings
    /// is the proposer's affair.
    verify: PassTimes,
    /// Seconds to draft one token, and to begin.
    draft: Line,
    /// Drafts so far.
    drafts: u32,
}
// ANCHOR_END: adaptive

/// A straight line through the latest measurements, by weighted least squares.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        let fade = 1.0 - LATEST;
        self.weight = self.weight * fade + 1.0;
        self.x = self.x * fade + x;
        self.y = self.y * fade + y;
        self.xx = self.xx * fade + x * x;
        self.xy = self.xy * fade + x * y;
    }

    /// The line's value; never less than nothing.
    fn at(&self, x: f64) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        let (mean_x, mean_y) = (self.x / self.weight, self.y / self.weight);
        let spread = self.xx / self.weight - mean_x * mean_x;
        let slope = match spread > 1e-9 {
            true => (self.xy / self.weight - mean_x * mean_y) / spread,
            // All measurements at one place: proportional is the best guess.
            false => mean_y / mean_x.max(1.0),
        };
        (mean_y + slope * (x - mean_x)).max(0.0)
    }
}

impl Adaptive {
    /// At most `most` tokens one after the other.
    pub fn new(most: usize) -> Self {
        Adaptive {
            acceptance: Acceptance::new(most),
            verify: PassTimes::default(),
            draft: Line::default(),
            drafts: 0,
        }
    }

    /// Takes in what a cycle has shown.
    pub fn observe(&mut self, seen: Observation) {
        self.acceptance.observe(seen.proposed, seen.kept);
        self.verify.observe(seen.proposed + 1, seen.verify);
        if seen.asked > 0 {
            self.draft.add(seen.proposed as f64, seen.draft.as_secs_f64());
        }
    }

    // ANCHOR: depth
    /// How deep the next draft is to go; 0 for none.
    pub fn depth(&mut self) -> usize {
        let Some(plain) = self.verify.seconds(1) else {
            return 0; // the first pass is plain: all else is measured by it
        };
        let mut best = (0, WORTH_IT / plain);
        let mut tokens = 1.0;
        // Beyond a probe, one more than has been tried: a tree's rows may grow faster than anybody thought.
        let most = self.acceptance.most().min(PROBE.max(self.verify.widest()));
        for (depth, chance) in (1..=most).zip(self.acceptance.chances()) {
            tokens += chance;
            let verify = self.verify.seconds(depth + 1).unwrap_or(plain);
            let rate = tokens / (verify + self.draft.at(depth as f64));
            if rate > best.1 {
                best = (depth, rate);
            }
        }
        if best.0 > 0 {
            self.acceptance.paid();
            self.drafts = self.drafts.wrapping_add(1);
            let deeper = usize::from(self.drafts.is_multiple_of(DEEPER));
            return (best.0 + deeper).min(most);
        }
        self.acceptance.probe()
    }
    // ANCHOR_END: depth
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs cycles of a text whose drafts are kept with this chance at every depth, and gives the share of
    /// plain decoding's time that a token takes, and the depths that were chosen.
    fn run(chance: f64, draft_cost: f64, row_cost: f64) -> (f64, Vec<usize>) {
        let mut adaptive = Adaptive::new(8);
        let (mut seconds, mut tokens, mut state) = (0.0, 0.0, 1u32);
        let mut depths = Vec::new();
        for _ in 0..2000 {
            let asked = adaptive.depth();
            depths.push(asked);
            let mut kept = 0;
            let mut random = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f64::from(state >> 8) / f64::from(1 << 24)
            };
            while kept < asked && random() < chance {
                kept += 1;
            }
            let draft = draft_cost * asked as f64;
            let verify = 1.0 + row_cost * asked as f64;
            seconds += draft + verify;
            tokens += kept as f64 + 1.0;
            adaptive.observe(Observation {
                asked,
                proposed: asked,
                kept,
                draft: Duration::from_secs_f64(draft),
                verify: Duration::from_secs_f64(verify),
            });
        }
        (seconds / tokens, depths)
    }

    #[test]
    fn good_drafts_are_long_and_pay() {
        let (time, depths) = run(0.9, 0.05, 0.02);
        assert!(time < 0.3, "{time}");
        assert!(depths[100..].iter().all(|&depth| depth >= 4), "{:?}", &depths[100..140]);
    }

    #[test]
    fn bad_drafts_are_given_up_and_cost_next_to_nothing() {
        let (time, depths) = run(0.02, 0.3, 0.1);
        assert!(time < 1.02, "{time}");
        let plain = depths.iter().filter(|&&depth| depth == 0).count();
        assert!(plain > 1900, "{plain}");
    }

    #[test]
    fn dear_rows_make_drafts_short() {
        let (_, cheap) = run(0.7, 0.01, 0.02);
        let (_, dear) = run(0.7, 0.01, 0.35);
        let mean = |depths: &[usize]| depths[200..].iter().sum::<usize>() as f64 / 1800.0;
        assert!(mean(&dear) + 1.0 < mean(&cheap), "{} and {}", mean(&dear), mean(&cheap));
    }
}
