//! What a single request can hope for, and what the naive loop does.

use super::{SOURCE, WEIGHTS_70B};
use crate::numbers::formulas::{H100, LLAMA_2_70B, roofline_seconds, tokens_processed_naive};
use crate::numbers::{Row, Verdict};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-step-of-70b",
        source: SOURCE,
        claim: "reading 140 GB of weights at 3.35 TB/s takes about 42 ms",
        claimed: 42.0,
        rounding: 0.5,
        unit: "ms",
        recompute: || WEIGHTS_70B / H100.bytes_per_second * 1e3,
        verdict: Verdict::Holds,
        why: "41.8 ms.",
    },
    Row {
        id: "lesson-ceiling-of-70b",
        source: SOURCE,
        claim: "so a single user gets roughly 24 tokens a second at most",
        claimed: 24.0,
        rounding: 0.5,
        unit: "tokens/s",
        recompute: || H100.bytes_per_second / WEIGHTS_70B,
        verdict: Verdict::Holds,
        why: "23.9 tokens a second.",
    },
    Row {
        id: "lesson-one-gpu",
        source: SOURCE,
        claim: "this runs on a single H100",
        claimed: 1.0,
        rounding: 0.0,
        unit: "H100",
        recompute: || (WEIGHTS_70B / H100.memory_bytes).ceil(),
        verdict: Verdict::Incomplete,
        why: "140 GB of weights do not fit into 80 GB. Two GPUs hold them, and then read them at twice the bandwidth.",
    },
    Row {
        id: "lesson-ttft",
        source: SOURCE,
        claim: "on it, the first token after a prompt of 100 arrives in roughly 30 ms",
        claimed: 30.0,
        rounding: 5.0,
        unit: "ms",
        recompute: || {
            roofline_seconds(100.0 * LLAMA_2_70B.matrix_flops_per_token(), WEIGHTS_70B, H100) * 1e3
        },
        verdict: Verdict::Wrong,
        why: "Prefill reads every weight too. 100 rows are below the ridge point of 295, so memory decides: 41.8 ms at least. \
              The arithmetic alone would take 13.9 ms.",
    },
    Row {
        id: "lesson-weights-70b",
        source: SOURCE,
        claim: "the weights of Llama-2-70B are 140 GB in BF16",
        claimed: 140.0,
        rounding: 5.0,
        unit: "GB",
        recompute: || 2.0 * LLAMA_2_70B.parameters() / 1e9,
        verdict: Verdict::Holds,
        why: "68.98 billion parameters, counted from the shapes: 138.0 GB.",
    },
    Row {
        id: "lesson-naive-tokens",
        source: SOURCE,
        claim: "naive decoding of 256 tokens after a prompt of 4,096 processes about 1 million tokens",
        claimed: 1e6,
        rounding: 0.5e6,
        unit: "tokens",
        recompute: || tokens_processed_naive(4096, 256),
        verdict: Verdict::Holds,
        why: "1,081,216.",
    },
    Row {
        id: "lesson-naive-first-step",
        source: SOURCE,
        claim: "the first of these passes is over 4,097 tokens",
        claimed: 4097.0,
        rounding: 0.0,
        unit: "tokens",
        recompute: || tokens_processed_naive(4096, 1),
        verdict: Verdict::Wrong,
        why: "The lesson's own loop runs the model before it appends: 4,096 tokens first, 4,351 last.",
    },
    Row {
        id: "lesson-naive-overhead",
        source: SOURCE,
        claim: "that is 4,000 times as many as were generated",
        claimed: 4000.0,
        rounding: 500.0,
        unit: "times",
        recompute: || tokens_processed_naive(4096, 256) / 256.0,
        verdict: Verdict::Holds,
        why: "4,223.5 times.",
    },
];
