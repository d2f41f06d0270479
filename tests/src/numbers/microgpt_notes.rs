//! Figures of the microGPT notes.

use super::Source::MicroGptNotes as SOURCE;
use super::formulas::{expected_tokens, kv_bytes};
use super::{Row, Verdict};

/// Tokens drafted a cycle in the notes' example.
const DRAFTED: i32 = 5;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "microgpt-kv-exceeds-weights",
        source: SOURCE,
        claim: "80 layers, 8 KV heads of 128, 32 requests of 32,768 tokens in BF16 need a cache of about 344 GB",
        claimed: 344.0,
        rounding: 0.5,
        unit: "GB",
        recompute: || kv_bytes(80, 8, 128, 32_768, 32, 2) / 1e9,
        verdict: Verdict::Holds,
        why: "343.6 GB, which is 320 GiB: more than twice the weights of a 70B model.",
    },
    Row {
        id: "microgpt-mha-width",
        source: SOURCE,
        claim: "keys and values of 128 heads of 128 are 32,768 numbers a token and layer",
        claimed: 32_768.0,
        rounding: 0.5,
        unit: "numbers",
        recompute: || kv_bytes(1, 128, 128, 1, 1, 1),
        verdict: Verdict::Holds,
        why: "2 x 128 x 128.",
    },
    Row {
        id: "microgpt-mla-64x",
        source: SOURCE,
        claim: "a latent of 512 numbers makes DeepSeek-V3's cache 64 times smaller",
        claimed: 64.0,
        rounding: 0.5,
        unit: "times",
        recompute: || kv_bytes(1, 128, 128, 1, 1, 1) / (512.0 + 64.0),
        verdict: Verdict::Incomplete,
        why: "The 64 rotated key dimensions do not fit into the latent and are cached beside it: 576 numbers, 56.9 times fewer.",
    },
    Row {
        id: "microgpt-mla-up-projections",
        source: SOURCE,
        claim: "keys and values are made from each cached latent again, by 2 matrices, at every attention step",
        claimed: 2.0,
        rounding: 0.0,
        unit: "a cached token",
        recompute: || 0.0,
        verdict: Verdict::Incomplete,
        why: "That is the explicit form. Absorbed, both matrices work on the step's own row: one goes into the query, the other comes after the weighted sum. No cached token is touched by either.",
    },
    Row {
        id: "microgpt-tokens-per-cycle",
        source: SOURCE,
        claim: "speculation with acceptance 0.8 and 5 drafted tokens yields about 4.0 tokens a cycle",
        claimed: 4.0,
        rounding: 0.05,
        unit: "tokens",
        recompute: || expected_tokens(0.8, DRAFTED),
        verdict: Verdict::Wrong,
        why: "The notes' own formula gives (1 - 0.8^6) / 0.2 = 3.69. It takes 6 drafted tokens to come near 4.0.",
    },
    Row {
        id: "microgpt-most-tokens-per-cycle",
        source: SOURCE,
        claim: "a cycle with 5 drafted tokens yields 6 at most",
        claimed: 6.0,
        rounding: 0.0,
        unit: "tokens",
        recompute: || expected_tokens(1.0, DRAFTED),
        verdict: Verdict::Holds,
        why: "All five accepted, and one more that the target's pass has paid for already.",
    },
    Row {
        id: "microgpt-rows-verified",
        source: SOURCE,
        claim: "checking 5 drafted tokens is a pass over 5 tokens",
        claimed: 5.0,
        rounding: 0.0,
        unit: "rows",
        recompute: || f64::from(DRAFTED + 1),
        verdict: Verdict::Incomplete,
        why: "Six rows: the last token that was settled has not been through the target yet, and its row gives the distribution for the first draft.",
    },
];
