//! The size of a cache.

use super::{SOURCE, WEIGHTS_70B};
use crate::numbers::formulas::{LLAMA_2_70B, kv_bytes};
use crate::numbers::{Row, Verdict};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "lesson-kv-70b",
        source: SOURCE,
        claim: "4,096 tokens of Llama-2-70B are 1.34 GB of cache",
        claimed: 1.34,
        rounding: 0.005,
        unit: "GB",
        recompute: || LLAMA_2_70B.kv_bytes_per_token(2) * 4096.0 / 1e9,
        verdict: Verdict::Holds,
        why: "1,342,177,280 bytes.",
    },
    Row {
        id: "lesson-kv-share",
        source: SOURCE,
        claim: "which adds about 1 % to the memory",
        claimed: 1.0,
        rounding: 0.5,
        unit: "%",
        recompute: || 100.0 * LLAMA_2_70B.kv_bytes_per_token(2) * 4096.0 / WEIGHTS_70B,
        verdict: Verdict::Holds,
        why: "0.96 %.",
    },
    Row {
        id: "lesson-kv-production",
        source: SOURCE,
        claim: "64 such requests of 32,768 tokens need 172 GB",
        claimed: 172.0,
        rounding: 0.5,
        unit: "GB",
        recompute: || kv_bytes(80, 8, 128, 32_768, 64, 2) / 1e9,
        verdict: Verdict::Wrong,
        why: "The lesson's own product, 1.34 GB x 64 x 8, is 687 GB. A factor of four got lost.",
    },
    Row {
        id: "lesson-kv-over-weights",
        source: SOURCE,
        claim: "1.2 times the weights",
        claimed: 1.2,
        rounding: 0.05,
        unit: "times",
        recompute: || kv_bytes(80, 8, 128, 32_768, 64, 2) / WEIGHTS_70B,
        verdict: Verdict::Wrong,
        why: "4.9 times.",
    },
    Row {
        id: "lesson-gqa-8x",
        source: SOURCE,
        claim: "8 KV heads for 64 query heads make Llama-2-70B's cache 8 times smaller",
        claimed: 8.0,
        rounding: 0.0,
        unit: "times",
        recompute: || (LLAMA_2_70B.heads / LLAMA_2_70B.kv_heads) as f64,
        verdict: Verdict::Holds,
        why: "64 / 8.",
    },
];
