//! Latents in place of keys and values, and weights in fewer bits.

use super::SOURCE;
use crate::numbers::formulas::kv_bytes;
use crate::numbers::{Row, Verdict};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-mla-v2",
        source: SOURCE,
        claim: "DeepSeek-V2 goes from 64 x 128 = 8,192 cached numbers to 576, 14 times fewer",
        claimed: 14.0,
        rounding: 0.5,
        unit: "times",
        recompute: || kv_bytes(1, 128, 128, 1, 1, 1) / 576.0,
        verdict: Verdict::Wrong,
        why: "The model has 128 heads, and the comparison counts keys but no values: 2 x 128 x 128 / 576 = 56.9.",
    },
    Row {
        id: "lesson-mla-table",
        source: SOURCE,
        claim: "in its table of 64 heads of 128, the latent of 576 is 14 times smaller than multi-head attention",
        claimed: 14.0,
        rounding: 0.5,
        unit: "times",
        recompute: || kv_bytes(1, 64, 128, 1, 1, 1) / 576.0,
        verdict: Verdict::Wrong,
        why: "The table's other rows count one of K and V on both sides, which cancels. The latent stands for both: 28.4.",
    },
    Row {
        id: "lesson-awq-memory",
        source: SOURCE,
        claim: "1 % of the weights in 16 bits and the rest in 3 bits need 4 times less memory",
        claimed: 4.0,
        rounding: 0.5,
        unit: "times",
        recompute: || 16.0 / (0.01 * 16.0 + 0.99 * 3.0),
        verdict: Verdict::Wrong,
        why: "5.1 times. Four is what 4 bits give.",
    },
];
