//! From passes that were timed to the time of any pass.
//!
//! A pass takes time for its rows and for the keys and values that they look at. Both are fitted:
//!
//! ```text
//! t = (1 - h) f(rows) + h f(logits) + a · (decode pairs) + b · (prefill pairs)
//! ```
//!
//! `f` is no straight line: two rows often take as long as four, and four hardly longer than one. So it is a line
//! from knot to knot, and its values at the knots are what is fitted. `h` is the head's share of the arithmetic, which
//! only rows with logits meet. All unknowns come in linearly, none can be less than nothing.
//!
//! What is fitted are medians: what passes take that nothing else holds up. On a machine that is not alone, some
//! passes take far longer, and a server takes them as they come. So all are made longer by as much as means are above
//! medians.

use super::model::PassWork;
use naive_decode::{Error, Result};
use serde::Serialize;

/// Rounds of the descent; it stands still long before.
const ROUNDS: usize = 20_000;

/// Relative change below which it stands still.
const STILL: f64 = 1e-10;

/// A pass that was timed, several times over.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedPass {
    /// What it came to.
    pub work: PassWork,
    /// What it took, each time.
    pub seconds: Vec<f64>,
}

impl TimedPass {
    /// What it usually took; of an even number, the upper of the two in the middle.
    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }
}

/// What was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fitted {
    /// `(rows, seconds)`: what passes take where nothing is looked at, all rows with logits. Rows rise.
    pub knots: Vec<(f64, f64)>,
    /// The part of that which is the head.
    pub head_share: f64,
    /// Seconds for each pair of a row and a token, where the row is alone in its span.
    pub decode_pair: f64,
    /// The same where it is not.
    pub prefill_pair: f64,
    /// Times as long as usual that passes took on average: 1 on a machine that does nothing else.
    pub held_up: f64,
    /// Passes that it was fitted to.
    pub passes: usize,
    /// The middle one of the relative errors on those passes.
    pub typical_error: f64,
}

impl Fitted {
    /// Fits passes; `head_share` is [`SimulatedModel::head_share`](super::SimulatedModel::head_share). Errors
    /// count as parts of a pass's time, so that short passes are fitted as well as long ones.
    ///
    /// # Errors
    /// If there is no pass, or one that took no time, or that nobody timed.
    pub fn to(passes: &[TimedPass], head_share: f64) -> Result<Self> {
        for pass in passes {
            let odd = pass.seconds.iter().find(|seconds| !(1e-12..=1e9).contains(*seconds));
            match (odd, pass.seconds.is_empty()) {
                (Some(odd), _) => {
                    return Err(Error::invalid("seconds of a pass", odd, "above nothing"));
                }
                (None, true) => return Err(Error::invalid("times of a pass", 0, "at least 1")),
                (None, false) => {}
            }
        }
        let mut rows: Vec<f64> = passes.iter().map(|pass| pass.work.rows).collect();
        rows.sort_by(f64::total_cmp);
        rows.dedup();
        let Some(&widest) = rows.last() else {
            return Err(Error::invalid("passes to fit", 0, "at least 1"));
        };
        // Powers of two that were seen, and the widest: few enough to be certain of each.
        let is_knot = |rows: &f64| *rows == widest || (*rows as u64).is_power_of_two();
        let mut knots: Vec<f64> = rows.into_iter().filter(is_knot).collect();
        if knots[0] > 1.0 {
            knots.insert(0, 1.0);
        }
        let at = |work: &PassWork| features(work, &knots, head_share);
        let known: Vec<(Vec<f64>, f64)> =
            passes.iter().map(|pass| (at(&pass.work), pass.median())).collect();
        let unknowns = descend(&known, knots.len() + 2);
        let mut fitted = Fitted {
            head_share,
            decode_pair: unknowns[knots.len()],
            prefill_pair: unknowns[knots.len() + 1],
            knots: knots.into_iter().zip(unknowns).collect(),
            held_up: 1.0,
            passes: passes.len(),
            typical_error: 0.0,
        };
        let error = |pass: &TimedPass| (fitted.seconds(&pass.work) / pass.median() - 1.0).abs();
        let mut errors: Vec<f64> = passes.iter().map(error).collect();
        errors.sort_by(f64::total_cmp);
        fitted.typical_error = errors[errors.len() / 2];
        let all = |of: fn(&TimedPass) -> f64| passes.iter().map(of).sum::<f64>();
        fitted.held_up = all(TimedPass::mean) / all(TimedPass::median);
        Ok(fitted)
    }

    /// Seconds of a pass.
    pub fn seconds(&self, work: &PassWork) -> f64 {
        let rows: Vec<f64> = self.knots.iter().map(|knot| knot.0).collect();
        let known = self.knots.iter().map(|knot| knot.1);
        let known = known.chain([self.decode_pair, self.prefill_pair]);
        let features = features(work, &rows, self.head_share);
        // Past the last knot its line goes on, and might lead below nothing.
        let seconds: f64 = features.iter().zip(known).map(|(a, b)| a * b).sum();
        seconds.max(1e-9) * self.held_up
    }
}

/// What each unknown is multiplied with: the knots' values first, then those of both kinds of pairs.
fn features(work: &PassWork, knots: &[f64], head_share: f64) -> Vec<f64> {
    let mut features = vec![0.0; knots.len() + 2];
    for (rows, share) in [(work.rows, 1.0 - head_share), (work.logits, head_share)] {
        if rows > 0.0 {
            for (knot, weight) in between(rows, knots) {
                features[knot] += share * weight;
            }
        }
    }
    features[knots.len()] = work.decode_pairs;
    features[knots.len() + 1] = work.prefill_pairs;
    features
}

/// The knots around a number of rows, and how much of each it is. Past the last, the line through the last two
/// goes on.
fn between(rows: f64, knots: &[f64]) -> [(usize, f64); 2] {
    let above = knots.iter().position(|&knot| knot >= rows).unwrap_or(knots.len() - 1);
    let Some(below) = above.checked_sub(1) else { return [(0, 1.0), (0, 0.0)] };
    let part = (rows - knots[below]) / (knots[above] - knots[below]);
    [(below, 1.0 - part), (above, part)]
}

/// The unknowns, none below nothing, with the least squares of relative errors: one after the other is set to its
/// best value, round after round.
fn descend(known: &[(Vec<f64>, f64)], unknowns: usize) -> Vec<f64> {
    // Each equation divided by its time: the sum is to be one. And each unknown by the size of what it is
    // multiplied with: pairs come in thousands, rows in ones.
    let mut size = vec![0.0f64; unknowns];
    for (features, seconds) in known {
        for (size, feature) in size.iter_mut().zip(features) {
            *size += (feature / seconds).powi(2);
        }
    }
    let mut found = vec![0.0f64; unknowns];
    let mut rest: Vec<f64> = vec![1.0; known.len()];
    for _ in 0..ROUNDS {
        let mut moved = 0.0f64;
        for unknown in (0..unknowns).filter(|&unknown| size[unknown] > 0.0) {
            let pull = |((features, seconds), rest): (&(Vec<f64>, f64), &f64)| {
                features[unknown] / seconds * rest
            };
            let step: f64 = known.iter().zip(&rest).map(pull).sum::<f64>() / size[unknown];
            let better = (found[unknown] + step).max(0.0);
            let step = better - found[unknown];
            found[unknown] = better;
            for ((features, seconds), rest) in known.iter().zip(&mut rest) {
                *rest -= features[unknown] / seconds * step;
            }
            moved = moved.max((step * size[unknown].sqrt()).abs());
        }
        if moved < STILL {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(rows: f64, logits: f64, decode_pairs: f64, prefill_pairs: f64) -> PassWork {
        PassWork { rows, logits, decode_pairs, prefill_pairs, ..PassWork::default() }
    }

    /// A machine that reads rows by fours, and a model of which a fifth is the head.
    fn truth(work: &PassWork) -> f64 {
        let matrices = |rows: f64| if rows > 0.0 { 1e-3 + 2e-4 * (rows / 4.0).ceil() } else { 0.0 };
        0.8 * matrices(work.rows)
            + 0.2 * matrices(work.logits)
            + 1e-7 * work.decode_pairs
            + 3e-8 * work.prefill_pairs
    }

    fn timed() -> Vec<TimedPass> {
        let mut passes = Vec::new();
        for rows in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
            passes.extend([10.0, 300.0].map(|depth| work(rows, rows, rows * depth, 0.0)));
        }
        for rows in [16.0, 64.0, 128.0, 256.0] {
            passes.extend(
                [0.0, 300.0].map(|depth| work(rows, 1.0, 0.0, rows * (depth + rows / 2.0))),
            );
        }
        let timed = |work| TimedPass { seconds: vec![truth(&work)], work };
        passes.into_iter().map(timed).collect()
    }

    #[test]
    fn what_follows_the_formula_is_found_again() {
        let fitted = Fitted::to(&timed(), 0.2).unwrap();
        assert!(fitted.typical_error < 1e-3, "{fitted:?}");
        assert!((fitted.decode_pair / 1e-7 - 1.0).abs() < 0.02, "{fitted:?}");
        assert!((fitted.prefill_pair / 3e-8 - 1.0).abs() < 0.02, "{fitted:?}");
        // Passes of kinds that were not seen: rows between knots, a chunk beside texts, a chunk without logits.
        for new in [
            work(12.0, 12.0, 1200.0, 0.0),
            work(200.0, 9.0, 1600.0, 192.0 * 96.0),
            work(128.0, 0.0, 0.0, 128.0 * 64.0),
        ] {
            let error = fitted.seconds(&new) / truth(&new) - 1.0;
            assert!(error.abs() < 0.06, "{new:?}: {error}");
        }
    }

    #[test]
    fn a_pass_wider_than_all_goes_on_the_line() {
        let fitted = Fitted::to(&timed(), 0.2).unwrap();
        let wide = work(512.0, 1.0, 0.0, 0.0);
        assert!((fitted.seconds(&wide) / truth(&wide) - 1.0).abs() < 0.02);
    }

    #[test]
    fn what_holds_passes_up_now_and_then_is_spread_over_all() {
        let mut passes = timed();
        for pass in &mut passes {
            let usual = pass.seconds[0];
            pass.seconds = vec![usual, 2.0 * usual, usual, 1.5 * usual, usual];
        }
        let (held_up, free) =
            (Fitted::to(&passes, 0.2).unwrap(), Fitted::to(&timed(), 0.2).unwrap());
        assert!((held_up.held_up - 1.3).abs() < 1e-9 && free.held_up == 1.0);
        let any = work(12.0, 12.0, 1200.0, 0.0);
        assert!((held_up.seconds(&any) / free.seconds(&any) - 1.3).abs() < 1e-6);
        assert_eq!(held_up.typical_error, free.typical_error, "medians are the same");
    }

    #[test]
    fn one_pass_is_enough_and_none_is_not() {
        let one = TimedPass { work: work(8.0, 1.0, 0.0, 100.0), seconds: vec![0.5] };
        let fitted = Fitted::to(std::slice::from_ref(&one), 0.2).unwrap();
        assert!((fitted.seconds(&one.work) - 0.5).abs() < 1e-6);
        assert!(Fitted::to(&[], 0.2).is_err());
        let untimed = TimedPass { seconds: Vec::new(), ..one.clone() };
        assert!(Fitted::to(&[one.clone(), untimed], 0.2).is_err());
        let never = TimedPass { seconds: vec![0.1, f64::NAN], ..one.clone() };
        assert!(Fitted::to(&[one, never], 0.2).unwrap_err().to_string().contains("NaN"));
    }
}
