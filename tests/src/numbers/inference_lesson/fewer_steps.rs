//! Speculation: several tokens a step.

use super::SOURCE;
use crate::numbers::formulas::{expected_tokens, speculative_speedup};
use crate::numbers::{Row, Verdict};

/// The sketch's loop runs once for each drafted token, appends one token, and ends.
fn most_tokens_of_the_sketch(drafted: usize) -> usize {
    (0..drafted).count()
}

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-two-tokens-accepted",
        source: SOURCE,
        claim: "drafted with 0.5 and wanted with 0.3, a token is accepted 60 % of the time",
        claimed: 60.0,
        rounding: 0.5,
        unit: "%",
        recompute: || 100.0 * (0.3f64 / 0.5).min(1.0),
        verdict: Verdict::Holds,
        why: "min(1, 0.3 / 0.5).",
    },
    Row {
        id: "lesson-two-tokens-exact",
        source: SOURCE,
        claim: "and the other token of the two comes out with its 0.7 exactly",
        claimed: 0.7,
        rounding: 0.5e-9,
        unit: "probability",
        recompute: || 0.5 * 1.0 + 0.5 * (1.0 - 0.3 / 0.5) * 1.0,
        verdict: Verdict::Holds,
        why: "Drafted and accepted, 0.5, or drawn after the first was rejected, 0.5 x 0.4.",
    },
    Row {
        id: "lesson-speculation-yield",
        source: SOURCE,
        claim: "speculation with acceptance 0.9 and 4 drafted tokens yields 4 x 0.9 + 1 = 4.6 tokens",
        claimed: 4.6,
        rounding: 0.05,
        unit: "tokens",
        recompute: || expected_tokens(0.9, 4),
        verdict: Verdict::Wrong,
        why: "4.10. The sum forgets that a rejection throws away all that was drafted after it.",
    },
    Row {
        id: "lesson-speculation-speedup",
        source: SOURCE,
        claim: "with acceptance 0.8, 4 drafted tokens and a draft that costs 0.11, decoding is about 2.9 times faster",
        claimed: 2.9,
        rounding: 0.05,
        unit: "times",
        recompute: || speculative_speedup(0.8, 4, 0.11),
        verdict: Verdict::Wrong,
        why: "3.36 / 1.44 = 2.33, for the same reason.",
    },
    Row {
        id: "lesson-speculation-bonus",
        source: SOURCE,
        claim: "at acceptance 1, its sketch yields 5 tokens from 4 drafted",
        claimed: 5.0,
        rounding: 0.0,
        unit: "tokens",
        recompute: || most_tokens_of_the_sketch(4) as f64,
        verdict: Verdict::Bug,
        why: "The sketch's loop ends after the drafted tokens and never draws the bonus: 4 at most. It also reads `draft_logits`, which nothing defines. \
              Rung 07 shows what that costs.",
    },
    Row {
        id: "lesson-cost-ratio",
        source: SOURCE,
        claim: "an 8B draft costs about 0.11 of a 70B target",
        claimed: 0.11,
        rounding: 0.005,
        unit: "times",
        recompute: || 8.0 / 70.0,
        verdict: Verdict::Holds,
        why: "0.114.",
    },
];
