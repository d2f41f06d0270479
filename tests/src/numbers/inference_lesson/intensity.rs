//! Arithmetic intensity, and where it meets the ridge point.

use super::SOURCE;
use crate::numbers::formulas::{H100, arithmetic_intensity, attention_intensity, ridge_point};
use crate::numbers::{Row, Verdict};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-ridge",
        source: SOURCE,
        claim: "an H100's arithmetic and memory balance at 989 / 3.35 = 295 FLOP per byte",
        claimed: 295.0,
        rounding: 0.5,
        unit: "FLOP/byte",
        recompute: || ridge_point(H100.flops_per_second, H100.bytes_per_second),
        verdict: Verdict::Holds,
        why: "295.2.",
    },
    Row {
        id: "lesson-intensity-1",
        source: SOURCE,
        claim: "one row times a 4096 x 11008 matrix has an intensity of about 1.0",
        claimed: 1.0,
        rounding: 0.05,
        unit: "FLOP/byte",
        recompute: || arithmetic_intensity(1, 4096, 11008),
        verdict: Verdict::Holds,
        why: "0.9997.",
    },
    Row {
        id: "lesson-intensity-4096",
        source: SOURCE,
        claim: "4,096 rows times the same matrix: about 2731",
        claimed: 2731.0,
        rounding: 0.5,
        unit: "FLOP/byte",
        recompute: || arithmetic_intensity(4096, 4096, 11008),
        verdict: Verdict::Wrong,
        why: "1726.7 by the lesson's own function, which moves the rows in and out as well as the weights.",
    },
    Row {
        id: "lesson-intensity-295",
        source: SOURCE,
        claim: "295 rows: about 270",
        claimed: 270.0,
        rounding: 5.0,
        unit: "FLOP/byte",
        recompute: || arithmetic_intensity(295, 4096, 11008),
        verdict: Verdict::Holds,
        why: "268.5: reading and writing the rows costs a tenth.",
    },
    Row {
        id: "lesson-intensity-attention-prefill",
        source: SOURCE,
        claim: "attention over a prompt of 4,096 has intensity 2,048",
        claimed: 2048.0,
        rounding: 0.5,
        unit: "FLOP/byte",
        recompute: || attention_intensity(4096, 4096, 1),
        verdict: Verdict::Holds,
        why: "Half the prompt, if nothing is masked. A causal kernel does half the arithmetic, and gets 1,024.",
    },
    Row {
        id: "lesson-intensity-attention-decode",
        source: SOURCE,
        claim: "attention in decode stays below 1 FLOP per byte, however long the context (here 4,096)",
        claimed: 1.0,
        rounding: 0.5,
        unit: "FLOP/byte",
        recompute: || attention_intensity(1, 4096, 8),
        verdict: Verdict::Incomplete,
        why: "True of plain multi-head attention. Where 8 query heads share one KV head, as in the lesson's Llama-2-70B, each byte serves 8 of them: 7.98.",
    },
];
