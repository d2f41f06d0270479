//! Figures of the KV-cache workshop.

use super::Source::KvCacheWorkshop as SOURCE;
use super::formulas::{attention_pairs, kv_bytes, tokens_processed_cached, tokens_processed_naive};
use super::{Row, Verdict};

/// Query-key pairs scored while `tokens` tokens are generated, each seeing those before it and itself.
fn cached_pairs(tokens: u64) -> f64 {
    (1..=tokens).map(|end| attention_pairs(1, end)).sum()
}

/// The same without a cache: every step scores all its rows again.
fn naive_pairs(tokens: u64) -> f64 {
    (1..=tokens).map(|end| attention_pairs(end, end)).sum()
}

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "workshop-kv-12-layers",
        source: SOURCE,
        claim: "12 layers of 768 in FP16 and 4,096 tokens need about 144 MB of cache",
        claimed: 144.0,
        rounding: 0.5,
        unit: "MB",
        recompute: || kv_bytes(12, 12, 64, 4096, 1, 2) / 1e6,
        verdict: Verdict::UnitsMixed,
        why: "144 MiB, which is 151 MB.",
    },
    Row {
        id: "workshop-page-worst-case",
        source: SOURCE,
        claim: "with pages of 16 tokens, a request wastes 12 tokens at worst",
        claimed: 12.0,
        rounding: 0.0,
        unit: "tokens",
        recompute: || {
            (1..=64)
                .map(|tokens: u32| tokens.next_multiple_of(16) - tokens)
                .max()
                .map_or(0.0, f64::from)
        },
        verdict: Verdict::Wrong,
        why: "15: a page that holds a single token.",
    },
    Row {
        id: "workshop-naive-quadratic",
        source: SOURCE,
        claim: "without a cache, twice the tokens cost four times the rows (here 1,000 and 2,000)",
        claimed: 4.0,
        rounding: 0.05,
        unit: "times",
        recompute: || tokens_processed_naive(1, 2000) / tokens_processed_naive(1, 1000),
        verdict: Verdict::Holds,
        why: "1 + 2 + ... + T grows with the square of T.",
    },
    Row {
        id: "workshop-cached-rows-linear",
        source: SOURCE,
        claim: "with a cache, twice the tokens cost twice the rows",
        claimed: 2.0,
        rounding: 0.05,
        unit: "times",
        recompute: || tokens_processed_cached(1, 2000) / tokens_processed_cached(1, 1000),
        verdict: Verdict::Holds,
        why: "Each row goes through the model once.",
    },
    Row {
        id: "workshop-cached-attention-linear",
        source: SOURCE,
        claim: "with a cache, twice the tokens cost twice the attention work",
        claimed: 2.0,
        rounding: 0.05,
        unit: "times",
        recompute: || cached_pairs(2000) / cached_pairs(1000),
        verdict: Verdict::Wrong,
        why: "Four times: each new row still meets every kept one. 1 + 2 + ... + T is the attention work with a cache; without one it grows with the cube.",
    },
    Row {
        id: "workshop-naive-attention-quadratic",
        source: SOURCE,
        claim: "without one, four times the attention work",
        claimed: 4.0,
        rounding: 0.05,
        unit: "times",
        recompute: || naive_pairs(2000) / naive_pairs(1000),
        verdict: Verdict::Wrong,
        why: "Eight times: every step scores all pairs of its context again.",
    },
];
