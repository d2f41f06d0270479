//! Latency and throughput of Llama-2-13B by batch.

use super::SOURCE;
use crate::numbers::formulas::{H100, kv_bytes};
use crate::numbers::{Row, Verdict};

const WEIGHTS_13B: f64 = 26e9;

/// Llama-2-13B: 40 layers, 40 heads of 128, no grouping; 1,024 tokens a sequence.
fn kv_13b(batch: u64) -> f64 {
    kv_bytes(40, 40, 128, 1024, batch, 2)
}

fn step_seconds_13b(batch: u64) -> f64 {
    (WEIGHTS_13B + kv_13b(batch)) / H100.bytes_per_second
}

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-13b-kv",
        source: SOURCE,
        claim: "1,024 tokens of Llama-2-13B are 838 MB of cache",
        claimed: 838.0,
        rounding: 1.0,
        unit: "MB",
        recompute: || kv_13b(1) / 1e6,
        verdict: Verdict::Holds,
        why: "838.9 MB, cut rather than rounded.",
    },
    Row {
        id: "lesson-13b-latency-1",
        source: SOURCE,
        claim: "Llama-2-13B, batch 1: 8.0 ms a step",
        claimed: 8.0,
        rounding: 0.05,
        unit: "ms",
        recompute: || step_seconds_13b(1) * 1e3,
        verdict: Verdict::Holds,
        why: "26.84 GB at 3.35 TB/s.",
    },
    Row {
        id: "lesson-13b-throughput-1",
        source: SOURCE,
        claim: "which is 125 tokens a second",
        claimed: 125.0,
        rounding: 0.5,
        unit: "tokens/s",
        recompute: || 1.0 / step_seconds_13b(1),
        verdict: Verdict::Holds,
        why: "124.8.",
    },
    Row {
        id: "lesson-13b-latency-64",
        source: SOURCE,
        claim: "batch 64: 23.8 ms",
        claimed: 23.8,
        rounding: 0.05,
        unit: "ms",
        recompute: || step_seconds_13b(64) * 1e3,
        verdict: Verdict::Holds,
        why: "79.7 GB; an 80 GB card is full to the brim.",
    },
    Row {
        id: "lesson-13b-throughput-64",
        source: SOURCE,
        claim: "which is 2,690 tokens a second",
        claimed: 2690.0,
        rounding: 5.0,
        unit: "tokens/s",
        recompute: || 64.0 / step_seconds_13b(64),
        verdict: Verdict::Holds,
        why: "2,691.",
    },
    Row {
        id: "lesson-13b-latency-256",
        source: SOURCE,
        claim: "batch 256: 71.6 ms",
        claimed: 71.6,
        rounding: 0.05,
        unit: "ms",
        recompute: || step_seconds_13b(256) * 1e3,
        verdict: Verdict::Incomplete,
        why: "71.9 ms once the memory is not rounded first. But 240.7 GB is more than three cards' memory, so the bandwidth of one says little.",
    },
    Row {
        id: "lesson-13b-throughput-256",
        source: SOURCE,
        claim: "which is 3,575 tokens a second",
        claimed: 3575.0,
        rounding: 0.5,
        unit: "tokens/s",
        recompute: || 256.0 / step_seconds_13b(256),
        verdict: Verdict::Incomplete,
        why: "3,562, for the same two reasons.",
    },
];
