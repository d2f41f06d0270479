//! How many tokens to propose: as many as pay.
//!
//! A draft of `k` tokens costs the time to draft them and a wider pass, and brings the tokens that are kept
//! and one more. Both are measured as the text goes on: how often a token at each depth is kept once those
//! before it are ([`Acceptance`]), how long a pass with such a draft takes ([`PassTimes`]), how long the draft. Of
//! the depths that can be afforded and promise about the most tokens a second, the deepest is taken. Where none
//! beats plain decoding, nothing is proposed, but for a probe now and then, ever more rarely.
//!
//! A forecast may be wrong, so it is also counted what speculation has cost so far beyond what the same tokens would
//! have taken plainly. That debt is kept within a small part of the time: whoever is past it decodes plainly until it is
//! paid off. So speculation that does not pay costs little, whatever it promises. The debt is one of *believed* time: what
//! is beyond half as long again as usual was somebody else's, so the clock may say a little more.

use crate::acceptance::{Acceptance, PROBE};
use crate::pass_times::PassTimes;
use crate::usual::{HELD_UP, LATEST};
use std::time::Duration;

/// One draft in so many is a token deeper than seems best: what a wider pass costs is not known otherwise,
/// or no longer.
const DEEPER: u32 = 8;

/// One in so many is left out: what a plain pass takes is what all else is measured by, and it changes.
const PLAIN: u32 = 24;

/// And some of the first: what the first plain passes took is more than what the next will take.
const SOON: [u32; 2] = [4, 10];

/// Plain passes before the first draft.
const BEFORE: f64 = 2.0;

/// How much more than plain decoding a depth must promise to be taken.
const WORTH_IT: f64 = 1.03;

/// A deeper draft is taken if it promises nearly as much as a shorter: how often its last tokens come true is not known
/// otherwise.
const NEARLY: f64 = 0.97;

/// What speculation may have cost, as a share of what the text would have taken plainly, and in plain passes beside
/// that, without which nothing would ever be begun.
const DEBT: f64 = 0.015;
const FIRST_DEBT: f64 = 2.0;

/// What a row more is taken to cost, in plain passes, where no pass has been so wide; and a drafted token, where none has
/// been drafted and it is not clear whether drafting pays.
const ROW: f64 = 0.35;
const DRAFT: f64 = 0.3;

/// Plain passes that speculation can have saved up at most, to try something else with.
const SAVED: f64 = 16.0;

/// What one cycle has shown.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Depth that was asked for.
    pub asked: usize,
    /// Length of the tree's longest path.
    pub proposed: usize,
    /// Tokens one after the other that were judged: those that were kept, and one that was refused behind them, if any was.
    pub judged: usize,
    /// Nodes of the tree: rows that the pass had beside the text's last token.
    pub nodes: usize,
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
    verify: PassTimes,
    /// Seconds to draft one token, and to begin.
    draft: Line,
    /// Cycles since the last draft, and seconds that a draft takes longer for each of them: who guesses has to read what
    /// was written meanwhile.
    since: u32,
    catch_up: f64,
    /// Drafts so far.
    drafts: u32,
    /// Tokens so far: in plain passes, what the text would have taken.
    tokens: f64,
    /// Seconds that drafts and the passes over them have taken, and tokens that came of those.
    spent: f64,
    gained: f64,
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
            since: 0,
            catch_up: 0.0,
            drafts: 0,
            tokens: 0.0,
            spent: 0.0,
            gained: 0.0,
        }
    }

    /// Takes in what a cycle has shown.
    pub fn observe(&mut self, seen: Observation) {
        self.acceptance.observe(seen.judged, seen.kept);
        let verify = self.verify.observe(seen.nodes + 1, seen.verify);
        let draft = self.believed_draft(seen);
        if seen.asked == 0 {
            self.since = self.since.saturating_add(1);
        } else {
            let proposed = seen.proposed as f64;
            if self.since == 0 || self.draft.weight == 0.0 {
                self.draft.add(proposed, draft);
            } else {
                let longer = (draft - self.draft.at(proposed)).max(0.0);
                self.catch_up = longer / f64::from(self.since);
            }
            self.since = 0;
        }
        let tokens = seen.kept as f64 + 1.0;
        self.tokens += tokens;
        self.spent += draft;
        // A pass without a guess is what it would have been anyway, and a little faster or slower by chance.
        if seen.proposed > 0 {
            self.spent += verify;
            self.gained += tokens;
        }
        if let Some(plain) = self.verify.seconds(1) {
            self.gained = self.gained.min(self.spent / plain + SAVED);
        }
    }

    /// Seconds of a draft that are believed: those in which a plain pass could have written each of its tokens, and what it had
    /// to read before; or, if that is more, half as long again as usual. What is beyond was somebody else's.
    fn believed_draft(&self, seen: Observation) -> f64 {
        let took = seen.draft.as_secs_f64();
        let Some(plain) = self.verify.seconds(1) else { return took };
        let usual = HELD_UP * self.draft.at(seen.proposed as f64);
        let most = plain * (seen.proposed.max(1) as f64 + f64::from(self.since));
        took.min(most.max(usual))
    }

    /// What speculation has cost beyond what the same tokens would have taken, in plain passes, by what is known *now* of
    /// how long those take: the first of a text are slow, and what seemed saved then was not.
    fn debt(&self, plain: f64) -> f64 {
        self.spent / plain - self.gained
    }

    /// Seconds to draft so deep and to run the tree that comes of it.
    fn cost(&self, depth: usize, nodes: usize, plain: f64) -> f64 {
        let (rows, widest) = (nodes.saturating_add(1), self.verify.widest());
        let known = self.verify.seconds(rows.min(widest)).unwrap_or(plain);
        // Past all that has been tried, a row is taken to cost that much.
        let verify = known + ROW * plain * rows.saturating_sub(widest) as f64;
        verify + self.draft.at(depth as f64)
    }

    /// Whether speculation stays within the debt it may have if a draft costs this much and none of it is kept.
    fn is_within_debt(&self, cost: f64, plain: f64) -> bool {
        let cost = cost + self.catch_up * f64::from(self.since);
        self.debt(plain) + cost / plain - 1.0 <= FIRST_DEBT + DEBT * self.tokens
    }

    // ANCHOR: depth
    /// How deep the next draft is to go; 0 for none. `nodes` says how many nodes a draft of each depth has at most.
    pub fn depth(&mut self, nodes: impl Fn(usize) -> usize) -> usize {
        let Some(plain) = self.verify.seconds(1).filter(|_| self.tokens >= BEFORE) else {
            return 0; // all else is measured by plain passes
        };
        let most = self.acceptance.most();
        let cost = |depth: usize| self.cost(depth, nodes(depth), plain);
        let mut tokens = 1.0;
        let mut paying: Vec<(usize, f64)> = Vec::new();
        for (depth, chance) in (1..=most).zip(self.acceptance.chances()) {
            tokens += chance;
            let rate = tokens / cost(depth);
            if rate > WORTH_IT / plain {
                paying.push((depth, rate));
            }
        }
        if !paying.is_empty() {
            paying.retain(|&(depth, _)| self.is_within_debt(cost(depth), plain));
            let best = paying.iter().fold(0.0, |best: f64, &(_, rate)| best.max(rate));
            let Some(&(deepest, _)) = paying.iter().rfind(|&&(_, rate)| rate >= NEARLY * best)
            else {
                return 0; // it pays by the forecast, but has not paid yet
            };
            let one_more = (deepest + 1).min(most);
            let deeper = match self.is_within_debt(cost(one_more), plain) {
                true => one_more,
                false => deepest,
            };
            self.acceptance.paid();
            self.drafts = self.drafts.wrapping_add(1);
            if self.drafts.is_multiple_of(PLAIN) || SOON.contains(&self.drafts) {
                return 0;
            }
            return if self.drafts.is_multiple_of(DEEPER) { deeper } else { deepest };
        }
        // As deep as can be afforded, up to a probe's depth. Where nothing can, the probe waits.
        let unknown = if self.draft.weight == 0.0 { DRAFT * plain } else { 0.0 };
        let affordable =
            |depth: &usize| self.is_within_debt(cost(*depth) + unknown * *depth as f64, plain);
        let deepest = (1..=PROBE.min(most)).rev().find(affordable);
        deepest.map_or(0, |deepest| self.acceptance.probe().min(deepest))
    }
    // ANCHOR_END: depth
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs cycles of a text whose drafts are kept with this chance at every depth, and gives the share of
    /// plain decoding's time that a token takes, and the depths that were chosen.
    fn run(chance: f64, draft_cost: f64, row_cost: f64) -> (f64, Vec<usize>) {
        run_of(2000, chance, draft_cost, row_cost)
    }

    /// A cycle with a chain as long as was asked for; times in seconds.
    fn chain(asked: usize, kept: usize, draft: f64, verify: f64) -> Observation {
        let (draft, verify) = (Duration::from_secs_f64(draft), Duration::from_secs_f64(verify));
        let judged = (kept + 1).min(asked);
        Observation { asked, proposed: asked, judged, nodes: asked, kept, draft, verify }
    }

    fn run_of(cycles: usize, chance: f64, draft_cost: f64, row_cost: f64) -> (f64, Vec<usize>) {
        let mut adaptive = Adaptive::new(8);
        let (mut seconds, mut tokens, mut state) = (0.0, 0.0, 1u32);
        let mut depths = Vec::new();
        for _ in 0..cycles {
            let asked = adaptive.depth(|depth| depth);
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
            adaptive.observe(chain(asked, kept, draft, verify));
        }
        (seconds / tokens, depths)
    }

    #[test]
    fn good_drafts_are_long_and_pay() {
        let (time, depths) = run(0.9, 0.05, 0.02);
        assert!(time < 0.3, "{time}");
        // But for plain passes, by which all is measured.
        let drafts: Vec<usize> = depths[100..].iter().copied().filter(|&depth| depth > 0).collect();
        assert!(drafts.len() > 1800 && drafts.iter().all(|&depth| depth >= 4), "{drafts:?}");
    }

    #[test]
    fn bad_drafts_are_given_up_and_cost_next_to_nothing() {
        let (time, depths) = run(0.02, 0.3, 0.1);
        assert!(time < 1.02, "{time}");
        let plain = depths.iter().filter(|&&depth| depth == 0).count();
        assert!(plain > 1900, "{plain}");
    }

    #[test]
    fn even_a_short_text_loses_little() {
        // From drafts that cost nothing and come true now and then, to trees that nobody could afford.
        for chance in [0.0, 0.3, 0.5, 0.8] {
            for draft_cost in [0.0, 0.1, 0.5] {
                for row_cost in [0.01, 0.3, 1.0] {
                    let (time, _) = run_of(150, chance, draft_cost, row_cost);
                    assert!(time < 1.07, "{chance} {draft_cost} {row_cost}: {time}");
                }
            }
        }
    }

    #[test]
    fn a_slow_beginning_saves_nothing_up() {
        // The first passes take half as long again. What a draft seems to save by those must not be spent later.
        let mut adaptive = Adaptive::new(8);
        let (mut seconds, mut tokens) = (0.0, 0.0);
        for cycle in 0..150 {
            let asked = adaptive.depth(|depth| depth);
            let kept = if cycle % 2 == 0 { asked.min(1) } else { 0 };
            let verify = if cycle < 3 { 1.5 } else { 1.0 + 0.3 * asked as f64 };
            let draft = 0.3 * asked as f64;
            seconds += draft + verify;
            tokens += kept as f64 + 1.0;
            adaptive.observe(chain(asked, kept, draft, verify));
        }
        assert!(seconds / tokens < 1.05, "{}", seconds / tokens);
    }

    #[test]
    fn what_cannot_be_afforded_is_tried_shorter() {
        // Deep drafts pay best, by the forecast. One that fails leaves nothing to pay the next with.
        let mut adaptive = Adaptive::new(8);
        (0..3).for_each(|_| adaptive.observe(chain(0, 0, 0.0, 1.0)));
        adaptive.observe(chain(2, 2, 0.0, 1.6));
        adaptive.observe(chain(8, 0, 0.0, 3.4));
        (0..8).for_each(|_| adaptive.acceptance.observe(8, 8));
        let debt = |depth: usize| adaptive.is_within_debt(1.0 + 0.3 * depth as f64, 1.0);
        assert!(debt(3) && !debt(8));
        let asked = adaptive.depth(|depth| depth);
        assert!((1..8).contains(&asked), "{asked}");
    }

    #[test]
    fn a_probe_that_cannot_be_afforded_is_not_used_up() {
        // A draft that took as long as ten passes has failed: it will be long before another can be paid for.
        let mut adaptive = Adaptive::new(8);
        (0..3).for_each(|_| adaptive.observe(chain(0, 0, 0.0, 1.0)));
        adaptive.observe(chain(8, 0, 0.0, 10.0));
        assert!((0..100).all(|_| adaptive.depth(|depth| depth) == 0));
        let probes: Vec<usize> = (0..8).map(|_| adaptive.acceptance.probe()).collect();
        assert_eq!(probes, [0, 0, 0, 0, 0, 0, 0, PROBE]);
    }

    #[test]
    fn probes_may_cost_more_than_is_believed() {
        // Nothing comes true, and a pass with a guess takes as long as ten, however wide it is.
        let mut adaptive = Adaptive::new(8);
        let mut drafts = 0;
        for _ in 0..1000 {
            let asked = adaptive.depth(|depth| depth);
            drafts += usize::from(asked > 0);
            let verify = if asked > 0 { 10.0 } else { 1.0 };
            adaptive.observe(chain(asked, 0, 0.0, verify));
        }
        // Each loses nine plain passes: 45 of a thousand, where the debt may be 17.
        assert_eq!(drafts, 5);
    }

    #[test]
    fn dear_rows_make_drafts_short() {
        let (_, cheap) = run(0.7, 0.01, 0.02);
        let (_, dear) = run(0.7, 0.01, 0.35);
        let mean = |depths: &[usize]| depths[200..].iter().sum::<usize>() as f64 / 1800.0;
        assert!(mean(&dear) + 1.0 < mean(&cheap), "{} and {}", mean(&dear), mean(&cheap));
    }
}
