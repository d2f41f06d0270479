//! How many tokens to propose: as many as pay.
//!
//! A draft of `k` tokens costs the time to draft them and a wider pass, and brings the tokens that are kept
//! and one more. Both are measured as the text goes on: how often a token at each depth is kept once those
//! before it are, how long a pass over so many rows takes, how long a draft. The depth with the most tokens a
//! second is taken. Where none beats plain decoding, nothing is proposed, but for a probe now and then, ever
//! more rarely: so speculation that does not pay costs next to nothing.

use std::time::Duration;

/// Weight of the latest measurement in an average.
const LATEST: f64 = 0.15;

/// Passes between the first probes, and the most there will be.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 128;

/// Tokens that a probe proposes.
const PROBE: usize = 2;

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
    /// Rows of the pass.
    pub rows: usize,
    /// Time to draft.
    pub draft: Duration,
    /// Time of the pass.
    pub verify: Duration,
}

// ANCHOR: adaptive
/// Measures, and decides how deep the next draft goes.
#[derive(Debug, Clone)]
pub struct Adaptive {
    most: usize,
    /// By depth: how often a token there is kept, given that those before it are.
    kept: Vec<f64>,
    /// By number of rows: seconds of a pass; none if there has been no such pass.
    verify: Vec<Option<f64>>,
    /// Seconds to draft one token, and to begin.
    draft: Line,
    /// Passes until the next probe, and the pause after it.
    until_probe: u32,
    pause: u32,
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
            most,
            // Begin with some confidence, or nothing would ever be tried.
            kept: vec![0.7; most],
            verify: vec![None; 2],
            draft: Line::default(),
            until_probe: FIRST_PAUSE,
            pause: FIRST_PAUSE,
        }
    }

    /// Takes in what a cycle has shown.
    pub fn observe(&mut self, seen: Observation) {
        let tried = (seen.kept + 1).min(seen.proposed).min(self.most);
        for (depth, kept) in self.kept.iter_mut().enumerate().take(tried) {
            let now = f64::from(u8::from(depth < seen.kept));
            *kept += LATEST * (now - *kept);
        }
        if self.verify.len() <= seen.rows {
            self.verify.resize(seen.rows + 1, None);
        }
        let seconds = seen.verify.as_secs_f64();
        let known = &mut self.verify[seen.rows];
        *known = Some(known.map_or(seconds, |known| known + LATEST * (seconds - known)));
        if seen.asked > 0 {
            self.draft.add(seen.proposed as f64, seen.draft.as_secs_f64());
        }
    }

    /// Seconds of a pass over so many rows: between the nearest that have been measured.
    fn verify_seconds(&self, rows: usize) -> Option<f64> {
        let known =
            |rows: usize| self.verify.get(rows).copied().flatten().map(|s| (rows as f64, s));
        let below = (0..=rows).rev().find_map(known);
        let above = (rows..self.verify.len()).find_map(known);
        match (below, above) {
            (Some((a, at_a)), Some((b, at_b))) if b > a => {
                Some(at_a + (at_b - at_a) * (rows as f64 - a) / (b - a))
            }
            // Past all that is known, a pass is taken to grow by a tenth of a row's time for each row.
            (Some((a, at_a)), _) => Some(at_a * (1.0 + 0.1 * (rows as f64 - a) / a.max(1.0))),
            (None, above) => above.map(|(_, seconds)| seconds),
        }
    }

    // ANCHOR: depth
    /// How deep the next draft is to go; 0 for none.
    pub fn depth(&mut self) -> usize {
        let Some(plain) = self.verify_seconds(1) else {
            return 0; // the first pass is plain: all else is measured by it
        };
        let mut best = (0, WORTH_IT / plain);
        let (mut chance, mut tokens) = (1.0, 1.0);
        for depth in 1..=self.most {
            chance *= self.kept[depth - 1];
            tokens += chance;
            let verify = self.verify_seconds(depth + 1).unwrap_or(plain);
            let rate = tokens / (verify + self.draft.at(depth as f64));
            if rate > best.1 {
                best = (depth, rate);
            }
        }
        if best.0 > 0 {
            (self.until_probe, self.pause) = (FIRST_PAUSE, FIRST_PAUSE);
            return best.0;
        }
        self.until_probe -= 1;
        if self.until_probe > 0 {
            return 0;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.until_probe = self.pause;
        PROBE.min(self.most)
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
                rows: asked + 1,
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
