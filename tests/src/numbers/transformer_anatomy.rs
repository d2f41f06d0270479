//! Figures of the transformer anatomy. Its model is Llama 3 70B, whose cache has the shape of Llama-2-70B's.

use super::Source::TransformerAnatomy as SOURCE;
use super::formulas::{
    H100, LLAMA_2_70B, Shape, kv_bytes, ridge_point, tokens_processed_cached,
    tokens_processed_naive,
};
use super::{Row, Verdict};

const LLAMA_3_70B: Shape = Shape { vocabulary: 128_256, ..LLAMA_2_70B };
const WEIGHTS: f64 = 140e9;

/// FLOP per byte: two FLOP for each weight, and each weight has two bytes.
const INTENSITY_OF_ONE_ROW: f64 = 1.0;

fn kv(tokens: u64, batch: u64) -> f64 {
    kv_bytes(80, 8, 128, tokens, batch, 2)
}

/// How many rows the sketch's `KVCache.get` returns to a layer, just after `new` rows were written behind `kept` ones:
/// the length moves on only when the last layer has written.
fn rows_the_sketch_returns(layer: u64, layers: u64, kept: u64, new: u64) -> u64 {
    if layer == layers - 1 { kept + new } else { kept }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "anatomy-naive-tokens",
        source: SOURCE,
        claim: "1,000 tokens after a prompt of 500 process about 1 million tokens without a cache",
        claimed: 1e6,
        rounding: 0.5e6,
        unit: "tokens",
        recompute: || tokens_processed_naive(500, 1000),
        verdict: Verdict::Holds,
        why: "500 + 501 + ... + 1,499 = 999,500.",
    },
    Row {
        id: "anatomy-cached-tokens",
        source: SOURCE,
        claim: "and 1,500 with one",
        claimed: 1500.0,
        rounding: 0.0,
        unit: "tokens",
        recompute: || tokens_processed_cached(500, 1000),
        verdict: Verdict::Wrong,
        why: "1,499: prefill gives the first token, and the last one is never fed back. The post's own loop makes 999 steps.",
    },
    Row {
        id: "anatomy-667x-tokens",
        source: SOURCE,
        claim: "667 times fewer",
        claimed: 667.0,
        rounding: 0.5,
        unit: "times",
        recompute: || tokens_processed_naive(500, 1000) / tokens_processed_cached(500, 1000),
        verdict: Verdict::Holds,
        why: "999,500 / 1,499 = 666.8.",
    },
    Row {
        id: "anatomy-667x-flops",
        source: SOURCE,
        claim: "and 667 times less computation",
        claimed: 667.0,
        rounding: 0.5,
        unit: "times",
        recompute: || {
            LLAMA_3_70B.generation_flops(500, 1000, false)
                / LLAMA_3_70B.generation_flops(500, 1000, true)
        },
        verdict: Verdict::Incomplete,
        why: "Only the matrices see 667 times fewer rows. Attention's own work falls 482 times, so a cached token costs more than a naive one.",
    },
    Row {
        id: "anatomy-kv-512",
        source: SOURCE,
        claim: "cache of Llama 3 70B at 512 tokens: 160 MB",
        claimed: 160.0,
        rounding: 0.5,
        unit: "MB",
        recompute: || kv(512, 1) / 1e6,
        verdict: Verdict::UnitsMixed,
        why: "160 MiB, which is 168 MB.",
    },
    Row {
        id: "anatomy-kv-4k",
        source: SOURCE,
        claim: "at 4,096: 1.28 GB",
        claimed: 1.28,
        rounding: 0.005,
        unit: "GB",
        recompute: || kv(4096, 1) / 1e9,
        verdict: Verdict::UnitsMixed,
        why: "1,280 MiB, which is 1.25 GiB or 1.34 GB: binary megabytes, summed in thousands.",
    },
    Row {
        id: "anatomy-kv-32k",
        source: SOURCE,
        claim: "at 32,768: 10.24 GB",
        claimed: 10.24,
        rounding: 0.005,
        unit: "GB",
        recompute: || kv(32_768, 1) / 1e9,
        verdict: Verdict::UnitsMixed,
        why: "10 GiB, which is 10.74 GB.",
    },
    Row {
        id: "anatomy-kv-128k",
        source: SOURCE,
        claim: "at 131,072: 40.96 GB",
        claimed: 40.96,
        rounding: 0.005,
        unit: "GB",
        recompute: || kv(131_072, 1) / 1e9,
        verdict: Verdict::UnitsMixed,
        why: "40 GiB, which is 42.95 GB.",
    },
    Row {
        id: "anatomy-batch-32",
        source: SOURCE,
        claim: "32 requests of 4,096 tokens and the weights are 181 GB",
        claimed: 181.0,
        rounding: 0.5,
        unit: "GB",
        recompute: || (WEIGHTS + kv(4096, 32)) / 1e9,
        verdict: Verdict::UnitsMixed,
        why: "182.9 GB, with the cache in the same units as the weights.",
    },
    Row {
        id: "anatomy-three-gpus",
        source: SOURCE,
        claim: "which takes 3 H100s",
        claimed: 3.0,
        rounding: 0.0,
        unit: "H100",
        recompute: || ((WEIGHTS + kv(4096, 32)) / H100.memory_bytes).ceil(),
        verdict: Verdict::Holds,
        why: "182.9 / 80, rounded up.",
    },
    Row {
        id: "anatomy-below-ridge",
        source: SOURCE,
        claim: "one token is 295 times below the ridge point of an H100",
        claimed: 295.0,
        rounding: 0.5,
        unit: "times",
        recompute: || {
            ridge_point(H100.flops_per_second, H100.bytes_per_second) / INTENSITY_OF_ONE_ROW
        },
        verdict: Verdict::Holds,
        why: "Two FLOP for each weight of two bytes: an intensity of 1.",
    },
    Row {
        id: "anatomy-utilisation",
        source: SOURCE,
        claim: "so decode uses about 0.3 % of the tensor cores",
        claimed: 0.3,
        rounding: 0.05,
        unit: "%",
        recompute: || 100.0 / ridge_point(H100.flops_per_second, H100.bytes_per_second),
        verdict: Verdict::Holds,
        why: "0.34 %.",
    },
    Row {
        id: "anatomy-ceiling",
        source: SOURCE,
        claim: "3.35 TB/s over 140 GB: about 24 tokens a second",
        claimed: 24.0,
        rounding: 0.5,
        unit: "tokens/s",
        recompute: || H100.bytes_per_second / WEIGHTS,
        verdict: Verdict::Holds,
        why: "23.9, with an empty cache.",
    },
    Row {
        id: "anatomy-batch-intensity",
        source: SOURCE,
        claim: "a batch of 32 has an intensity of 32 (here with the post's 4,096 tokens each)",
        claimed: 32.0,
        rounding: 0.5,
        unit: "FLOP/byte",
        recompute: || {
            let flops = 32.0 * (WEIGHTS + LLAMA_3_70B.attention_flops(4096));
            flops / (WEIGHTS + kv(4096, 32))
        },
        verdict: Verdict::Incomplete,
        why: "That counts the weights alone. The caches are read too, and no request shares another's: 26.4.",
    },
    Row {
        id: "anatomy-stale-length",
        source: SOURCE,
        claim: "after a prompt of 500, the cache gives a layer its 500 rows (here the first of 80 layers)",
        claimed: 500.0,
        rounding: 0.0,
        unit: "rows",
        recompute: || rows_the_sketch_returns(0, 80, 0, 500) as f64,
        verdict: Verdict::Bug,
        why: "None. The length moves on when the last layer has written, so all the other layers see the cache as it was before the step. \
              `cargo ladder break stale-length` shows it.",
    },
    Row {
        id: "anatomy-no-mask",
        source: SOURCE,
        claim: "in prefill, the first of 500 rows sees itself alone",
        claimed: 1.0,
        rounding: 0.0,
        unit: "rows",
        recompute: || rows_the_sketch_returns(79, 80, 0, 500) as f64,
        verdict: Verdict::Bug,
        why: "A comment says that a causal mask applies; no line applies one. Every row of the prompt sees all that the cache returns, the future with it. \
              `cargo ladder break future-visible` shows it.",
    },
];
